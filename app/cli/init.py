"""`agent-fix init`: writes the workflow and the configuration that a repository on GitHub needs."""

import argparse
import asyncio
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

import app
from app.cli.local_context import LocalContext
from app.config.repository import SOURCE, parse_config
from app.config.settings import Settings, read_settings
from app.core.errors import AgentFixError, ExitCode, IssueError, OutputError
from app.core.issue_file import IssueAddress, where_issue
from app.core.model_usage import DOLLAR, parse_usd
from app.core.redaction import secret_part
from app.core.text import plain
from app.llm.providers import PROVIDERS, route
from app.repo.git_command import Git
from app.repo.inspection import RepositoryInspection, inspect, origin_url, top_level
from app.verify.detect import find_suite

WORKFLOW = ".github/workflows/agent-fix.yml"
IN_WORKFLOW = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY")
"""The keys that the workflow passes on as it is."""
DEFAULT_BUDGET = "5"
ALLOW_PULL_REQUESTS = "on GitHub: Settings, Actions, General: allow GitHub Actions to create and approve pull requests"


@dataclass(frozen=True, slots=True)
class RepositoryFacts:
    """What can be read off the repository and the environment."""

    root: Path
    branch: str
    commit: str
    github: IssueAddress | None
    """Where it is on GitHub, as the address of an issue there; None if `origin` is elsewhere or missing."""
    test: str
    present: frozenset[str]
    """Of the two files, those that the base commit or the work tree has."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What a person decides."""

    model: str
    budget: str
    api_base: str = ""
    """The address of a server that speaks OpenAI's protocol; empty for OpenAI's own."""


def init_command(arguments: argparse.Namespace) -> int:
    settings = read_settings(arguments.state)
    facts = inspect_repository(arguments.repo.expanduser().absolute(), settings)
    asks = not arguments.yes and not arguments.json and sys.stdin is not None and sys.stdin.isatty()
    choices = ask_for_choices(arguments, settings, asks=asks)
    files = {WORKFLOW: workflow_text(), SOURCE: configuration_text(choices, facts.test)}
    parse_config(files[SOURCE].encode())
    new = {path: text for path, text in files.items() if path not in facts.present}
    if arguments.pull_request:
        return _as_pull_request(arguments, settings, facts, choices, new)
    for path, text in new.items():
        write_file(facts.root, path, text.encode())
    written = list(new)
    steps = next_steps(facts, choices, written)
    if arguments.json:
        document = {"repository": str(facts.root), "written": written, "kept": sorted(facts.present), "next": steps}
        print(json.dumps({**document, "model": choices.model, "test": facts.test}, indent=2))
        return ExitCode.OK
    print("\n".join(f"written  {path}" for path in written))
    print("\n".join(f"kept     {path} (already exists)" for path in sorted(facts.present)))
    tests = (
        f"tests    {facts.test}"
        if facts.test
        else "tests    none found; `agent-fix setup` tries what the repository says"
    )
    print(f"{tests}\n\nNext:\n" + "\n".join(f"  {step}" for step in steps))
    return ExitCode.OK


def _as_pull_request(
    arguments: argparse.Namespace, settings: Settings, facts: RepositoryFacts, choices: Choices, new: Mapping[str, str]
) -> int:
    from app.cli.github import open_init_pull_request  # noqa: PLC0415  # needs the extra `github`

    if facts.github is None:
        hint = f"agent-fix is configured for {settings.github_url}; AGENT_FIX_GITHUB_URL names another server."
        raise AgentFixError("`origin` is not a repository on GitHub, so a pull request cannot be opened.", hint=hint)
    if not new:
        raise AgentFixError("Both files already exist; there is nothing to propose.", code=ExitCode.NO_CHANGE)
    steps = next_steps(facts, choices, ())
    store = LocalContext(settings).mirror(facts.root)
    opening = open_init_pull_request(settings, facts.github, store, (facts.branch, facts.commit), new, steps=steps)
    url = asyncio.run(opening)
    if arguments.json:
        print(json.dumps({"repository": str(facts.root), "pull_request": url, "proposed": sorted(new), "next": steps}))
    else:
        print(f"opened   {url}\n\nNext:\n" + "\n".join(f"  {step}" for step in steps))
    return ExitCode.OK


def inspect_repository(path: Path, settings: Settings) -> RepositoryFacts:
    """Raises RepositoryError if it is not a usable repository."""
    root = top_level(path)
    context = LocalContext(settings)
    context.prepare()
    inspected: RepositoryInspection = inspect(root, None, context.mirror(root))
    suite = find_suite(inspected.tree, None)
    try:
        address = where_issue("1", lambda: origin_url(Git("-C", str(root))))
    except IssueError:
        address = None
    committed = inspected.tree.entries()
    present = frozenset(name for name in (WORKFLOW, SOURCE) if name in committed or (root / name).exists())
    return RepositoryFacts(
        root=root,
        branch=inspected.base_ref.removeprefix("refs/heads/"),
        commit=inspected.base_commit,
        github=address if isinstance(address, IssueAddress) and address.is_on(settings.github_url) else None,
        test=suite.command if suite else "",
        present=present,
    )


