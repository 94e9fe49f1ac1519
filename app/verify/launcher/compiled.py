"""Runs chosen tests of Go and Rust with their own tools."""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from random import Random
from typing import Any

from app.verify.frameworks import GO_COMPILED
from app.verify.launcher.base import (
    Launcher,
    LauncherReport,
    ReplayProgram,
    StepEnd,
    SupervisorAnswer,
    SupervisorStep,
    exit_code_problem,
)
from app.verify.launcher.compiled_copies import GoCopies, RustCopies, rust_parts
from app.verify.launcher.compiled_replay import go_replay, rust_replay
from app.verify.report_text import GoEvents, go_output, read_cargo, read_go
from app.verify.reports import MAX_TEXT, CaseResult, Outcomes, Report

COVERAGE = "cover.out"
CARGO_ENVIRONMENT = {"CARGO_TERM_COLOR": "never"}
ALL_OUTPUT = 48 * 1024**2
"""Bytes that are kept of a whole suite's output."""
_BLOCK = re.compile(r"(?P<file>\S+):(?P<first>\d+)\.\d+,(?P<last>\d+)\.\d+ \d+ (?P<count>\d+)")
_RUST_CRASH = re.compile(rb"process didn't exit successfully: .* \(signal: \d+")
_RUST_TEST = re.compile(r"^test (?P<name>\S+)(?: - should panic)? \.\.\. ", re.MULTILINE)


