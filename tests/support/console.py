"""The `agent-fix` command as a user runs it: its own process, home and environment, and its output as a value."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.support.recorded_answers import RecordedAnswers
from tests.support.repositories import git

SCRIPT = Path(sys.executable).with_name("agent-fix")
LONGEST = 240


@dataclass(frozen=True)
class ConsoleResult:
    """A command that ended. The files are those that it left in OUT."""

    code: int
    stdout: str
    stderr: str
    out: Path

    @property
    def said(self) -> str:
        return f"{self.stdout}\n{self.stderr}"

    @cached_property
    def job(self) -> Any:
        return json.loads((self.out / "job.json").read_text("utf-8"))

    @property
    def verification(self) -> Any:
        return self.job["verification"]

    @cached_property
    def pull_request(self) -> str:
        return (self.out / "pull-request.md").read_text("utf-8")

    @cached_property
    def steps(self) -> list[Any]:
        """The trajectory."""
        return [json.loads(line) for line in (self.out / "trajectory.jsonl").read_text("utf-8").splitlines()]

    def observation(self, step: int, action: int = 0) -> str:
        """What the model was shown of an action; steps count from 1."""
        text: str = self.steps[step - 1]["actions"][action]["observation"]
        return text


class Console:
    """Commands over one state directory below `place`; nothing of this machine's home or environment is seen."""

    def __init__(self, place: Path, environment: Mapping[str, str] | None = None) -> None:
        self.place = place
        self.state = place / "state"
        self.out = place / "out"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(place / "home"),
            "LC_ALL": "C.UTF-8",
            **(environment or {}),
        }
        (place / "home").mkdir(parents=True, exist_ok=True)

    def execute(self, *arguments: str | Path, stdin: bytes = b"", directory: Path | None = None) -> ConsoleResult:
        done = subprocess.run(
            [SCRIPT, *arguments],
            input=stdin,
            capture_output=True,
            env=self.environment,
            cwd=directory or self.place,
            timeout=LONGEST,
            check=False,
        )
        finished = ConsoleResult(done.returncode, done.stdout.decode(), done.stderr.decode(), self.out)
        assert "Traceback (most recent call last)" not in finished.stderr, finished.stderr
        return finished

    def fix(
        self, repository: Path, issue: str | Path, *options: str | Path, recording: RecordedAnswers | None = None
    ) -> ConsoleResult:
        """`agent-fix fix`; an issue given as text is written to a file, a recording is the model."""
        return self.execute(*self.fix_arguments(repository, issue, *options, recording=recording))

    def fix_arguments(
        self, repository: Path, issue: str | Path, *options: str | Path, recording: RecordedAnswers | None = None
    ) -> Sequence[str | Path]:
        if isinstance(issue, str):
            path = self.place / "issue.md"
            path.write_text(issue, "utf-8")
            issue = path
        arguments: list[str | Path] = ["fix", "--repo", repository, "--issue", issue]
        arguments += [] if "--state" in options else ["--state", self.state]
        arguments += [] if "--out" in options else ["--out", self.out]
        if recording is not None:
            arguments += ["--model", f"recorded/{recording.save(self.place / 'recording.jsonl')}"]
        return [*arguments, *options]

    def verify(self, repository: Path, *options: str | Path, recording: RecordedAnswers) -> ConsoleResult:
        """`agent-fix verify`."""
        model = f"recorded/{recording.save(self.place / 'recording.jsonl')}"
        where = ("--repo", repository, "--state", self.state, "--out", self.out, "--model", model)
        return self.execute("verify", *where, *options)

    def calls_bought(self) -> int:
        """Model calls that were booked, by the ledger in the state directory."""
        return self.rows("calls")

    def rows(self, *tables: str) -> int:
        """How many rows these tables of the state directory have together."""
        database = self.state / "agent-fix.db"
        if not database.exists():
            return 0
        with closing(sqlite3.connect(database)) as connection:
            return sum(connection.execute(f"select count(*) from {table}").fetchone()[0] for table in tables)


def branches(repository: Path) -> list[str]:
    return git(repository, "for-each-ref", "--format=%(refname:short)", "refs/heads").splitlines()
