"""`from app import fix`: fixes an issue from a Python program; the job works in a process of its own.

That process ends with the call, and stops with the program. So a job behaves as one that was started at a terminal:
the same call again continues an interrupted job.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from app.config.settings import process_environment
from app.core.errors import AgentFixError, ExitCode
from app.core.job import ProgressKind
from app.core.model_usage import Totals
from app.core.plan import Plan
from app.core.verification import Verification

RESULT = "job.json"


@dataclass(frozen=True, slots=True)
class FixSettings:
    """The options of `agent-fix fix`, by the same names; what is not given is the command's default."""

    model: str | None = None
    reasoning: str | None = None
    runner: str | None = None
    sandbox: str | None = None
    budget: str | None = None
    base: str | None = None
    kind: str | None = None
    prompt: str | None = None
    allow: tuple[str, ...] = ()
    fixed_by: str | None = None
    attempts: int | None = None
    images: bool = False
    max_steps: int | None = None
    max_minutes: float | None = None
    plan: Path | None = None
    """At most one of the three about the plan; the command's `--approve` asks at a terminal."""
    plan_only: bool = False
    no_plan: bool = False
    restart: bool = False
    record: Path | None = None
    state: Path | None = None

    def as_arguments(self) -> list[str]:
        """As options of the command line."""
        words = []
        for field in fields(self):
            option, value = f"--{field.name.replace('_', '-')}", getattr(self, field.name)
            if isinstance(value, bool):
                words += [option] if value else []
            elif value is not None:
                values = value if isinstance(value, tuple) else (value,)
                words += [f"{option}={each.absolute() if isinstance(each, Path) else each}" for each in values]
        return words


@dataclass(frozen=True, slots=True)
class FixProgress:
    """One event of a job: a line of its log, or a fragment of what the model writes (`text`)."""

    kind: ProgressKind
    text: str


@dataclass(frozen=True, slots=True)
class FixOutcome:
    """How a job ended. `out` holds the rendered pull request, the result and the trajectory."""

    exit_code: ExitCode
    exit_status: str
    """`branch_made`, or one of a job's other final states."""
    verdict: str
    """Empty if nothing was verified."""
    branch: str
    reason: str
    plan: Plan | None
    verification: Verification | None
    usage: Totals
    out: Path

    @property
    def proved(self) -> bool:
        """True if the verdict is `proved` or `tested`."""
        return self.exit_code is ExitCode.OK


def fix(
    repository: Path | str,
    issue: str,
    options: FixSettings | None = None,
    *,
    out: Path | None = None,
    on_progress: Callable[[FixProgress], None] | None = None,
    environment: Mapping[str, str] | None = None,
) -> FixOutcome:
    """Fix an issue in a local git repository; its text begins with the title. Blocks until the job ends.

    The branch is left in the repository. `on_progress` is called in this thread. Raises AgentFixError if nothing could
    be started, or if the job's process was killed. `environment` replaces this process's, for the model's key.
    """
    place = out or Path(tempfile.mkdtemp(prefix="agent-fix-"))
    (place / RESULT).unlink(missing_ok=True)  # of an earlier job
    reading, writing = os.pipe()
    words = [sys.executable, "-I", "-m", "app", "fix", "--json", f"--repo={Path(repository).absolute()}", "--issue=-"]
    words += [f"--out={place.absolute()}", f"--events={writing}", *(options or FixSettings()).as_arguments()]
    values = dict(environment) if environment is not None else process_environment()
    with tempfile.TemporaryFile() as text, tempfile.TemporaryFile() as printed:
        text.write(issue.encode())
        text.seek(0)
        process = subprocess.Popen(
            words, stdin=text, stdout=subprocess.DEVNULL, stderr=printed, env=values, pass_fds=(writing,), cwd="/"
        )
        os.close(writing)
        try:
            with os.fdopen(reading, encoding="utf-8") as lines:
                for line in lines:
                    if on_progress is not None:
                        on_progress(FixProgress(**json.loads(line)))
            ended = process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        if ended < 0:
            message = f"The job's process was ended by signal {-ended}."
            raise AgentFixError(message, hint="The same call continues the job.", code=ExitCode.INTERRUPTED)
        printed.seek(0)
        return _outcome(ExitCode(ended), place, printed.read().decode("utf-8", "replace"))


def _outcome(code: ExitCode, place: Path, printed: str) -> FixOutcome:
    stored = place / RESULT
    if not stored.exists():
        raise AgentFixError(printed.strip().removeprefix("agent-fix: ") or "The job ended without a result.", code=code)
    found = cast("dict[str, Any]", json.loads(stored.read_text("utf-8")))
    plan, verification = found["plan"], found["verification"]
    return FixOutcome(
        exit_code=code,
        exit_status=found["exit_status"],
        verdict=verification["verdict"] if verification else "",
        branch=found["branch"],
        reason=found["reason"],
        plan=Plan.model_validate(plan) if plan else None,
        verification=Verification.model_validate(verification) if verification else None,
        usage=Totals.model_validate(found["usage"]),
        out=place,
    )
