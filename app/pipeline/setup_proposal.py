"""Asks a model once how a project is set up, if no candidate from its files lets the tests pass."""

from collections.abc import Awaitable, Callable, Sequence

from app.agent.actions import MalformedError, read_object
from app.agent.prompts import render
from app.core.record import Record
from app.core.text import head_and_tail, one_line, plain
from app.core.tree import Tree
from app.llm.base import Message, ModelAnswer, ModelRequest
from app.sandbox.setup.ecosystems.base import ManifestFiles
from app.sandbox.setup.plan import is_manifest
from app.verify.candidates import Trial

MAX_COMMANDS = 12
_MAX_COMMAND_LENGTH = 2_000
_ANSWER_TOKENS = 2_000
_MAX_FILES = 12
_MAX_FILE_LENGTH = 2_500
_MAX_OUTPUT_LENGTH = 1_500
_MAX_PATHS = 150


class ProposedSetup(Record):
    """Commands as `setup:` and `test:` would have them."""

    setup: tuple[str, ...] = ()
    test: str


Ask = Callable[[ModelRequest], Awaitable[ModelAnswer]]


async def propose_setup(ask: Ask, tree: Tree, trials: Sequence[Trial]) -> ProposedSetup | None:
    """None if the answer has no test command. Raises ModelError or BudgetError if there is no answer."""
    messages = (Message(role="system", content=render("setup")), Message(role="user", content=_material(tree, trials)))
    schema = {
        "type": "object",
        "properties": {"setup": {"type": "array", "items": {"type": "string"}}, "test": {"type": "string"}},
        "required": ["setup", "test"],
        "additionalProperties": False,
    }
    request = ModelRequest(messages=messages, schema_name="setup", response_schema=schema, max_tokens=_ANSWER_TOKENS)
    return read_proposal((await ask(request)).content)


def read_proposal(text: str) -> ProposedSetup | None:
    """The commands in a model's answer; None if they cannot be used."""
    try:
        found = read_object(text)[0]
    except MalformedError:
        return None
    listed = found.get("setup")
    commands = [found.get("test"), *(listed if isinstance(listed, list) else [])]
    if not all(isinstance(command, str) and len(command) <= _MAX_COMMAND_LENGTH for command in commands):
        return None
    test, *setup = (plain(command).strip() for command in commands)
    if not test or "\n" in test or len(setup) > MAX_COMMANDS:
        return None
    return ProposedSetup(setup=tuple(filter(None, setup)), test=test)


def _material(tree: Tree, trials: Sequence[Trial]) -> str:
    """The tree's top, its manifests, and what was tried."""
    files = ManifestFiles(tree)
    shallow = sorted(files, key=lambda path: (path.count("/"), path))
    manifests = [path for path in shallow if is_manifest(path) and "lock" not in path][:_MAX_FILES]
    parts = [("Files", "\n".join(shallow[:_MAX_PATHS]))]
    parts += [(path, head_and_tail(files.text(path), _MAX_FILE_LENGTH)) for path in manifests]
    parts += [(f"Tried: {one_line(trial.candidate.reason)}", _outcome(trial)) for trial in trials]
    return "\n\n".join(f"# {title}\n\n{text}" for title, text in parts)


def _outcome(trial: Trial) -> str:
    suite = trial.candidate.suite
    output = trial.result.execution.excerpt if trial.result else ""
    count = f"{trial.count.passed} tests passed, {trial.count.failed} failed"
    return "\n".join(
        [f"`{suite.command}`: {count}." if suite else "", trial.reason, head_and_tail(output, _MAX_OUTPUT_LENGTH)]
    ).strip()
