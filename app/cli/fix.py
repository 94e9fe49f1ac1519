"""`agent-fix fix`: fixes an issue file in a local repository; bad input is refused before anything costs money."""

import argparse
import asyncio
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, Literal
from urllib.parse import unquote

from app.agent.external.recipe import find_recipe
from app.cli.local_context import LocalContext, LocalJob
from app.cli.run_local import Loudness, run_local
from app.config.repository import (
    DEFAULTS,
    NO_DEFAULTS,
    SOURCE,
    OperatorDefaults,
    Override,
    RepoConfig,
    parse_config,
    read_overrides,
    requested_prompt,
)
from app.config.settings import Settings, read_settings
from app.core import failpoints
from app.core.errors import AgentFixError, ConfigError, ExitCode
from app.core.failpoints import failpoint
from app.core.images import MAX_IMAGE_BYTES, MAX_IMAGES, ImageCollection, ImageRejected, too_large
from app.core.issue_file import IssueAddress, parse_issue, read_issue, where_issue
from app.core.job import MAX_ATTEMPTS, Budget, Job, JobResult, new_job_id
from app.core.model_usage import ModelNames, Reasoning, parse_usd
from app.core.plan import parse_plan_file
from app.core.task import (
    MAX_ISSUE_BODY,
    AllowedPath,
    Issue,
    KindDecision,
    Task,
    TaskKind,
    TaskSignals,
    kind_of,
    kind_of_change,
)
from app.core.text import image_addresses
from app.jobs.estimate import MAX_JOBS, estimate
from app.jobs.store import JobBlobs, JobStore
from app.pipeline.failed_attempts import failed_attempts
from app.repo.git_command import Git
from app.repo.git_store import GitStore
from app.repo.inspection import (
    ComparedCommits,
    RepositoryInspection,
    branch_ref,
    compare,
    inspect,
    mentioned_fix,
    note_about,
    origin_url,
    requested_fix,
    slug,
    top_level,
)
from app.verify.gates.paths import allowed_path

TOO_MANY = f"the limit is {MAX_IMAGES}"
NOT_BESIDE = "only files next to the issue's file are read"


def images_beside(issue: Path, body: str, *, wanted: bool = True) -> ImageCollection:
    """The images of the issue in that file; none for standard input (`-`). Blocking."""
    if not wanted:
        return ImageCollection.unwanted(image_addresses(body))
    image_collection, read_count = ImageCollection(), 0
    folder = None if str(issue) == "-" else issue.expanduser().absolute().parent
    for place, address in enumerate(image_addresses(body), 1):
        if read_count == MAX_IMAGES:
            image_collection.leave_out(place, TOO_MANY)
            continue
        try:
            path = _inside(folder, address)
            read_count += 1
            image_collection.add(place, _read(path))
        except ImageRejected as why:
            image_collection.leave_out(place, str(why))
    return image_collection


def _inside(folder: Path | None, address: str) -> Path:
    """The file after resolving links. Raises ImageRejected if it is outside the directory."""
    name = unquote(address)
    if folder is None or ":" in name or "\\" in name or "\0" in name or name.startswith("/"):
        raise ImageRejected(NOT_BESIDE)
    try:
        path = (folder / name).resolve(strict=True)
        inside = path.is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):
        raise ImageRejected("there is no such file next to the issue's file") from None
    if not inside:
        raise ImageRejected(NOT_BESIDE)
    return path


def _read(path: Path) -> bytes:
    """Read plain files only: a pipe or a device may never end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ImageRejected("it is not a file")
            content = file.read(MAX_IMAGE_BYTES + 1)
    except OSError:
        raise ImageRejected("it cannot be read") from None
    if len(content) > MAX_IMAGE_BYTES:
        raise too_large()
    return content


MAX_EARLIER = 200
"""Jobs among which failed attempts are looked for."""
OPTION_KEYS = {
    "model": "model",
    "reasoning": "reasoning",
    "runner": "runner",
    "budget": "budget.usd",
    "max_steps": "budget.steps",
    "max_minutes": "budget.minutes",
    "allow": "protected_paths",
    "images": "images",
    "base": "base",
}
"""The configuration's key that each option sets, beside `plan`, which some of PLAN_MODES set."""
PlanMode = Literal["approve", "only", "none"]
PLAN_MODES: Final[dict[str, PlanMode]] = {"plan_only": "only", "approve": "approve", "no_plan": "none"}
"""The mode that each option chooses. `only` is no value of the key `plan`, and changes nothing."""
MODEL_HINT = "Pass --model NAME (any model LiteLLM knows, such as anthropic/NAME) or set AGENT_FIX_MODEL."


