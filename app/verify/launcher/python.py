"""Runs chosen tests of pytest, unittest and Django with our own program, which loads the framework first."""

import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from random import Random
from typing import Any

from app.core.python_source import python_literal
from app.verify.frameworks import PATH_VARIABLE, SuiteCommand, needs_shell
from app.verify.launcher.base import (
    AFTER_END,
    START,
    UNKNOWN_FORM,
    Launcher,
    LauncherReport,
    ReplayProgram,
    StepEnd,
    SupervisorAnswer,
    SupervisorStep,
    exit_code_problem,
    with_program,
)
from app.verify.launcher.python_copies import FunctionLocation, PythonCopies
from app.verify.launcher.replay_text import program_text, replayed
from app.verify.reports import RANK, CaseResult, Outcomes, plain_id

_PYTHON = re.compile(r"python[\d.]*$")
_VARIABLE = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)
_AROUND = re.compile(r"(?P<method>(?:setUp|tearDown)(?:Class|Module)) \((?P<owner>[\w.]+)\)")
REPLAY_TIMEOUT = 120.0
OTHER_ENVIRONMENT: Mapping[str, str] = {
    "TZ": "XYZ-5:45XDT,M3.5.0,M10.5.0",
    "LANG": "C",
    "LC_ALL": "C",
    "PYTHONUTF8": "0",
    "PYTHONCOERCECLOCALE": "0",
    "PYTHONIOENCODING": "utf-8",
    "PYTHONHASHSEED": "7",
}
"""A time zone with summer time, and text files of ASCII unless the code says otherwise."""
REPLAY_PAUSE = 1.5
"""Seconds after which the tests are called once more."""
_FRAMEWORKS = frozenset({"pytest", "py.test", "unittest", "manage.py"})