@dataclass(frozen=True)
class GoLauncher(Launcher):
    """Runs `go test -json`; the go tool reads what the test's program prints."""

    def steps(self, ids: Sequence[str], watch: Sequence[str], timeout: float) -> tuple[SupervisorStep, ...]:
        tests = dict.fromkeys(re.escape(name.partition("::")[2].partition("/")[0]) for name in ids)
        packages = dict.fromkeys(name.partition("::")[0] for name in ids)
        # Vet takes longer than small tests, and judges them where the suite runs.
        words = ["-json", "-count=1", "-vet=off", "-run", f"^({'|'.join(tests)})$"]
        words += ["-coverpkg=./...", "-coverprofile={place}/" + COVERAGE] if watch else []
        command = f"{GO_COMPILED}; {self.suite.narrowed} {shlex.join([*words, *packages])}"
        collect = (COVERAGE,) if watch else ()
        return (SupervisorStep(argv=("bash", "-c", command), timeout=timeout, collect=collect, keep=8 * 1024**2),)

    def program(self, command: str, timeout: float) -> tuple[SupervisorStep, ...]:
        go_test = command.replace("go test", "go test -json", 1)
        return (SupervisorStep(argv=("bash", "-c", f"{GO_COMPILED}; {go_test}"), timeout=timeout, keep=ALL_OUTPUT),)

    def read_all(self, answer: SupervisorAnswer) -> LauncherReport:
        (ended,) = answer.steps
        return _of_report(read_go(ended.output), ended.not_started or GoReports(ended).problem)

    def read(self, ids: Sequence[str], answer: SupervisorAnswer, watch: Sequence[str]) -> LauncherReport:
        (ended,) = answer.steps
        reports = GoReports(ended)
        covered = ended.collected.get(COVERAGE, b"").decode("utf-8", "replace")
        lines = _covered(covered, watch, self.suite.directory)
        return LauncherReport(
            outcomes={name: reports.outcomes(name) for name in ids},
            problem=ended.not_started or reports.problem,
            hanging=reports.hanging(ids) if ended.timed_out else "",
            unbegun=() if ended.timed_out else tuple(filter(reports.unbegun, ids)),
            executed=tuple((path, lines[path]) for path in watch) if covered else (),
            measured=bool(covered),
        )

    def readable(self, output: bytes) -> bytes:
        return go_output(output)

    def sources(self, ids: Sequence[str]) -> tuple[str, ...]:
        start = self.suite.start
        return (f"{start}go.mod", f"{start}*_test.go", *dict.fromkeys(self._below(name) for name in ids))

    def own_files(self, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """No id tells the module's path: a package that all others are below may be in the suite's own directory."""
        packages = {name: name.partition("::")[0].split("/") for name in names}
        top = min(packages.values(), key=len, default=[])
        is_above_all = all(parts[: len(top)] == top for parts in packages.values())
        at_top = (f"{self.suite.start}*_test.go",) if is_above_all else ()
        return {name: (self._below(name), *(at_top if parts == top else ())) for name, parts in packages.items()}

    def _below(self, name: str) -> str:
        return f"{self.suite.start}**/{PurePosixPath(name.partition('::')[0]).name}/*_test.go"

    def replay(self, ids: Sequence[str], contents: Mapping[str, bytes], seconds: float) -> ReplayProgram | None:
        return go_replay(ids, contents, self.suite.directory, seconds)

    def copier(self, contents: Mapping[str, bytes], random: Random) -> GoCopies:
        return GoCopies(contents, self.suite.directory, random)


class GoReports(GoEvents):
    """What one program of Go reported, and whether that can be trusted."""

    def __init__(self, ended: StepEnd) -> None:
        super().__init__(ended.output)
        failed = any("failed" in found for found in self.statuses.values())
        self.problem = "The output was too long to be read." if ended.dropped else self._twice()
        self.problem = self.problem or exit_code_problem(ended, failed=failed, complete=bool(self.statuses))

    def _twice(self) -> str:
        twice = next((name for name, found in self.statuses.items() if len(found) > 1), "")
        return f"{twice} was reported twice." if twice else ""

    def outcomes(self, name: str) -> Outcomes:
        if name in self.statuses:
            status = self.statuses[name][0]
            return ((name, CaseResult(status, self.texts.get(name, "") if status == "failed" else "")),)
        package = name.partition("::")[0]
        if "failed" in self.statuses.get(package, ()) and not self.unbegun(name):  # it did not build, or ended here
            begun = name in self.begun
            text = self.texts.get(name, "") + self.texts.get(package, "")
            return ((name, CaseResult("failed" if begun else "error", text, plain=begun)),)
        return ()

    def unbegun(self, name: str) -> bool:
        """True if other tests of a package that failed had begun, and this one had not."""
        package, _, test = name.partition("::")
        begun = f"{package}::{test.partition('/')[0]}" in self.begun
        others = any(one.startswith(f"{package}::") for one in self.begun)
        return "failed" in self.statuses.get(package, ()) and not begun and others

    def hanging(self, ids: Sequence[str]) -> str:
        return next((name for name in ids if name in self.begun and name not in self.statuses), "")


def _covered(profile: str, watch: Sequence[str], directory: str) -> dict[str, tuple[int, ...]]:
    """Executed lines by path: the profile names a file by the module's path and its own path below that."""
    lines: dict[str, set[int]] = {path: set() for path in watch}
    ends = {path: "/" + path.removeprefix(f"{directory}/" if directory else "") for path in watch}
    for found in _BLOCK.finditer(profile):
        for path, end in ends.items():
            if found["count"] != "0" and found["file"].endswith(end):
                lines[path].update(range(int(found["first"]), int(found["last"]) + 1))
    return {path: tuple(sorted(numbers)) for path, numbers in lines.items()}


def _by_target(ids: Sequence[str]) -> dict[tuple[str, ...], list[str]]:
    """The ids by cargo's words for what is compiled for them, each for itself: one that fails stops all others."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name in ids:
        section = PurePosixPath(rust_parts(name)[0])
        target: tuple[str, ...] = ()
        if section.parts[:1] == ("src",):
            target = ("--lib",) if section.name == "lib.rs" else ("--bins",)
        elif section.parts[:1] == ("tests",):
            target = ("--test", section.stem)
        found.setdefault(target, []).append(name)
    return {(): list(ids)} if () in found else found


def _of_report(report: Report | None, problem: str) -> LauncherReport:
    cases = {name: ((name, case),) for name, case in (report or {}).items()}
    return LauncherReport(outcomes=cases, problem=problem)


@dataclass(frozen=True)
class CargoLauncher(Launcher):
    """Runs `cargo test`, and reads the lines that each test's program prints."""

    def steps(self, ids: Sequence[str], watch: Sequence[str], timeout: float) -> tuple[SupervisorStep, ...]:
        steps = []
        for target, chosen in _by_target(ids).items():
            names = dict.fromkeys("::".join(rust_parts(name)[1]) for name in chosen)
            command = f"{self.suite.narrowed} {shlex.join([*target, '--', '--exact', *names])}"
            argv = ("bash", "-c", command)
            steps.append(SupervisorStep(argv=argv, timeout=timeout, env=CARGO_ENVIRONMENT, keep=8 * 1024**2))
        return tuple(steps)

    def program(self, command: str, timeout: float) -> tuple[SupervisorStep, ...]:
        return (SupervisorStep(argv=("bash", "-c", command), timeout=timeout, env=CARGO_ENVIRONMENT, keep=ALL_OUTPUT),)

    def read_all(self, answer: SupervisorAnswer) -> LauncherReport:
        (ended,) = answer.steps
        found = _of_report(read_cargo(ended.output), "")
        problem = ended.not_started or self._problem(ended, found.outcomes, chosen=False)
        return found.model_copy(update={"problem": problem})

    def read(self, ids: Sequence[str], answer: SupervisorAnswer, watch: Sequence[str]) -> LauncherReport:
        outcomes: dict[str, Outcomes] = {}
        problems, hanging, unbegun = [], "", list[str]()
        for chosen, ended in zip(_by_target(ids).values(), answer.steps, strict=False):
            cases = read_cargo(ended.output) or {}
            crashed = len(chosen) > 1 and _RUST_CRASH.search(ended.output) is not None
            found = {name: self._outcome(name, cases, ended, crashed=crashed) for name in chosen}
            problems.append(ended.not_started or self._problem(ended, found))
            if ended.timed_out:
                hanging = hanging or next((name for name, reported in found.items() if not reported), "")
            elif crashed:
                unbegun += [name for name, reported in found.items() if not reported]
            outcomes |= found
        return LauncherReport(
            outcomes=outcomes,
            problem=next(filter(None, problems), ""),
            hanging=hanging,
            unbegun=tuple(unbegun),
        )

    def _outcome(self, name: str, cases: Mapping[str, Any], ended: StepEnd, *, crashed: bool) -> Outcomes:
        section, parts = rust_parts(name)
        ends = f"::{'::'.join(parts)}"
        found = [case for one, case in cases.items() if (one == name if section else one.endswith(ends))]
        if found:
            return tuple((name, case) for case in found)
        if not cases and not crashed and ended.exit_code and not ended.timed_out:  # nothing was compiled
            text = ended.output[-4 * MAX_TEXT :].decode("utf-8", "replace")
            return ((name, CaseResult("error", text, plain=False)),)
        return ()

    def _problem(self, ended: StepEnd, outcomes: Mapping[str, Outcomes], *, chosen: bool = True) -> str:
        if ended.dropped:
            return "The output was too long to be read."
        if ended.timed_out:
            return ""
        text = ended.output.decode("utf-8", "replace")
        for section in re.split(r"(?m)^\s*(?:Running|Doc-tests) ", text):
            twice = [name for name, count in Counter(_RUST_TEST.findall(section)).items() if count > 1]
            if twice:
                return f"{twice[0]} was reported twice."
        statuses = {one.status for found in outcomes.values() for _, one in found}
        complete = chosen and bool(statuses) and all(outcomes.values()) and "error" not in statuses
        return exit_code_problem(ended, failed="failed" in statuses, complete=complete)

    def sources(self, ids: Sequence[str]) -> tuple[str, ...]:
        own = (path for paths in self.own_files(ids).values() for path in paths)
        return (*dict.fromkeys(own), self._in_any_package("Cargo.toml"))

    def own_files(self, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
        copies = self.copier({}, Random(0))  # noqa: S311 - nothing is chosen
        return {
            name: tuple(self._in_any_package(place.path) for place in copies.within_package(name)) for name in names
        }

    def _in_any_package(self, path: str) -> str:
        return str(PurePosixPath(self.suite.directory, "**", path))

    def replay(self, ids: Sequence[str], contents: Mapping[str, bytes], seconds: float) -> ReplayProgram | None:
        return rust_replay(ids, contents, self.suite.directory, seconds)

    def copier(self, contents: Mapping[str, bytes], random: Random) -> RustCopies:
        return RustCopies(contents, self.suite.directory, random)