@dataclass(frozen=True, slots=True)
class FixOptions:
    """The options of one `fix`; None if the repository's configuration or the default decides."""

    repo: Path
    issue: Path | IssueAddress | None
    """None for a change whose commits say what it is for."""
    base: str | None = None
    change: str = ""
    """The commit to verify; empty if something is to be fixed."""
    model: str | None = None
    reasoning: Reasoning = ""
    runner: str | None = None
    sandbox: str | None = None
    out: Path | None = None
    record: Path | None = None
    json: bool = False
    restart: bool = False
    budget: str | None = None
    max_steps: int | None = None
    max_minutes: float | None = None
    kind: TaskKind | None = None
    prompt: str | None = None
    allow: tuple[str, ...] = ()
    fixed_by: str | None = None
    attempts: int = 1
    images: bool | None = None
    plan_mode: PlanMode | None = None
    plan_file: Path | None = None
    events: int | None = None
    """A file descriptor for progress as lines of JSON."""
    loudness: Loudness = ""
    aim: Literal["fix", "reproduce", "verify"] = "fix"


def fix_command(arguments: argparse.Namespace) -> int:
    return fix(options_of(arguments), read_settings(arguments.state))


def reproduce_command(arguments: argparse.Namespace) -> int:
    """The same job, which ends with its examples."""
    options = replace(options_of(arguments), aim="reproduce", plan_mode="only")
    return fix(options, read_settings(arguments.state))


def verify_command(arguments: argparse.Namespace) -> int:
    """Judges a change that is there already."""
    return fix(replace(options_of(arguments), aim="verify"), read_settings(arguments.state))


def options_of(arguments: argparse.Namespace) -> FixOptions:
    repo: Path = arguments.repo.expanduser().absolute()
    given = {each.name: getattr(arguments, each.name) for each in fields(FixOptions) if each.name in arguments}
    given |= {
        "repo": repo,
        "issue": None
        if arguments.issue is None
        else where_issue(arguments.issue, lambda: origin_url(Git("-C", str(top_level(repo))))),
        "reasoning": arguments.reasoning or "",
        "allow": tuple(getattr(arguments, "allow", ())),
        "plan_mode": next((mode for name, mode in PLAN_MODES.items() if getattr(arguments, name, False)), None),
        "plan_file": getattr(arguments, "plan", None),
        "loudness": "quiet" if arguments.quiet else "verbose" if arguments.verbose else "",
    }
    return FixOptions(**given)


def fix(options: FixOptions, settings: Settings, *, afterwards: Callable[[], None] | None = None) -> int:
    """From options to exit code; `afterwards` is called when a job has ended and was reported."""
    local_context = LocalContext(settings)
    local_context.warm()
    failpoints.arm(settings.failpoint)
    find = partial(find_or_create, options, local_context)
    return asyncio.run(
        run_local(
            local_context,
            find,
            as_json=options.json,
            events=options.events,
            loudness=options.loudness,
            afterwards=afterwards,
        )
    )


