"""A small task for any agent, with a model that knows it by heart: how far it comes tells whether this version works.

installed ─► asks its model ─► executes commands, shows their output ─► changes the file ─┬─► hands in ─► ends
           where it can be: interrupted, told something, and it goes on with what it knew ┘
"""

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from app.errors import AgentFixError
from app.job import Budget, Heard, N, ProgressKind, Silence, Steering
from app.model.base import Answer, ModelInfo, Request
from app.model.budget import DOLLAR, MemoryLedger
from app.noun import Noun
from app.runners.base import Assignment, Ending, Review, Submission
from app.runners.native import Surroundings
from app.runners.outside import OutsideRunner
from app.runners.recipe import Recipe
from app.runners.rehearsal.prompter import INFO, Prompter
from app.runners.round import Round
from app.runners.start import SUBMISSION
from app.runners.way_out import WayOut
from app.sandbox.base import Sandbox
from app.sandbox.changes import baseline
from app.text import one_line
from app.tree import Entry

Act = Literal[
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


class Rehearsed(Noun):
    """How far it came. `stopped_at` is empty where it passed; `reason` is one sentence for people."""

    stopped_at: Act | Literal[""] = ""
    reason: str = ""
    seconds: float = 0.0
    calls: int = 0

    @property
    def passed(self) -> bool:
        return not self.stopped_at


@dataclass(frozen=True, slots=True)
class Play:
    """`nonce` stands in a file that only a command shows: who tells the model of it has executed one."""

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


async def rehearse(recipe: Recipe, sandbox: Sandbox, socket: Path, play: Play) -> Rehearsed:
    """In a sandbox that shows the agent's programs, and `socket` as its way out."""
    model, files = Prompter(play.commands), _Files(play.files)
    heckler: Steering = Heckler(model, play) if recipe.again else Silence()
    around = Surroundings(
        meter=_Nobody(),
        sandbox=sandbox,
        baseline=baseline(files),
        journal=_NoJournal(),
        blobs=(blobs := _Blobs()),
        progress=_Quiet(),
        budget=BUDGET,
        steering=heckler,
    )
    runner = OutsideRunner(recipe, around, WayOut(socket, model, MemoryLedger(DOLLAR)))
    try:
        ending = await runner.work(Assignment(brief=BRIEF), _accept)
    except AgentFixError as error:
        return Rehearsed(stopped_at="asked its model", reason=in_short(error.message))
    stopped = _stopped_at(model, play, runner.rounds, blobs)
    return Rehearsed(
        stopped_at=stopped,
        reason=_reason(runner.rounds[-1], ending) if stopped else "",
        seconds=round(sum(done.seconds for done in runner.rounds), 3),
        calls=sum(done.turns for done in runner.rounds),
    )


@dataclass(slots=True)
class Heckler:
    """Speaks to an agent in the middle of a command that would take longer than anybody waits."""

    model: Prompter
    play: Play
    words: tuple[Heard, ...] = ()

    def __post_init__(self) -> None:
        self.model.commands = (*self.play.commands[:-1], WAIT)

    async def since(self, seq: int) -> tuple[Heard, ...]:
        if not self.words and self.model.said == len(self.play.commands):
            self.words = (Heard(seq=1, who="agent-fix", text=f"Do not wait, hand it in. {self.play.note}"),)
            self.model.begin(self.play.commands[-1:])
        return tuple(said for said in self.words if said.seq > seq)


async def _accept(_: Submission) -> Review:
    return Review(accepted=True)


def _stopped_at(model: Prompter, play: Play, rounds: Sequence[Round], blobs: "_Blobs") -> Act | Literal[""]:
    """The first act that cannot be shown to have been played."""
    last = rounds[-1]
    left = {state.path: state.digest and blobs.get(state.digest) for state in last.checkpoint.files}
    acts: dict[Act, bool] = {
        "asked its model": bool(model.bodies),
        "executed commands": play.nonce in model.heard(0),
        "changed the file": left == {PATH: AFTER.encode()},
        "went on with its conversation": len(rounds) == 1 or _went_on(model, play, last),
        "handed in": last.submission == HANDED_IN,
        "ended well": last.exit_code == 0,
    }
    return next((act for act, played in acts.items() if not played), "")


def _went_on(model: Prompter, play: Play, done: Round) -> bool:
    """It knows what only its first start has seen, and what it was told since."""
    heard = model.heard(1)
    return done.again and play.nonce in heard and play.note in heard


def _reason(done: Round, ending: Ending) -> str:
    refused = next((exchange.refused for exchange in done.exchanges if exchange.refused), "")
    if refused:
        return f"A call was refused: {refused}"
    said = " ".join(done.output.split())[-300:]
    return ending.reason or f"Exit code {done.exit_code}. It said: {said}"


def in_short(text: str) -> str:
    """A sentence and its explanation, of which the end is what tells most."""
    line = one_line(text)
    return line if len(line) <= SHORT else f"{line[: SHORT // 3]} … {line[-SHORT * 2 // 3 :]}"


@dataclass(frozen=True, slots=True)
class _Files:
    """`app.tree.Tree` of a few plain files."""

    files: Mapping[str, bytes]
    commit: str = "0" * 40

    def entries(self) -> Mapping[str, Entry]:
        return {path: self._entry(content) for path, content in sorted(self.files.items())}

    def read(self, path: str) -> bytes:
        return self.files[path]

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        return {path: self.files[path] for path in paths if path in self.files}

    def _entry(self, content: bytes) -> Entry:
        oid = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        return Entry("100644", oid, len(content))


class _NoJournal:
    """A rehearsal that is interrupted is begun anew."""

    recovering = False

    def first(self, restore: Callable[[], Awaitable[None]]) -> None:
        """There is nothing to go on from."""

    async def step(self, name: str, kind: type[N], work: Callable[[], Awaitable[N]]) -> N:
        return await work()


class _Blobs:
    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    def put(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        self._kept[digest] = content
        return digest

    def get(self, digest: str) -> bytes:
        return self._kept[digest]


class _Quiet:
    def say(self, kind: ProgressKind, text: str) -> None:
        """Nobody watches."""


class _Nobody:
    """Another agent words its own calls; of our own meter it has none."""

    info: ModelInfo = INFO

    async def ask(self, key: str, request: Request) -> Answer:
        raise AssertionError("another agent asks through the gateway")
