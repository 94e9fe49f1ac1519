"""Runs a small task with a scripted model; how far an agent gets shows whether its version works.

installed ─► calls its model ─► runs commands, shows their output ─► changes the file ─► submits ─► ends.

If the agent can be interrupted: it gets a message and continues with what it knew.
"""

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from app.agent.base import Assignment, ReviewResult, RunnerEnding, Submission
from app.agent.external.agent_run import AgentRun
from app.agent.external.model_socket import ModelSocket
from app.agent.external.recipe import AgentRecipe
from app.agent.external.runner import ExternalRunner
from app.agent.external.selftest.scripted_model import INFO, ScriptedModel
from app.agent.external.start import SUBMISSION
from app.agent.native import RunnerContext
from app.core.errors import AgentFixError
from app.core.job import Budget, N, NoUserMessages, ProgressKind, UserMessage, UserMessages
from app.core.record import Record
from app.core.text import one_line
from app.core.tree import TreeEntry
from app.llm.base import ModelAnswer, ModelInfo, ModelRequest
from app.llm.ledger import DOLLAR, MemoryLedger
from app.sandbox.base import Sandbox
from app.sandbox.changes import baseline

SelftestAct = Literal[
    "was installed",
    "asked its model",
    "executed commands",
    "changed the file",
    "went on with its conversation",
    "handed in",
    "ended well",
]
PATH, BEFORE, AFTER = "sum.py", "def add(a, b):\n    return a - b\n", "def add(a, b):\n    return a + b\n"
HANDED_IN = Submission(summary="add adds.", reproduction="python3 -c 'from sum import add; assert add(2, 2) == 4'")
WAIT = "sleep 1000"
SHORT = 480
"""Characters of a reason, for a line in a table."""
BUDGET = Budget(minutes=10, steps=20)
BRIEF = f"# add subtracts\n\n`add` in {PATH} subtracts. Make it add."


class SelftestResult(Record):
    """How far it got. `stopped_at` is empty if it passed; `reason` is one sentence for people."""

    stopped_at: SelftestAct | Literal[""] = ""
    reason: str = ""
    seconds: float = 0.0
    calls: int = 0

    @property
    def passed(self) -> bool:
        return not self.stopped_at


@dataclass(frozen=True, slots=True)
class SelftestScript:
    """`nonce` is in a file that only a command shows: an agent that reports it has run the command."""

    nonce: str = field(default_factory=lambda: secrets.token_hex(8))
    note: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def files(self) -> Mapping[str, bytes]:
        return {PATH: BEFORE.encode(), "NOTES": f"{self.nonce}\n".encode()}

    @property
    def commands(self) -> tuple[str, ...]:
        fix = f"sed -i 's/a - b/a + b/' {PATH}"
        return ("cat NOTES", fix, f"cat > {SUBMISSION} <<'EOF'\n{HANDED_IN.model_dump_json()}\nEOF")

    def fill(self, directory: Path) -> None:
        for path, content in self.files.items():
            (directory / path).write_bytes(content)


async def run_selftest(recipe: AgentRecipe, sandbox: Sandbox, socket: Path, script: SelftestScript) -> SelftestResult:
    """Run the task in a sandbox with the agent's programs and `socket` as its way out."""
    model, files = ScriptedModel(script.commands), _SelftestTree(script.files)
    interrupter: UserMessages = Interrupter(model, script) if recipe.again else NoUserMessages()
    context = RunnerContext(
        budgeted_model=_NoModel(),
        sandbox=sandbox,
        baseline=baseline(files),
        journal=_NoJournal(),
        blobs=(blobs := _MemoryBlobs()),
        progress=_NoProgress(),
        budget=BUDGET,
        user_messages=interrupter,
    )
    runner = ExternalRunner(recipe, context, ModelSocket(socket, model, MemoryLedger(DOLLAR)))
    try:
        ending = await runner.work(Assignment(brief=BRIEF), _accept)
    except AgentFixError as error:
        return SelftestResult(stopped_at="asked its model", reason=shortened(error.message))
    stopped = _stopped_at(model, script, runner.runs, blobs)
    return SelftestResult(
        stopped_at=stopped,
        reason=_reason(runner.runs[-1], ending) if stopped else "",
        seconds=round(sum(done.seconds for done in runner.runs), 3),
        calls=sum(done.turns for done in runner.runs),
    )


