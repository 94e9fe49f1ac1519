"""Runs chosen tests of Go and Rust with their own tools, or what they call as plain programs without a test framework.

Such a program is the text of the tests with `go_replay.go` or `rust_replay.rs`.
"""

import base64
import json
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from random import Random
from typing import Any

from app.verify.frameworks import GO_COMPILED, SuiteCommand
from app.verify.launcher.base import (
    CopyNames,
    Launcher,
    LauncherReport,
    ReplayProgram,
    StepEnd,
    SupervisorAnswer,
    SupervisorStep,
)
from app.verify.launcher.compiled_copies import GoCopies, RustCopies, rust_parts
from app.verify.reports import MAX_TEXT, CaseResult, GoEvents, Report, go_output, read_cargo, read_go

COVERAGE = "cover.out"
ALL_OUTPUT = 48 * 1024**2
"""Bytes that are kept of a whole suite's output."""
_BLOCK = re.compile(r"(?P<file>\S+):(?P<first>\d+)\.\d+,(?P<last>\d+)\.\d+ \d+ (?P<count>\d+)")
_RUST_CRASH = re.compile(rb"process didn't exit successfully: .* \(signal: \d+")
_RUST_TEST = re.compile(r"^test (?P<name>\S+)(?: - should panic)? \.\.\. ", re.MULTILINE)


@dataclass(frozen=True)
class GoLauncher(Launcher):
    """Runs `go test -json`; the go tool reads what the test's program prints."""

    suite: SuiteCommand

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
        start = f"{self.suite.directory}/" if self.suite.directory else ""
        below = dict.fromkeys(PurePosixPath(name.partition("::")[0]).name for name in ids)
        return (f"{start}go.mod", f"{start}*_test.go", *(f"{start}**/{name}/*_test.go" for name in below))

    def copier(self, contents: Mapping[str, bytes], random: Random) -> GoCopies:
        return GoCopies(contents, self.suite.directory, random)


class GoReports(GoEvents):
    """What one program of Go reported, and whether that can be trusted."""

    def __init__(self, ended: StepEnd) -> None:
        super().__init__(ended.output)
        failed = any("failed" in found for found in self.statuses.values())
        self.problem = "The output was too long to be read." if ended.dropped else self._twice()
        if not ended.timed_out and not self.problem:
            if failed and ended.exit_code == 0:
                self.problem = "The exit code is 0 although a test failed."
            elif self.statuses and not failed and ended.exit_code != 0:
                self.problem = f"The exit code is {ended.exit_code} although no test failed."

    def _twice(self) -> str:
        twice = next((name for name, found in self.statuses.items() if len(found) > 1), "")
        return f"{twice} was reported twice." if twice else ""

    def outcomes(self, name: str) -> tuple[tuple[str, CaseResult], ...]:
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

    suite: SuiteCommand

    def steps(self, ids: Sequence[str], watch: Sequence[str], timeout: float) -> tuple[SupervisorStep, ...]:
        environment = {"CARGO_TERM_COLOR": "never"}
        steps = []
        for target, chosen in _by_target(ids).items():
            names = dict.fromkeys("::".join(rust_parts(name)[1]) for name in chosen)
            command = f"{self.suite.narrowed} {shlex.join([*target, '--', '--exact', *names])}"
            argv = ("bash", "-c", command)
            steps.append(SupervisorStep(argv=argv, timeout=timeout, env=environment, keep=8 * 1024**2))
        return tuple(steps)

    def program(self, command: str, timeout: float) -> tuple[SupervisorStep, ...]:
        environment = {"CARGO_TERM_COLOR": "never"}
        return (SupervisorStep(argv=("bash", "-c", command), timeout=timeout, env=environment, keep=ALL_OUTPUT),)

    def read_all(self, answer: SupervisorAnswer) -> LauncherReport:
        (ended,) = answer.steps
        found = _of_report(read_cargo(ended.output), "")
        problem = ended.not_started or self._problem(ended, found.outcomes, chosen=False)
        return found.model_copy(update={"problem": problem})

    def read(self, ids: Sequence[str], answer: SupervisorAnswer, watch: Sequence[str]) -> LauncherReport:
        outcomes: dict[str, tuple[tuple[str, CaseResult], ...]] = {}
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

    def _outcome(
        self, name: str, cases: Mapping[str, Any], ended: StepEnd, *, crashed: bool
    ) -> tuple[tuple[str, CaseResult], ...]:
        section, parts = rust_parts(name)
        ends = f"::{'::'.join(parts)}"
        found = [case for one, case in cases.items() if (one == name if section else one.endswith(ends))]
        if found:
            return tuple((name, case) for case in found)
        if not cases and not crashed and ended.exit_code and not ended.timed_out:  # nothing was compiled
            text = ended.output[-4 * MAX_TEXT :].decode("utf-8", "replace")
            return ((name, CaseResult("error", text, plain=False)),)
        return ()

    def _problem(
        self, ended: StepEnd, outcomes: Mapping[str, tuple[tuple[str, CaseResult], ...]], *, chosen: bool = True
    ) -> str:
        if ended.dropped:
            return "The output was too long to be read."
        if ended.timed_out:
            return ""
        text = ended.output.decode("utf-8", "replace")
        for section in re.split(r"(?m)^\s*(?:Running|Doc-tests) ", text):
            twice = [name for name, count in Counter(_RUST_TEST.findall(section)).items() if count > 1]
            if twice:
                return f"{twice[0]} was reported twice."
        failed = any(one.status == "failed" for found in outcomes.values() for _, one in found)
        reported = any(outcomes.values())
        if failed and ended.exit_code == 0:
            return "The exit code is 0 although a test failed."
        if chosen and reported and not failed and ended.exit_code != 0 and all(outcomes.values()):
            errors = any(one.status == "error" for found in outcomes.values() for _, one in found)
            return "" if errors else f"The exit code is {ended.exit_code} although no chosen test failed."
        return ""

    def sources(self, ids: Sequence[str]) -> tuple[str, ...]:
        copies = self.copier({}, Random(0))  # noqa: S311 - nothing is chosen
        paths = dict.fromkeys(place.path for name in ids for place in copies.within_package(name))
        return tuple(str(PurePosixPath(self.suite.directory, "**", path)) for path in (*paths, "Cargo.toml"))

    def copier(self, contents: Mapping[str, bytes], random: Random) -> RustCopies:
        return RustCopies(contents, self.suite.directory, random)


