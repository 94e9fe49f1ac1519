"""Reads the inputs of one step of the GitHub Action, and defines its environment: the token or the model's keys."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from app.config.roles import APP_ID, LESSONS, PRIVATE_KEY, STATE_DIR, environment_for, is_for_a_model
from app.config.settings import SettingProblem, Settings, SettingsError, process_environment, settings_from

Step = Literal["receive", "progress", "solve", "publish"]
STEPS: Final[tuple[Step, ...]] = get_args(Step)

TOKEN: Final = "AGENT_FIX_GITHUB_TOKEN"  # noqa: S105  # a name
TOKENS: Final = (TOKEN, "GITHUB_TOKEN", "GH_TOKEN")
"""Variables that may hold a token for GitHub, the first that is set wins."""
MODEL_KEYS: Final = "AGENT_FIX_MODEL_KEYS"
_RUNNER_FILES: Final = frozenset({"GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "RUNNER_TEMP"})
_EVENT: Final = frozenset({"GITHUB_EVENT_NAME", "GITHUB_EVENT_PATH", "AGENT_FIX_ISSUE", "AGENT_FIX_SOLVED"})
_RECORD: Final = "AGENT_FIX_RECORD"
_SANDBOX: Final = "AGENT_FIX_SANDBOX"
"""Also for the progress step, which must not run beside code without a sandbox."""
_RUNNER: Final = "AGENT_FIX_RUNNER_PROCESS"
_LEFT_BEHIND: Final = frozenset({_RUNNER, "RUNNER_TRACKING_ID"})
"""What ends the process of the progress step with the workflow's job: the runner's process, and its mark."""
_PLACE: Final = frozenset(f"GITHUB_{name}" for name in ("REPOSITORY", "RUN_ID", "RUN_ATTEMPT", "SERVER_URL", "API_URL"))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Workflow:
    """The inputs of one step. `settings` are its role's, over a state directory that all steps share."""

    settings: Settings
    event: str
    event_file: Path | None
    owner: str
    name: str
    run: str
    """Number and attempt of the workflow run; used as the delivery's id."""
    page: str
    """The workflow run's address."""
    temp: Path
    output: Path | None
    summary: Path | None
    issue: int = 0
    """An issue to work on if the event names none; 0 for none."""
    records: bool = True
    """True if the job's record becomes an artifact."""
    solved: str = ""
    """How the solve step ended, in GitHub's words: success, failure, cancelled, skipped."""
    runner: int = 0
    """The id of the process that runs the workflow's job; 0 if unknown."""
    token: str = field(default="", repr=False)