def find_or_create(options: FixOptions, local_context: LocalContext) -> LocalJob:
    """The unfinished job for the same work, or a new one. Raises AgentFixError for an option that the operator locks.

    Blocking.
    """
    refuse_locked(options, local_context.settings.defaults)
    compared = compare(options.repo, options.base, options.change) if options.change else None
    issue = _issue(options.issue, local_context.settings, compared)
    local_context.prepare()
    store = local_context.store
    mirror = local_context.mirror(top_level(options.repo))
    began = replace(options, base=compared.base) if compared else options
    inspected, config = _inspect_base(began, issue, mirror, local_context.settings.defaults)
    if compared is not None:
        mirror.fetch(inspected.root, compared.change)
        inspected = replace(inspected, base_ref=compared.base_ref)
    issue_file = options.issue if isinstance(options.issue, Path) else Path("-")
    wanted = config.images if options.images is None else options.images
    image_collection = images_beside(issue_file, issue.body, wanted=wanted)
    change = compared.change if compared else ""
    draft = LocalJobDraft(options, local_context.settings, inspected, config, issue, image_collection, change)
    budget = config.budget.over(Budget(usd=local_context.settings.budget))
    if options.aim != "fix":
        budget = budget.for_a_look() if options.aim == "reproduce" else budget.for_a_verdict()
    new = draft.job(plan_file=_read_plan(options.plan_file), budget=budget)
    key = work_key(new)
    row = None if options.restart else store.unfinished(key)
    job = row.job if row else new
    at_limit = row is not None and row.state == "paused" and row.error_code == ExitCode.LIMIT_REACHED
    budget = effective_budget(options, job.budget, extra_to=(job if at_limit else new).budget)
    job = job.model_copy(update={"budget": budget})
    out = _prepare_out(options, local_context, job)
    _bring_fix(mirror, inspected.root, job.task.fixed_by)
    if row is None:
        job = job if change else _with_failed_attempts(job, store)
        for content in image_collection.contents:
            JobBlobs(store.engine, job.id).put(content)
        store.create(job, key)
        failpoint("created")
    here = (each for each in store.newest(MAX_JOBS) if each.job.task.repository == job.task.repository and each.final)
    cost = estimate((JobResult.read(each.result) for each in here), job.budget.usd)
    return LocalJob(
        job=job,
        config=config,
        tree=inspected.tree,
        out=out,
        resumed=row is not None,
        notes=(*_notes_about(issue), *config.gone),
        local_notes=tuple(filter(None, (*inspected.notes, note_about(out, inspected.root), cost))),
        record=options.record,
    )


def _inspect_base(
    options: FixOptions, issue: Issue, mirror: GitStore, operator: OperatorDefaults
) -> tuple[RepositoryInspection, RepoConfig]:
    """The base, which without `--base` is the branch in the configuration of what is checked out, else that itself."""
    inspected = inspect(options.repo, options.base, mirror)
    config = read_config(inspected, operator)
    branch = "" if options.base else config.base_for(issue.labels, issue.milestone)
    if not branch:
        return inspected, config
    found = inspect(options.repo, branch_ref(inspected.root, branch), mirror)
    if found.base_commit == inspected.base_commit:
        return found, config
    note = f"Starts from {branch}, the configuration's `base`; with --base HEAD from what is checked out."
    return replace(found, notes=(note, *found.notes)), config


def refuse_locked(options: FixOptions, operator: OperatorDefaults) -> None:
    """Raises AgentFixError if an option sets a key that the operator locks, as for a command on GitHub."""
    given = {name: key for name, key in OPTION_KEYS.items() if getattr(options, name) not in (None, "", ())}
    if options.change:
        given.pop("base", None)  # what a change is compared with is no choice of where to start
    given |= {name: "plan" for name, mode in PLAN_MODES.items() if mode == options.plan_mode != "only"}
    for name, key in given.items():
        if operator.locks(key):
            option = f"{'no-' if getattr(options, name, None) is False else ''}{name.replace('_', '-')}"
            hint = f"Run the command without --{option}."
            raise AgentFixError(f"--{option}: the operator has locked `{key}` in {DEFAULTS}.", hint=hint)


def _with_failed_attempts(job: Job, store: JobStore) -> Job:
    """The job with the reasons why earlier ones on this issue failed."""
    task = job.task
    earlier = (
        row
        for row in store.newest(MAX_EARLIER)
        if (row.job.task.repository, row.job.task.issue.title) == (task.repository, task.issue.title)
    )
    section = failed_attempts(earlier)
    if section is None:
        return job
    return job.model_copy(update={"task": task.model_copy(update={"sections": (*task.sections, section)})})