SHARE = 0.4
"""Of the time that calls are repeated, in each of two processes: the first may leave something for the second."""
REPLAY_TIMEOUT = 300.0
MAX_ROUNDS = 20_000
_GO_TEST = r"(?m)^func {name}\(\w+ \*testing\.T\) \{{"
_GO_IMPORT = re.compile(r'(?m)^(?:import[ \t]+"testing"|[ \t]+"testing")[ \t]*$')
_GO_PACKAGE = re.compile(r"(?m)^package (\w+)\s*$")
_GO_ARGUMENT = re.compile(r"(?<=[(,])(?P<start>\s*)(?P<value>(?:\[\]|map\[\w+\])[\w*.]+\{[^{}()]*\})(?=\s*[,)])")
_PLAIN_RUST_TEST = re.compile(r"(?m)^#\[test\]\s+(?:pub )?fn (\w+)\(\) \{")
_RUST_NEEDS_MORE = re.compile(r"(?m)^#!\[|^\s*(?:pub )?mod \w+;|\bfn main\b|#\[(?:should_panic|ignore|cfg)")
_TEXT = re.compile(r'(?<=\w\()"[^"\\\n]+"(?=\))')
"""A text that is the only argument of a call."""
_NAME = "sed -n 's/^name *= *\"\\(.*\\)\"/\\1/p' Cargo.toml | head -n 1"


def go_replay(
    ids: Sequence[str], contents: Mapping[str, bytes], directory: str, random: Random, seconds: float
) -> ReplayProgram | None:
    """A program beside the packages of those tests that stand in the packages themselves; None if there are none."""
    mark = f"Zz{CopyNames(random).fresh('')}"
    files, chosen, imports, calls = dict[str, str](), list[str](), list[str](), list[str]()
    paths: list[str] = []
    for number, package in enumerate(dict.fromkeys(name.partition("::")[0] for name in ids)):
        mine = [name for name in ids if name.startswith(f"{package}::") and "/" not in name.partition("::")[2]]
        by_path = _go_files(mine, contents)
        folders = {str(PurePosixPath(path).parent) for path in by_path}
        names = [name for found in by_path.values() for name in found]
        if not names or len(folders) != 1:
            continue
        folder, package_name = folders.pop(), ""
        for path in by_path:
            text = contents[path].decode("utf-8", "replace")
            package_name = (_GO_PACKAGE.search(text) or [""] * 2)[1]
            text = _GO_ARGUMENT.sub(rf"\g<start>{mark}Given(\g<value>)", _GO_IMPORT.sub("", text))
            text = _TEXT.sub(rf"{mark}Text(\g<0>)", text)
            files[f"{path.removesuffix('_test.go')}_{mark.lower()}.go"] = text.replace("*testing.T", f"*{mark}T")
        tests = ", ".join(name.partition("::")[2] for name in names)
        replaced = {"PACKAGE": package_name, "NAMES": ", ".join(map(json.dumps, names)), "TESTS": tests}
        replaced |= {"TOKEN": mark, "ZZ": mark, "zz": mark.lower()}
        replaced |= {"SECONDS": str(int(seconds * SHARE * 1000)), "ROUNDS": str(MAX_ROUNDS)}
        files[str(PurePosixPath(folder, f"{mark.lower()}.go"))] = _filled("go_replay.go", replaced)
        imports.append(f'p{number} "{package}"')
        calls.append(f"p{number}.{mark}Replay()")
        chosen += names
        paths += by_path
    if not chosen:
        return None
    end = f'fmt.Print("\\n{mark}[\\"end\\"]\\n")'
    listed = "\n\t".join(['"fmt"', *imports])
    main = f"package main\n\nimport (\n\t{listed}\n)\n\nfunc main() {{\n\t" + "\n\t".join([*calls, end]) + "\n}\n"
    files[str(PurePosixPath(directory, mark.lower(), "main.go"))] = main
    build = _or_without(f'go build -o "$0"/{mark} ./{mark.lower()}', f"{mark}Text", files, directory)
    build = f'{GO_COMPILED}; {build} && {{ "$0"/{mark} >/dev/null; exec "$0"/{mark}; }}'
    return _program(files, directory, build, (chosen, paths), mark)