@dataclass(frozen=True)
class PythonLauncher(Launcher):
    """Built from a suite's narrowed command: its variables, its interpreter, the framework's own options."""

    framework: str
    python: str
    as_module: bool
    arguments: tuple[str, ...]
    environment: Mapping[str, str]

    @classmethod
    def of(cls, suite: SuiteCommand, command: str = "") -> "PythonLauncher":
        """Of the suite's command, or of this one. ValueError for a command that starts something else."""
        given = command or suite.narrowed or ("python3 -m pytest" if suite.framework == "pytest" else "")
        words = shlex.split(given)
        if words[:1] == ["cd"] and "&&" in words:
            words = words[words.index("&&") + 1 :]
            given = given.partition("&& ")[2]
        if needs_shell(given):
            raise ValueError("only a shell knows the words of the suite's command")
        environment = {}
        while words and (found := _VARIABLE.fullmatch(words[0])):
            environment[found["name"]] = found["value"]
            words.pop(0)
        if path := environment.get("PYTHONPATH"):
            environment["PYTHONPATH"] = PATH_VARIABLE.sub(lambda name: "." if "PWD" in name[0] else "", path)
        at = next((n for n, word in enumerate(words) if PurePosixPath(word).name in _FRAMEWORKS), None)
        if at is None:
            raise ValueError("the suite's command cannot be narrowed to these tests")
        pythons = [word for word in words[:at] if _PYTHON.fullmatch(PurePosixPath(word).name)]
        name = PurePosixPath(words[at]).name
        framework = {"py.test": "pytest", "manage.py": "django"}.get(name, name)
        return cls(
            suite=suite,
            framework=framework,
            python=pythons[-1] if pythons else "python3",
            as_module=framework != "pytest" or bool(pythons) or "-m" in words[:at],
            arguments=tuple(words[at + 1 :]),
            environment=environment,
        )

    def program(self, command: str, timeout: float) -> tuple[SupervisorStep, ...]:
        return PythonLauncher.of(self.suite, command).steps((), (), timeout)

    def steps(self, ids: Sequence[str], watch: Sequence[str], timeout: float) -> tuple[SupervisorStep, ...]:
        """Without ids: all tests that the command itself chooses, in its own order."""
        job = {
            "framework": self.framework,
            "ids": list(ids),
            "arguments": list(self.arguments),
            "directory": self.suite.directory,
            "as_module": self.as_module,
            "environment": dict(self.environment),
            "watch": list(watch),
        }
        step = SupervisorStep(
            argv=(self.python, "-c", START),
            cwd=self.suite.directory,
            timeout=timeout,
            drop=("PYTHON",),
            prelude=with_program("python_tests.py"),
            input=json.dumps(job),
            channel=True,
        )
        return (step,)

    def read(self, ids: Sequence[str], answer: SupervisorAnswer, watch: Sequence[str]) -> LauncherReport:
        (ended,) = answer.steps
        messages = [_message(text) for text in ended.messages]
        if ("own",) in messages:
            raise ValueError("the test framework is the project itself")
        return _ReportReader(self.framework, ids, messages).report(ended, watch)

    def read_all(self, answer: SupervisorAnswer) -> LauncherReport:
        (ended,) = answer.steps
        return _ReportReader(self.framework, (), map(_message, ended.messages)).whole_report(ended)

    def sources(self, ids: Sequence[str]) -> tuple[str, ...]:
        files = dict.fromkeys(path for name in ids for path in self._files_of(name))
        parents = dict.fromkeys(parent for path in files for parent in PurePosixPath(path).parents)
        conftests = (str(parent / "conftest.py") for parent in parents) if self.framework == "pytest" else ()
        return (*files, *conftests)

    def own_files(self, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
        return {name: self._files_of(name) for name in names}

    def group(self, name: str) -> str:
        if self.framework != "pytest":
            return name.rpartition(".")[0]
        whole = name.partition("[")[0]
        return whole.rpartition("::")[0] if whole.count("::") > 1 else whole

    def copier(self, contents: Mapping[str, bytes], random: Random) -> PythonCopies:
        return PythonCopies(self.framework == "pytest", self.suite.modules, contents, random)

    def replay(self, ids: Sequence[str], contents: Mapping[str, bytes], seconds: float) -> ReplayProgram | None:
        if self.framework not in ("pytest", "unittest"):
            return None
        places = self.places(ids, contents)
        found = replayed(places, contents, self.suite.modules, self.suite.directory)
        if not found.ids:
            return None
        around_tests = (
            {str(PurePosixPath(path).parent) for path in found.paths} if self.framework == "pytest" else set[str]()
        )
        around = {self.suite.directory or ".", self.suite.modules or ".", *around_tests}
        paths = sorted(os.path.relpath(path, self.suite.directory or ".") for path in around)
        job = {"files": found.files, "paths": paths, "seconds": seconds, "pause": REPLAY_PAUSE}
        steps = tuple(
            SupervisorStep(
                argv=(self.python, *options, "-c", program),
                cwd=self.suite.directory,
                timeout=REPLAY_TIMEOUT + 10 * seconds,
                env={**self.environment, **environment},
                prelude=before + with_program("python_replay.py"),
                input=repr({**job, "shifted": shifted}),
                channel=True,
            )
            for shifted, options, (program, before), environment in (
                (False, (), program_text(paths, found.plain), {}),
                (True, ("-O",), program_text(paths, ""), OTHER_ENVIRONMENT),
            )
        )
        return ReplayProgram(ids=found.ids, paths=found.paths, steps=steps)

    def places(self, ids: Sequence[str], contents: Mapping[str, bytes]) -> dict[str, FunctionLocation]:
        """Where those of these tests are written whose files `contents` has."""
        finder = self.copier(contents, Random(0))  # noqa: S311 - no secret
        return {name: place for name in ids if (place := finder.place(name))}

    def _files_of(self, name: str) -> tuple[str, ...]:
        """Where the test of an id may be written."""
        if self.framework == "pytest":
            return (name.partition("::")[0],)
        parts = name.split(".")
        start = f"{self.suite.modules}/" if self.suite.modules else ""
        stems = ["/".join(parts[:end]) for end in range(1, len(parts))]
        return tuple(f"{start}{stem}{end}" for stem in stems for end in (".py", "/__init__.py"))


def _message(text: str) -> tuple[Any, ...]:
    message = python_literal(text)
    return message if isinstance(message, tuple) and message else ("unreadable",)


def _around(name: str) -> str:
    """`tests.test_x.Case.setUpClass` of unittest's `setUpClass (tests.test_x.Case)`; empty for a test."""
    found = _AROUND.fullmatch(name)
    return f"{found['owner']}.{found['method']}" if found else ""


_ELSEWHERE = {
    "own": "The test framework is the project itself.",
    "apart": "The tests are executed by several processes.",
}


def _any_failed(outcomes: Mapping[str, Outcomes]) -> bool:
    return any(outcome.failed for found in outcomes.values() for _, outcome in found)


class _ReportReader:
    """The messages of one execution, grouped by the requested ids."""

    def __init__(self, framework: str, ids: Sequence[str], messages: Iterable[tuple[Any, ...]]) -> None:
        self._pytest = framework == "pytest"
        self._ids = ids
        self._tests: dict[str, CaseResult] = {}
        self._files: dict[str, str] = {}
        self._lines: dict[str, tuple[int, ...]] = {}
        self._programs = 0
        self._end: int | None = None
        self._begun = ""
        self._problem = ""
        for message in messages:
            self._read(message)

    def _read(self, message: tuple[Any, ...]) -> None:
        if self._end is not None:
            self._problem = self._problem or AFTER_END
        match message:
            case ("begin", str(name)):
                self._begun = name
            case ("test", str(name), "passed" | "failed" | "error" | "skipped" as status, bool(plain), str(text)):
                self._test(name, CaseResult(status, text, plain))
            case ("file", str(path), str(text)):
                self._files[path] = text
            case ("lines", str(path), list(numbers)):
                self._lines[path] = tuple(int(number) for number in numbers)
            case ("programs", int(count)):
                self._programs = count
            case ("own" | "apart" as word,):
                self._problem = _ELSEWHERE[word]
            case ("missing", str(module)):
                self._problem = f"The module {module} is not installed in the sandbox."
            case ("end", int(code)):
                self._end = code
            case _:
                self._problem = self._problem or UNKNOWN_FORM

    def _test(self, name: str, outcome: CaseResult) -> None:
        self._begun = ""
        known = self._tests.get(name)
        # A whole suite of unittest may have a test class twice; the worse result counts.
        if known is not None and not name.startswith("setUp") and (self._ids or self._pytest):
            self._problem = self._problem or f"{plain_id(name)} was reported twice."
        if known is None or RANK[outcome.status] >= RANK[known.status]:
            self._tests[name] = outcome

    def report(self, ended: StepEnd, watch: Sequence[str]) -> LauncherReport:
        outcomes = {name: self._outcomes(name) for name in self._ids}
        hit = any(self._lines.values())
        return LauncherReport(
            outcomes=outcomes,
            problem=ended.problem or self._problem or self._disagreement(ended, outcomes),
            hanging=self._begun if ended.timed_out else "",
            executed=tuple((path, self._lines.get(path, ())) for path in watch),
            # Lines of programs that the tests start are not measured.
            measured=bool(self._lines) and (hit or not self._programs),
        )

    def whole_report(self, ended: StepEnd) -> LauncherReport:
        tests = {_around(name) or name: outcome for name, outcome in self._tests.items()}
        outcomes = {name: ((name, outcome),) for name, outcome in tests.items()}
        outcomes |= {path: ((path, CaseResult("error", text, plain=False)),) for path, text in self._files.items()}
        found = self.report(ended, ())
        problem = found.problem or exit_code_problem(ended, failed=_any_failed(outcomes), complete=False)
        return found.model_copy(update={"outcomes": outcomes, "problem": problem})

    def _outcomes(self, name: str) -> Outcomes:
        separators = ("[", "::") if self._pytest else (".", " ")
        below = tuple(name + separator for separator in separators)
        found = [(one, outcome) for one, outcome in self._tests.items() if one == name or one.startswith(below)]
        if found:
            return tuple(found)
        if self._pytest:
            text = self._files.get(name.partition("::")[0])
            return ((name, CaseResult("error", text, plain=False)),) if text is not None else ()
        # Exceptions of `setUpClass` and `setUpModule` are reported for the class or module.
        around = [
            one for one in self._tests if one.startswith("setUp") and name.startswith(f"{one[:-1].partition('(')[2]}.")
        ]
        return tuple((name, self._tests[one]) for one in around[:1])

    def _disagreement(self, ended: StepEnd, outcomes: Mapping[str, Outcomes]) -> str:
        if self._end not in (None, ended.exit_code) and not ended.timed_out:
            return f"The exit code is {ended.exit_code}, and the framework's own was {self._end}."
        complete, finished = bool(outcomes) and all(outcomes.values()), self._end is not None
        return exit_code_problem(ended, finished=finished, failed=_any_failed(outcomes), complete=complete)
