"""Gates that run programs: the lint command and the gates that a repository configures, and the harness's own scan.

Configured gates must pass, or must not get worse. The scan reports bandit's findings in changed lines of Python, from
a separate process with limits that parses only. Its findings only warn: they are hints for a reader, and a static rule
must not stop a draft that people review anyway.
"""

import asyncio
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from app.config.repository import GateConfig
from app.core.patch import Patch
from app.core.scratch import scratch
from app.core.text import plain
from app.core.verification import Execution, GateResult
from app.verify.execution import CommandResult, run
from app.verify.gates.candidate import CandidatePatch, ChangedPath, displayed_path, gate
from app.verify.paths_of_tests import is_test_path
from app.verify.project import ProjectUnderTest
from app.verify.suite import could_not_start

Outcome = Literal["passed", "blocked", "warned"]
MAX_LINES = 10
# A number is not part of a word, a version or a time: not the 2 of `py2`, of `1.2.3`, or of `took 2s`.
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?!\w|\.\d)")


def last_number(output: str, metric: str | None = None) -> float | None:
    """The last number of the last line that has one and, if `metric` is given, contains that text."""
    for line in reversed(output.splitlines()):
        if (metric is None or metric in line) and (found := _NUMBER.findall(line.replace(metric or "\0", " "))):
            return float(found[-1].replace(",", ""))
    return None


@dataclass(frozen=True, slots=True)
class ConfiguredGates:
    """The gates of one job. What is measured on the base is measured once."""

    gates: tuple[GateConfig, ...]
    project: ProjectUnderTest
    _on_base: dict[str, CommandResult] = field(default_factory=dict)

    async def check(self, patch: Patch) -> tuple[GateResult, ...]:
        return tuple([await self._check(gate, patch) for gate in self.gates])

    async def _check(self, gate: GateConfig, patch: Patch) -> GateResult:
        head = await self._run(gate, "head", patch)
        return await (self._passes(gate, head) if gate.must == "pass" else self._compared(gate, head))

    async def _passes(self, gate: GateConfig, head: CommandResult) -> GateResult:
        if head.execution.ok:
            return _result(gate, "passed")
        also = ", also without the change" if not (await self._base(gate)).execution.ok else ""
        return _result(gate, "blocked", f"`{gate.command}` {_ended(head.execution)}{also}", *_end(head))

    async def _compared(self, gate: GateConfig, head: CommandResult) -> GateResult:
        base = await self._base(gate)
        before, now = _number(gate, base), _number(gate, head)
        if before is None:
            return _result(
                gate, "warned", f"`{gate.command}` prints no number on the base to compare with", *_end(base)
            )
        if now is None:
            return _result(gate, "blocked", f"`{gate.command}` prints no number; on the base {before:g}", *_end(head))
        worse = now > before if gate.better == "lower" else now < before
        numbers = f"{before:g} on the base, {now:g} on the head"
        return _result(gate, "blocked", numbers, *_end(head)) if worse else _result(gate, "passed", numbers)

    async def _base(self, gate: GateConfig) -> CommandResult:
        if gate.name not in self._on_base:
            self._on_base[gate.name] = await self._run(gate, "base", None)
        return self._on_base[gate.name]

    async def _run(self, gate: GateConfig, side: str, patch: Patch | None) -> CommandResult:
        async with self.project.open(f"gate-{self.gates.index(gate)}-{side}", patch) as opened:
            return await run(opened, gate.command, timeout=self.project.limits.suite)


def _number(gate: GateConfig, ran: CommandResult) -> float | None:
    """None also for a command that was stopped: what it printed last may be anything."""
    return None if ran.execution.timed_out else last_number(plain(ran.output.decode(errors="replace")), gate.metric)


def _result(gate: GateConfig, outcome: Outcome, *details: str) -> GateResult:
    return GateResult(name=f"{gate.name} (configured)", outcome=outcome, details=details)


def _ended(execution: Execution) -> str:
    return "did not finish in time" if execution.timed_out else f"has exit code {execution.exit_code}"


def _end(ran: CommandResult) -> list[str]:
    return ran.execution.excerpt.splitlines()[-MAX_LINES:]