def _issue(where: Path | IssueAddress | None, settings: Settings, compared: ComparedCommits | None) -> Issue:
    if isinstance(where, Path):
        return read_issue(where)
    if where is None:
        return parse_issue(compared.messages.encode() if compared else b"", "the text of the commits")
    from app.cli.github import fetch_issue  # noqa: PLC0415  # GitHub's client is imported where it is needed

    return asyncio.run(fetch_issue(settings, where))


def read_config(inspected: RepositoryInspection, operator: OperatorDefaults = NO_DEFAULTS) -> RepoConfig:
    """The configuration of the base commit; an uncommitted one in the work tree is not read. Raises ConfigError."""
    entry = inspected.tree.entries().get(SOURCE)
    if entry is None:
        return operator.apply_to(RepoConfig())
    if not entry.mode.startswith("100"):
        raise ConfigError(f"{SOURCE} is not a regular file.", hint="Commit it as a file, not as a symlink.")
    return operator.apply_to(parse_config(inspected.tree.read(SOURCE)))


def effective_budget(options: FixOptions, budget: Budget, *, extra_to: Budget) -> Budget:
    """The budget from the command line, else `budget`.

    `+3` is added to `extra_to`: what a job had that is paused at a limit, else what a new one gets, so that repeating
    the command of a job that was interrupted, or paused by an outage, adds nothing.
    """
    given: dict[str, int | float] = {}
    if options.budget is not None:
        amount = parse_usd(options.budget, current=extra_to.usd)
        given["usd"] = max(amount, budget.usd) if options.budget.strip().startswith("+") else amount
    if options.max_steps is not None:
        given["steps"] = _positive("--max-steps", options.max_steps)
    if options.max_minutes is not None:
        given["minutes"] = _positive("--max-minutes", options.max_minutes)
    return budget.model_copy(update=given)


def _positive(option: str, number: float) -> float:
    if not 0 < number < float("inf"):
        raise AgentFixError(f"{option} must be a positive number, not {number}.")
    return number