def rust_replay(
    ids: Sequence[str], contents: Mapping[str, bytes], directory: str, random: Random, seconds: float
) -> ReplayProgram | None:
    """An example of the crate, without assertions for debugging, of the tests in `tests/`; None if there are none."""
    mark = f"zz{CopyNames(random).fresh('')}"
    start = f"{directory}/" if directory else ""
    modules, calls, chosen, paths = list[str](), list[str](), list[str](), list[str]()
    for path in dict.fromkeys(rust_parts(name)[0] for name in ids):
        text = contents.get(f"{start}{path}", b"").decode("utf-8", "replace")
        found = set(_PLAIN_RUST_TEST.findall(text))
        mine = [name for name in ids if rust_parts(name)[0] == path and found.issuperset(rust_parts(name)[1])]
        if not mine or not path.startswith("tests/") or _RUST_NEEDS_MORE.search(text):
            continue
        module = f"m{len(modules)}"
        functions = _TEXT.sub(r"crate::other_text(\g<0>)", _PLAIN_RUST_TEST.sub(r"pub fn \1() {", text))
        modules.append(f"mod {module} {{\n{functions}\n}}\n")
        calls += [f"({json.dumps(name)}, {module}::{rust_parts(name)[1][-1]} as fn())" for name in mine]
        chosen += mine
        paths.append(f"{start}{path}")
    if not chosen:
        return None
    replaced = {"TESTS": ", ".join(calls), "TOKEN": mark}
    replaced |= {"SECONDS": str(int(seconds * SHARE * 1000)), "ROUNDS": str(MAX_ROUNDS)}
    text = "#![allow(dead_code, unused_imports)]\n" + "".join(modules) + _filled("rust_replay.rs", replaced)
    without = " ".join(
        f'--config profile.dev.package."$({_NAME})".{name}=false' for name in ("debug-assertions", "overflow-checks")
    )
    files = {str(PurePosixPath(directory, "examples", f"{mark}.rs")): text}
    build = _or_without(f"cargo build -q --offline --example {mark} {without}", "crate::other_text", files, directory)
    program = f'env -i PATH="$PATH" "${{CARGO_TARGET_DIR:-target}}/debug/examples/{mark}"'
    build += f" && {{ {program} >/dev/null; exec {program}; }}"
    return _program(files, directory, build, (chosen, paths), mark)


def _go_files(ids: Sequence[str], contents: Mapping[str, bytes]) -> dict[str, list[str]]:
    """The files in which these tests stand, each with its own, if they need nothing else of `testing`."""
    found: dict[str, list[str]] = {}
    for path, content in contents.items():
        text = content.decode("utf-8", "replace")
        package = _GO_PACKAGE.search(text)
        more = "testing." in text.replace("*testing.T", "")
        if not path.endswith("_test.go") or package is None or package[1].endswith(("_test", "main")) or more:
            continue
        mine = [name for name in ids if re.search(_GO_TEST.format(name=re.escape(name.partition("::")[2])), text)]
        if mine:
            found[path] = mine
    return found


def _or_without(build: str, function: str, files: Mapping[str, str], directory: str) -> str:
    """The build, once more without this function around texts if they are of another type."""
    paths = shlex.join(str(PurePosixPath(path).relative_to(directory or ".")) for path in files)
    return f'{{ {build} 2>/dev/null || {{ sed -i -E \'s/{function}\\(("[^"]*")\\)/\\1/g\' {paths}; {build}; }}; }}'


def _filled(name: str, replaced: Mapping[str, str]) -> str:
    """The text of a program beside this file, with these words replaced."""
    text = Path(__file__).with_name(name).read_text("utf-8")
    return re.sub("|".join(map(re.escape, replaced)), lambda found: replaced[found[0]], text)


def _program(
    files: Mapping[str, str], directory: str, build: str, found: tuple[Sequence[str], Sequence[str]], token: str
) -> ReplayProgram:
    """`found` are the ids and the paths of their files."""
    lines = []
    for path, text in files.items():
        file = shlex.quote(str(PurePosixPath(path).relative_to(directory or ".")))
        lines.append(f"mkdir -p $(dirname {file}) && base64 -d <<<{base64.b64encode(text.encode()).decode()} >{file}")
    command = " && ".join([*lines, f"{{ {build}; }}"])
    argv = ("bash", "-c", 'eval "$(cat)"', "{place}")  # an argument is at most 128 KiB
    step = SupervisorStep(argv=argv, cwd=directory, timeout=REPLAY_TIMEOUT, input=command, keep=8 * 1024**2)
    return ReplayProgram(ids=tuple(found[0]), paths=tuple(found[1]), steps=(step,), token=token)
