"""A small project with a bug, its issue, a model's scripted answers, and the real command over them."""

import json
import os
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.openai_endpoint import Reply, answer
from tests.support.repositories import commit_files, git, make_repository
from tests.support.written_examples import example

PROGRAM = Path(sys.executable).with_name("agent-fix")
TIMEOUT = 120.0
"""Seconds after which something hangs, however slow the machine."""

PROJECT = {
    "money.py": "def split(total, people):\n    share = total // people\n    return [share] * people\n",
    "CHANGES.txt": "first release\n",
    "tests/__init__.py": "",
    "tests/test_money.py": (
        "import unittest\n\nfrom money import split\n\n\n"
        "class TestSplit(unittest.TestCase):\n"
        "    def test_even(self):\n        self.assertEqual(split(100, 4), [25, 25, 25, 25])\n"
    ),
}
ISSUE = "# split loses cents\n\n`split(100, 3)` gives `[33, 33, 33]`: one cent is lost.\n"
PLAN = {
    "summary": "split drops the remainder",
    "files": ["money.py"],
    "steps": ["give the remainder to the first people"],
}
FIXED = "    extra = total - share * people\n    return [share + 1] * extra + [share] * (people - extra)\n"
TESTED = "25, 25, 25, 25])\n\n    def test_remainder(self):\n        self.assertEqual(split(100, 3), [34, 33, 33])\n"

HOLD = "until [ -e /tmp/gate ]; do sleep 0.05; done"
"""A command that waits inside until it is let go from here: a sandbox's /tmp is a directory of ours."""

Call = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ScriptedReplies:
    """One answer of the model, under the name of the durable step that asks for it."""

    key: str
    content: str = ""
    calls: Sequence[Call] = ()


def bash(command: str) -> Call:
    return "bash", {"command": command}


def submit(reproduction: str = "python3 -m unittest tests.test_money.TestSplit.test_remainder") -> Call:
    return "submit", {"summary": "Give the remainder to the first people.", "reproduction": reproduction}


_QUOTE = "one cent is lost"
_IMPORTS = "from money import split"
EXAMPLES = (
    example("split(100, 3)", "[34, 33, 33]", "No cent of the reported sum is lost.", _QUOTE, _IMPORTS),
    example("sum(split(1000, 7))", "1000", "Shares of any sum come to that sum.", _QUOTE, _IMPORTS),
    example("sorted(split(56, 11))", "[5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 6]", "Shares are alike.", _QUOTE, _IMPORTS),
    example("split(707, 1)", "[707]", "One person gets everything.", imports=_IMPORTS),
)
COUNTER = example("split(2, 3)", "[1, 1, 0]", "More people than cents get a cent each.", _QUOTE, _IMPORTS)


ANSWERS = (
    ScriptedReplies("plan.1", "", [("plan", {"examples": EXAMPLES, **PLAN})]),
    ScriptedReplies("turn.1", "Look.", [("view", {"path": "money.py"}), bash("cat CHANGES.txt")]),
    ScriptedReplies(
        "turn.2",
        "Edit.",
        [
            ("edit", {"path": "money.py", "old_text": "    return [share] * people\n", "new_text": FIXED}),
            ("edit", {"path": "tests/test_money.py", "old_text": "25, 25, 25, 25])\n", "new_text": TESTED}),
        ],
    ),
    ScriptedReplies(
        "turn.3", "Tell.", [bash("echo one more cent >> CHANGES.txt"), bash("echo and no less >> CHANGES.txt")]
    ),
    ScriptedReplies("turn.4", "Test.", [bash("python3 -m unittest discover")]),
    ScriptedReplies("turn.5", "Submit.", [submit()]),
    ScriptedReplies("review.1", "", [("counter", {"examples": [COUNTER]})]),
)
"""Turn 3 is not to be done twice: it appends."""


def with_turn(key: str, *calls: Call) -> tuple[ScriptedReplies, ...]:
    """The answers with other calls in one turn."""
    return tuple(ScriptedReplies(key, said.content, calls) if said.key == key else said for said in ANSWERS)


def replies(answers: Sequence[ScriptedReplies] = ANSWERS) -> list[Reply]:
    """The answers as an endpoint sends them, but for the reviewer's."""
    return [
        answer(said.content, tools=[(c["id"], c["name"], c["arguments"]) for c in _calls(said)])
        for said in answers
        if not said.key.startswith("review")
    ]


def _calls(said: ScriptedReplies) -> list[dict[str, str]]:
    return [
        {"id": f"{said.key}-{number}", "name": name, "arguments": json.dumps(arguments)}
        for number, (name, arguments) in enumerate(said.calls, 1)
    ]