def work_key(job: Job) -> str:
    """A key that is equal for commands that request the same work; limits and output paths may differ."""
    task = job.task
    work = [
        task.repository,
        task.issue.model_dump(exclude={"milestone"}),
        task.base,
        task.kind,
        task.fixed_by,
        task.prompt,
    ]
    work += [[path.path for path in task.allowed_paths], [image.digest for image in task.images]]
    work += [job.change] if job.change else []
    how = [job.model, job.models.model_dump(), job.reasoning, job.runner, job.sandbox, job.attempts]
    if job.aim != "fix":
        how.append(job.aim)
    return hashlib.sha256(json.dumps([work, how, job.plan_mode, job.plan_file]).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class LocalJobDraft:
    """What a new job is made from."""

    options: FixOptions
    settings: Settings
    inspected: RepositoryInspection
    config: RepoConfig
    issue: Issue
    image_collection: ImageCollection = field(default_factory=ImageCollection)
    change: str = ""
    """The full id of the commit to verify."""

    def job(self, *, plan_file: str, budget: Budget) -> Job:
        options, config, task, models = self.options, self.config, self._task(), self._models()
        return Job(
            id=new_job_id(),
            task=task,
            branch=config.branch_for(slug=task.slug, number=task.issue.number),
            budget=budget,
            model=models.code,
            models=models.model_copy(update={"code": ""}),
            reasoning=options.reasoning or ("" if options.model else config.reasoning or ""),
            runner=self._runner(),
            sandbox=options.sandbox or self.settings.sandbox,
            plan_mode=options.plan_mode or config.plan,
            plan_file=plan_file,
            aim=options.aim,
            change=self.change,
            attempts=_attempts(options.attempts),
            created_at=datetime.now(UTC).replace(microsecond=0),
        )

    def _task(self) -> Task:
        prompt = (
            requested_prompt(self.options.prompt, read_overrides(self.inspected.tree)) if self.options.prompt else None
        )
        kind = self._kind(prompt)
        return Task(
            repository=str(self.inspected.root),
            issue=self.issue,
            base=self.inspected.base_commit,
            base_ref=self.inspected.base_ref,
            slug=slug(self.issue.title),
            kind=kind.kind,
            kind_reason=kind.reason,
            prompt=prompt.name if prompt else "",
            allowed_paths=tuple(map(_allowed, self.options.allow)),
            fixed_by=self._fix() if kind.kind == "tests" else "",
            images=tuple(self.image_collection.images),
            images_left_out=self.image_collection.notes,
        )

    def _kind(self, prompt: Override | None) -> KindDecision:
        options, issue = self.options, self.issue
        if options.fixed_by is None:
            name, kind = (prompt.name, prompt.kind) if prompt else ("", None)
            signals = TaskSignals(
                issue.title, labels=issue.labels, requested_kind=options.kind, prompt=name, prompt_kind=kind
            )
            return kind_of_change(kind_of(signals)) if self.change else kind_of(signals)
        if options.kind not in (None, "tests"):
            raise AgentFixError(f"--fixed-by is for tests of a fix and cannot be combined with --kind {options.kind}.")
        return KindDecision("tests", "the fix was named with `--fixed-by`")

    def _fix(self) -> str:
        """The full id of the fix that tests are to be written for; empty if none is known."""
        root, base, issue = self.inspected.root, self.inspected.base_commit, self.issue
        if self.options.fixed_by is not None:
            return requested_fix(root, base, self.options.fixed_by)
        return mentioned_fix(root, base, f"{issue.title}\n{issue.body}")

    def _runner(self) -> str:
        name = self.options.runner or self.config.runner or "native"
        find_recipe(name, self.settings.runners)  # an unknown one is refused here
        return name

    def _models(self) -> ModelNames:
        """Model names by precedence: the option, the repository, the environment. Each sets every kind of work."""
        if self.options.model:
            return ModelNames(code=self.options.model)
        if self.config.model is not None:
            return self.config.model.models
        if not self.settings.model:
            raise AgentFixError("No model is set.", hint=MODEL_HINT, code=ExitCode.MODEL)
        return self.settings.models.model_copy(update={"code": self.settings.model})


def _allowed(path: str) -> AllowedPath:
    try:
        return AllowedPath(path=allowed_path(path))
    except ValueError as error:
        raise AgentFixError(f"--allow {error}.") from None


def _attempts(number: int) -> int:
    if not 1 <= number <= MAX_ATTEMPTS:
        raise AgentFixError(f"--attempts must be between 1 and {MAX_ATTEMPTS}, not {number}.")
    return number


def _bring_fix(mirror: GitStore, root: Path, fix: str) -> None:
    """Fetch the fix and its parent, so that it can be shown and reverted."""
    if fix:
        mirror.fetch(root, fix)
        for parent in mirror.parents(fix)[:1]:
            mirror.fetch(root, parent)


def _read_plan(path: Path | None) -> str:
    """The plan file's text, checked to be a plan."""
    if path is None:
        return ""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise AgentFixError(f"The plan {path} cannot be read: {reason}.", code=ExitCode.PLAN_INVALID) from error
    parse_plan_file(text)
    return text


def _prepare_out(options: FixOptions, local_context: LocalContext, job: Job) -> Path:
    """Create the output directory, so that an unwritable one is noticed before anything costs money."""
    out = options.out.expanduser().resolve() if options.out else local_context.settings.state / "results" / job.id
    local_context.folder(out).prepare()
    return out


def _notes_about(issue: Issue) -> Iterator[str]:
    if issue.hidden_characters:
        yield f"{issue.hidden_characters} hidden characters were removed from the issue before anything read it."
    if (length := len(issue.body.strip())) > MAX_ISSUE_BODY:
        yield f"The issue has {length:,} characters; the agent was shown {MAX_ISSUE_BODY:,} from its beginning and end."