@dataclass(slots=True)
class Interrupter:
    """Sends a message to an agent in the middle of a very long command."""

    model: ScriptedModel
    script: SelftestScript
    words: tuple[UserMessage, ...] = ()

    def __post_init__(self) -> None:
        self.model.commands = (*self.script.commands[:-1], WAIT)

    async def since(self, seq: int) -> tuple[UserMessage, ...]:
        if not self.words and self.model.commands_requested == len(self.script.commands):
            self.words = (UserMessage(seq=1, author="agent-fix", text=f"Do not wait, hand it in. {self.script.note}"),)
            self.model.begin(self.script.commands[-1:])
        return tuple(message for message in self.words if message.seq > seq)


async def _accept(_: Submission) -> ReviewResult:
    return ReviewResult(accepted=True)


def _stopped_at(
    model: ScriptedModel, script: SelftestScript, runs: Sequence[AgentRun], blobs: "_MemoryBlobs"
) -> SelftestAct | Literal[""]:
    """The first step without proof that it happened."""
    last = runs[-1]
    files = {state.path: state.digest and blobs.get(state.digest) for state in last.checkpoint.files}
    acts: dict[SelftestAct, bool] = {
        "asked its model": bool(model.bodies),
        "executed commands": script.nonce in model.observe(0),
        "changed the file": files == {PATH: AFTER.encode()},
        "went on with its conversation": len(runs) == 1 or _continued(model, script, last),
        "handed in": last.submission == HANDED_IN,
        "ended well": last.exit_code == 0,
    }
    return next((act for act, happened in acts.items() if not happened), "")


def _continued(model: ScriptedModel, script: SelftestScript, run: AgentRun) -> bool:
    """True if it knows both what only its first start saw and the later message."""
    requests = model.observe(1)
    return run.again and script.nonce in requests and script.note in requests


def _reason(run: AgentRun, ending: RunnerEnding) -> str:
    refused = next((exchange.refused for exchange in run.exchanges if exchange.refused), "")
    if refused:
        return f"A call was refused: {refused}"
    output = " ".join(run.output.split())[-300:]
    return ending.reason or f"Exit code {run.exit_code}. Its output: {output}"


def shortened(text: str) -> str:
    """A shortened sentence and explanation; the end is kept because it says most."""
    line = one_line(text)
    return line if len(line) <= SHORT else f"{line[: SHORT // 3]} … {line[-SHORT * 2 // 3 :]}"


@dataclass(frozen=True, slots=True)
class _SelftestTree:
    """An `app.core.tree.Tree` of a few plain files."""

    files: Mapping[str, bytes]
    commit: str = "0" * 40

    def entries(self) -> Mapping[str, TreeEntry]:
        return {path: self._entry(content) for path, content in sorted(self.files.items())}

    def gitlinks(self) -> Mapping[str, str]:
        return {}

    def read(self, path: str) -> bytes:
        return self.files[path]

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        return {path: self.files[path] for path in paths if path in self.files}

    def _entry(self, content: bytes) -> TreeEntry:
        oid = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        return TreeEntry("100644", oid, len(content))


class _NoJournal:
    """An interrupted self-test starts again from the beginning."""

    def on_resume(self, restore: Callable[[], Awaitable[None]]) -> None:
        """There is nothing to resume."""

    async def step(self, name: str, kind: type[N], work: Callable[[], Awaitable[N]]) -> N:
        return await work()


class _MemoryBlobs:
    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    def put(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        self._kept[digest] = content
        return digest

    def get(self, digest: str) -> bytes:
        return self._kept[digest]


class _NoProgress:
    def report(self, kind: ProgressKind, text: str) -> None:
        """Nobody watches."""


class _NoModel:
    """Another agent makes its own calls; this budget is never used."""

    info: ModelInfo = INFO

    async def ask(self, key: str, request: ModelRequest) -> ModelAnswer:
        raise AssertionError("another agent asks through the gateway")