def step_environment(step: Step, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that this step's process may hold, with the model's keys under their own names."""
    if step == "solve":
        # their values are removed under every name, also if somebody put them into every step's environment
        tokens = tuple({value for name in TOKENS if (value := environment.get(name, "").strip())})
        key = environment.get(PRIVATE_KEY, "").replace("\\n", "\n").strip()
        own = environment_for("worker", environment, {TOKEN: tokens, PRIVATE_KEY: (key,) if key else ()})
        keys = _model_keys(environment.get(MODEL_KEYS, ""))
        return {**own, **keys, **chosen_variables(environment, _RUNNER_FILES), STATE_DIR: str(_state(environment))}
    own = environment_for("publisher", environment, {})
    ends = _LEFT_BEHIND if step == "progress" else frozenset()
    return {
        **own,
        **chosen_variables(environment, _RUNNER_FILES | _EVENT | _PLACE | {TOKEN, _RECORD, _SANDBOX} | ends),
        STATE_DIR: str(_state(environment)),
    }


def read_workflow(step: Step) -> Workflow:
    """Raises SettingsError if GitHub or the workflow did not set a required variable."""
    environment = process_environment()
    if step != "solve":
        _need(environment, TOKEN, "Give the Action a token: `token: ${{ github.token }}`.")
        _need(environment, "GITHUB_REPOSITORY", "GitHub sets it in workflows; the command runs only there.")
        if bool(environment.get(APP_ID, "").strip()) != bool(environment.get(PRIVATE_KEY, "").strip()):
            hint = "Give `app-id` and `private-key`, or neither."
            raise SettingsError([SettingProblem("app-id", "and `private-key` belong together.", hint)])
    return workflow_from(environment)


def workflow_from(environment: Mapping[str, str]) -> Workflow:
    addresses = {
        "AGENT_FIX_GITHUB_URL": environment.get("GITHUB_SERVER_URL", ""),
        "AGENT_FIX_GITHUB_API_URL": environment.get("GITHUB_API_URL", ""),
    }
    nothing_stays = {LESSONS: "off"}  # the state directory is deleted with the runner
    settings = settings_from({**addresses, **environment, **nothing_stays}, _state(environment))
    if settings.problems:
        raise SettingsError(settings.problems)

    def path_in(name: str) -> Path | None:
        value = environment.get(name, "")
        return Path(value) if value else None

    owner, _, name = environment.get("GITHUB_REPOSITORY", "").partition("/")
    run = environment.get("GITHUB_RUN_ID", "")
    return Workflow(
        settings=settings,
        event=environment.get("GITHUB_EVENT_NAME", ""),
        event_file=path_in("GITHUB_EVENT_PATH"),
        owner=owner,
        name=name,
        run=f"{run or '0'}-{environment.get('GITHUB_RUN_ATTEMPT') or '1'}",
        page=f"{settings.github_url}/{owner}/{name}/actions/runs/{run}" if run else "",
        temp=Path(environment.get("RUNNER_TEMP") or settings.state.parent),
        output=path_in("GITHUB_OUTPUT"),
        summary=path_in("GITHUB_STEP_SUMMARY"),
        issue=_issue(environment.get("AGENT_FIX_ISSUE", "").strip()),
        records=environment.get(_RECORD, "true") == "true",
        solved=environment.get("AGENT_FIX_SOLVED", ""),
        runner=int(environment.get(_RUNNER) or 0),
        token=environment.get(TOKEN, ""),
    )


def _state(environment: Mapping[str, str]) -> Path:
    """A directory below the runner's temporary files: outside the checkout, deleted with the job."""
    if own := environment.get(STATE_DIR):
        return Path(own)
    if temp := environment.get("RUNNER_TEMP"):
        return Path(temp) / "agent-fix-state"
    raise SettingsError(
        [SettingProblem("RUNNER_TEMP", "is not set.", "GitHub sets it in workflows; the command runs only there.")]
    )


def _model_keys(text: str) -> dict[str, str]:
    """Parse `NAME=value` lines. Raises SettingsError for names that may configure the step itself."""
    keys, problems = {}, []
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = line.strip().partition("=")
        if not name and not equals:
            continue
        if not equals or not _NAME.fullmatch(name) or not is_for_a_model(name):
            hint = "Write one NAME=value per line, like ANTHROPIC_API_KEY=${{ secrets.ANTHROPIC_API_KEY }}."
            problems.append(SettingProblem("model-keys", f"cannot be read: line {number}.", hint))
        elif value:
            keys[name] = value
    if problems:
        raise SettingsError(problems)
    return keys


def github_token(environment: Mapping[str, str]) -> str:
    """The token from the environment; empty if there is none."""
    return next((value for name in TOKENS if (value := environment.get(name, "").strip())), "")


def chosen_variables(environment: Mapping[str, str], names: frozenset[str]) -> dict[str, str]:
    return {name: environment[name] for name in names if name in environment}


def _issue(text: str) -> int:
    if not text:
        return 0
    if text.isascii() and text.isdigit() and len(text) <= 13 and 0 < int(text) < 2**40:
        return int(text)
    raise SettingsError(
        [SettingProblem("issue", f"is {text[:40]!r}.", "Set it to the number of an issue or pull request.")]
    )


def _need(environment: Mapping[str, str], name: str, hint: str) -> None:
    if not environment.get(name, "").strip():
        raise SettingsError([SettingProblem(name, "is not set.", hint)])