async def lint(command: str | None, patch: Patch, project: ProjectUnderTest) -> GateResult:
    """Blocks what is red on the head and green on the base; red on both only warns, with what it printed."""
    if not command:
        return GateResult(name="lint", outcome="not_run", details=("no lint command is configured",))
    async with project.open("lint-head", patch) as opened:
        head = (await run(opened, command, timeout=project.limits.lint)).execution
    if head.ok:
        return GateResult(name="lint", outcome="passed")
    async with project.open("lint-base", None) as opened:
        base = (await run(opened, command, timeout=project.limits.lint)).execution
    lines = head.excerpt.splitlines()[-MAX_LINES:]
    if not base.ok:
        cause = could_not_start(base)
        repair = (f"{cause} Correct `lint:` in the configuration, or install what it needs with `setup:`.",)
        details = (f"`{command}` {_ended(head)}, as on the base", *(repair if cause else ()), *lines)
        return GateResult(name="lint", outcome="warned", details=details)
    outcome = f"`{command}` {_ended(head)}, and passes on the base"
    return GateResult(name="lint", outcome="blocked", details=(outcome, *lines))


TIMEOUT = 60.0
MAX_BYTES = 1024**2
_LIMITED = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))
resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 20, 64 << 20))
sys.argv = ["bandit", *sys.argv[1:]]
runpy.run_module("bandit", run_name="__main__", alter_sys=True)
"""


class BanditFinding(NamedTuple):
    """A finding of bandit; `code` is the line without its indentation."""

    line: int
    test: str
    text: str
    severity: str
    code: str


async def security_scan(candidate: CandidatePatch) -> GateResult:
    """Warns of findings that the base does not have, in added lines of Python outside tests."""
    deltas = [delta for delta in candidate.deltas if _scanned(delta)]
    if not deltas:
        return gate("security scan")
    try:
        found = await _scan(deltas)
    except TimeoutError:
        return GateResult(
            name="security scan", outcome="not_run", details=(f"bandit did not finish within {TIMEOUT:g} s",)
        )
    if found is None:
        return GateResult(name="security scan", outcome="not_run", details=("bandit produced no report",))
    warned = []
    for number, delta in enumerate(deltas):
        for finding in _new(delta, found.get(f"base/{number}.py", ()), found.get(f"head/{number}.py", ())):
            location = f"{displayed_path(delta.path)}:{finding.line}"
            warned.append(f"{location}: {finding.text} ({finding.test}, {finding.severity.lower()} severity)")
    return gate("security scan", warned=warned)


def _scanned(delta: ChangedPath) -> bool:
    if not delta.path.endswith(".py") or is_test_path(delta.path) or not delta.added:
        return False
    return max(len(delta.new or b""), len(delta.old or b"")) <= MAX_BYTES


def _new(delta: ChangedPath, base: Iterable[BanditFinding], head: Iterable[BanditFinding]) -> list[BanditFinding]:
    known = Counter((finding.test, finding.code) for finding in base)
    added = {number for number, _ in delta.added}
    new = []
    for finding in head:
        key = (finding.test, finding.code)
        if known[key] > 0:
            known[key] -= 1
        elif finding.line in added:
            new.append(finding)
    return new


async def _scan(deltas: list[ChangedPath]) -> Mapping[str, list[BanditFinding]] | None:
    """Findings by `base/N.py` and `head/N.py`: our own names, so that no name in the patch becomes a path here."""
    with scratch("scan") as directory:
        await asyncio.to_thread(_write, directory, deltas)
        output = await _bandit(directory)
        sources = await asyncio.to_thread(_lines, directory)
    try:
        return _findings(json.loads(output), sources)
    except (ValueError, KeyError, TypeError):
        return None


def _write(directory: Path, deltas: list[ChangedPath]) -> None:
    for side in ("base", "head"):
        (directory / side).mkdir()
    for number, delta in enumerate(deltas):
        (directory / "base" / f"{number}.py").write_bytes(delta.old or b"")
        (directory / "head" / f"{number}.py").write_bytes(delta.new or b"")


def _lines(directory: Path) -> dict[str, list[str]]:
    files = directory.glob("*/*.py")
    return {str(file.relative_to(directory)): file.read_text(errors="replace").split("\n") for file in files}


async def _bandit(directory: Path) -> bytes:
    arguments = ["-q", "-f", "json", "--ignore-nosec", "--exit-zero", "-r", "base", "head"]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-c",
        _LIMITED,
        *arguments,
        cwd=directory,
        env={"PATH": "/usr/bin:/bin"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(TIMEOUT):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output


def _findings(document: Any, sources: Mapping[str, list[str]]) -> dict[str, list[BanditFinding]]:
    found: dict[str, list[BanditFinding]] = {}
    for result in document["results"]:
        name, line = str(result["filename"]).removeprefix("./"), int(result["line_number"])
        lines = sources.get(name, [])
        code = lines[line - 1].strip() if 0 < line <= len(lines) else ""
        text = str(result["issue_text"]).splitlines()[0]
        found.setdefault(name, []).append(
            BanditFinding(line, str(result["test_id"]), text, str(result["issue_severity"]), code)
        )
    return found