@dataclass
class CliJob:
    """Everything of one job below one directory, whose name is found nowhere else on the machine."""

    root: Path
    answers: Sequence[ScriptedReplies] = ANSWERS
    config: str = ""
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.directory = self.root / f"w{uuid.uuid4().hex}"
        self.repository, self.issue = self.directory / "project", self.directory / "issue.md"
        self.state, self.out = self.directory / "state", self.directory / "out"
        self.recording = self.directory / "answers.jsonl"
        make_repository(self.repository, PROJECT)
        if self.config:
            commit_files(self.repository, {".github/agent-fix.yml": self.config})
        self.issue.write_text(ISSUE)
        (self.directory / "home").mkdir()
        self.record(self.answers)

    def record(self, answers: Sequence[ScriptedReplies], *, dollars_per_million: int = 0) -> None:
        """Make these the recorded model's answers; each is said to have cost a tenth of a cent."""
        price = dollars_per_million * 1_000_000
        header = {"recording": 1, "model": "scripted", "input_price": price, "output_price": price}
        lines: list[dict[str, Any]] = [header]
        for said in answers:
            calls = _calls(said)
            usage = {"prompt_tokens": 1000, "completion_tokens": 50, "cost": 1000}
            finish = "tool_calls" if calls else "stop"
            told = {"content": said.content, "tool_calls": calls, "finish_reason": finish, "usage": usage}
            lines.append({"key": said.key, "answer": told})
        self.recording.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    def begin(
        self,
        *options: str,
        failpoint: str = "",
        model: str = "",
        stdin: int = subprocess.DEVNULL,
        verb: str = "fix",
    ) -> subprocess.Popen[str]:
        """`agent-fix fix` under way, with a console that is read by us. It leads a process group of its own."""
        where = ("--repo", str(self.repository), "--issue", str(self.issue), "--out", str(self.out))
        command = (verb, *where, "--model", model or f"recorded/{self.recording}", *options)
        return self._start(command, {"AGENT_FIX_FAILPOINT": failpoint}, stdin=stdin)

    def fix(self, *options: str, failpoint: str = "", model: str = "") -> "CommandEnd":
        return ended(self.begin(*options, failpoint=failpoint, model=model))

    def reproduce(self, *options: str) -> "CommandEnd":
        return ended(self.begin(*options, verb="reproduce"))

    def jobs(self, *arguments: str) -> "CommandEnd":
        return ended(self.begin_jobs(*arguments))

    def begin_jobs(self, *arguments: str) -> subprocess.Popen[str]:
        return self._start(("jobs", *arguments), {})

    def _start(
        self, command: Sequence[str], more: Mapping[str, str], stdin: int = subprocess.DEVNULL
    ) -> subprocess.Popen[str]:
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.directory / "home"),
            "AGENT_FIX_STATE_DIR": str(self.state),
            **self.environment,
            **more,
        }
        return subprocess.Popen(
            [PROGRAM, *command],
            env=environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    @property
    def document(self) -> dict[str, Any]:
        """`job.json`."""
        loaded: dict[str, Any] = json.loads((self.out / "job.json").read_text())
        return loaded

    @property
    def branches(self) -> list[str]:
        names = git(self.repository, "for-each-ref", "--format=%(refname:short)", "refs/heads/agent-fix/")
        return names.split()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What our own tables hold."""
        with closing(sqlite3.connect(self.state / "agent-fix.db")) as db:
            return db.execute(query).fetchall()

    @property
    def job(self) -> str:
        """The id of the newest job."""
        return str(self.rows("SELECT id FROM jobs ORDER BY created_at DESC, id DESC")[0][0])

    def running(self) -> list[str]:
        """Processes that have something of this directory: as an argument, in their environment, or as a mount."""
        mark, found = self.directory.name.encode(), []
        for process in Path("/proc").glob("[0-9]*"):
            told = b" ".join(_read(process / name) for name in ("cmdline", "environ", "mountinfo"))
            if mark in told:
                found.append(f"{process.name} {_read(process / 'cmdline')!r}")
        return found

    def is_held(self) -> bool:
        """Whether a command inside waits at HOLD."""
        return any("/tmp/gate" in process for process in self.running())

    def let_go(self) -> None:
        """Let what waits at HOLD go on, in every sandbox there is."""
        for pattern in ("sandboxes/*/tmp", "caches/setup/*/tmp"):
            for inside in self.state.glob(pattern):
                with suppress(FileNotFoundError):  # it has just been removed
                    (inside / "gate").touch()

    def assert_quiet(self) -> None:
        """Nothing is left running: neither a process nor what would keep a mount."""
        assert wait_until(lambda: not self.running()), self.running()


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """A command that is over; `text` is all it printed."""

    code: int
    text: str


def ended(process: subprocess.Popen[str], *, within: float = TIMEOUT) -> CommandEnd:
    """Read a command to its end. Its whole process group is killed where it hangs."""
    try:
        text, _ = process.communicate(timeout=within)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        text, _ = process.communicate()
        raise AssertionError(f"it hangs:\n{text}") from None
    return CommandEnd(process.returncode, text)


def wait_until(holds: Callable[[], bool], *, within: float = 30.0) -> bool:
    """Look until something holds, or for as long as is reasonable on a slow machine."""
    deadline = time.monotonic() + within
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended, or is another user's
        return b""
