"""Reports bandit's findings in changed lines of Python, from a separate process with limits that parses only.

Findings only warn: they are hints for a reader, and a static rule must not stop a draft that people review anyway.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from app.core.scratch import scratch
from app.core.verification import GateResult
from app.verify.gates.candidate import CandidatePatch, ChangedPath, displayed_path, gate
from app.verify.test_paths import is_test_path

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