def ask_for_choices(arguments: argparse.Namespace, settings: Settings, *, asks: bool) -> Choices:
    """From options, the environment and, on a terminal, questions. Raises AgentFixError without a model."""
    found = arguments.model or settings.model
    model = found or (_ask("Model (PROVIDER/NAME)", _default_model(settings.environment)) if asks else "")
    if not model:
        raise AgentFixError(
            "No model is set.", hint="Pass --model PROVIDER/NAME or set AGENT_FIX_MODEL.", code=ExitCode.MODEL
        )
    route(model, settings.environment)
    budget = arguments.budget or (_ask("Budget per job in dollars", DEFAULT_BUDGET) if asks else DEFAULT_BUDGET)
    parse_usd(budget)
    api_base = settings.environment.get("OPENAI_API_BASE", "") if model.startswith("openai/") else ""
    return Choices(model=model, budget=budget, api_base=api_base)


def configuration_text(choices: Choices, test: str) -> str:
    """The repository's configuration; everything in it can be left out."""
    values: dict[str, object] = {"model": choices.model, "budget": {"usd": parse_usd(choices.budget) / DOLLAR}}
    if test:
        values["test"] = test
    head = "# agent-fix reads this file from the default branch. Its keys: the manual's page on configuration.\n"
    return head + yaml.safe_dump(values, sort_keys=False, width=10_000)


def workflow_text() -> str:
    """The workflow as it is shipped: beside this module in a wheel, at the top of a checkout."""
    shipped = Path(__file__).with_name("workflow.yml")
    path = shipped if shipped.is_file() else Path(app.__file__).parents[1] / "workflows" / "agent-fix.yml"
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise AgentFixError("The workflow is missing from this installation.", code=ExitCode.INTERNAL) from error


def next_steps(facts: RepositoryFacts, choices: Choices, written: Sequence[str]) -> list[str]:
    """The commands that are left, in order, ready to be copied."""
    git = f"git -C {shlex.quote(str(facts.root))}"
    repository = plain(f"{facts.github.owner}/{facts.github.name}") if facts.github else ""
    where = f" --repo {shlex.quote(repository)}" if repository else ""
    provider = PROVIDERS.get(route(choices.model, {}).provider)
    key = provider.keys[0] if provider and provider.keys else ""
    steps = []
    if key:
        steps.append(f"gh secret set {key}{where}")
    if key and key not in IN_WORKFLOW:
        steps.append(f"# then add {key}=${{{{ secrets.{key} }}}} to `model-keys` in {WORKFLOW}")
    steps.append(f"gh variable set AGENT_FIX_MODEL --body {shlex.quote(choices.model)}{where}")
    if secret_part(choices.api_base):  # a variable would be shown in logs
        steps.append(f"gh secret set OPENAI_API_BASE{where}")
        steps.append(f"# then write secrets.OPENAI_API_BASE in place of vars.OPENAI_API_BASE in {WORKFLOW}")
    elif choices.api_base:
        steps.append(f"gh variable set OPENAI_API_BASE --body {shlex.quote(choices.api_base)}{where}")
    steps.append(f"gh label create agent-fix --force{where}")
    if facts.github is None:
        steps.insert(
            0, "# `origin` is not on GitHub: create a repository there, and run the `gh` commands in its checkout"
        )
        steps.append(f"# {ALLOW_PULL_REQUESTS}")
    else:
        api = shlex.quote(f"repos/{repository}/actions/permissions/workflow")
        steps.append(
            f"gh api -X PUT {api} -F can_approve_pull_request_reviews=true -f default_workflow_permissions=read"
        )
    if written:
        steps.append(f"{git} switch -c agent-fix-init && {git} add {' '.join(written)}")
        steps.append(f'{git} commit -m "Add agent-fix"')
    if written and facts.github:
        steps.append(f"{git} push -u origin agent-fix-init")
        steps.append(f"gh pr create --fill --base {shlex.quote(facts.branch)}{where}")
    steps.append("# once it is on the default branch, label an issue `agent-fix`")
    return steps


def _default_model(environment: Mapping[str, str]) -> str:
    """The beginning of a model's name, by the first provider whose key is in the environment."""
    return next((f"{name}/" for name, known in PROVIDERS.items() if any(map(environment.get, known.keys))), "")


def _ask(question: str, default: str) -> str:
    """One line from the terminal; the question is not part of what is printed on stdout."""
    print(f"{question}{f' [{default}]' if default else ''}: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() or default.removesuffix("/")


def write_file(root: Path, name: str, content: bytes) -> None:
    """Write a file of the work tree. Raises OutputError, also if a symlink leads out of it."""
    path = path_in(root, name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}.") from error


def path_in(root: Path, name: str) -> Path:
    """The path of a file of the work tree that may be written. Raises OutputError if it is a symlink, or leads outside
    through one, or cannot be written."""
    path = root / name
    try:
        if not path.parent.resolve().is_relative_to(root.resolve()) or path.is_symlink():
            raise OutputError(f"{name} is a symlink that leads outside the repository.", hint="Remove the symlink.")
        there = next(place for place in (path, *path.parents) if place.exists())
        is_usable = os.access(there, os.W_OK) and there.is_dir() == (there != path)
    except (OSError, RuntimeError) as error:  # the latter for a symlink to itself
        raise OutputError(f"{path} cannot be written: {error}.") from error
    if not is_usable:
        raise OutputError(f"{path} cannot be written: {there} is read-only or in the way.")
    return path
