"""Runs chosen tests of node --test, vitest, jest and mocha, with our own reporter in the framework's main process."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

from app.core.text import plain
from app.core.verification import Status
from app.verify.frameworks import FrameworkName, SuiteCommand
from app.verify.launcher.base import CaseOutcome, CopiedTests, Launcher, LauncherReport, ReplayProgram
from app.verify.launcher.script_copies import ScriptCopies
from app.verify.launcher.supervisor_client import StepEnd, SupervisorAnswer, SupervisorStep

_REPORTERS = Path(__file__).with_name("reporters")
_OLD = "const fs = require('node:fs');\nconst crypto = require('node:crypto');\n"
_NEW = "import fs from 'node:fs';\nimport crypto from 'node:crypto';\nimport { inspect } from 'node:util';\n"
_ARGUMENTS: Mapping[str, str] = {
    "node": "--test-reporter=spec --test-reporter-destination=stdout --test-reporter={place}/reporter.mjs "
    "--test-reporter-destination=stderr",
    "vitest": "--reporter=default --reporter={place}/reporter.mjs",
    "jest": "--reporters=default --reporters={place}/reporter.cjs",
    "mocha": "--reporter {place}/reporter.cjs",
}
_ENVIRONMENT = {"CI": "true", "npm_config_update_notifier": "false", "NO_COLOR": "1"}
_IMPORT = re.compile(r"^import (?P<names>[^'\";]+?) from (?P<module>'[^'\n]+'|\"[^\"\n]+\");?[ \t]*$", re.MULTILINE)
_EFFECT = re.compile(r"^import (?P<module>'[^'\n]+'|\"[^\"\n]+\");?[ \t]*$", re.MULTILINE)
_LOADS = "await load("
_MODULE = re.compile(r"^\s*(?:import|export)\b|\bawait import\(|\bimport\.meta\b", re.MULTILINE)
REPLAY_TIMEOUT = 120.0
OTHER_ENVIRONMENT: Mapping[str, str] = {
    "TZ": "America/St_Johns",
    "LANG": "sv_SE.UTF-8",
    "LC_ALL": "sv_SE.UTF-8",
    "TERM": "xterm",
    "NODE_ENV": "production",
}
"""A time zone west of Greenwich with summer time, and a language with an order and numbers of its own."""
REPLAY_PAUSE = 2.0
"""Seconds after which the tests are called once more."""
_PLAIN_SCRIPT = re.compile(r"\.[cm]?js$")
_TAIL = 4_000


@dataclass(frozen=True)
class ScriptLauncher(Launcher):
    """Runs whole test files; only the results of the chosen tests count."""

    suite: SuiteCommand

    @cached_property
    def files(self) -> Mapping[str, str]:
        new = self.suite.framework in ("node", "vitest")
        texts = [(_REPORTERS / name).read_text("utf-8") for name in ("channel.js", f"{self.suite.framework}.js")]
        return {f"reporter.{'mjs' if new else 'cjs'}": "\n".join([_NEW if new else _OLD, *texts])}

    def steps(self, ids: Sequence[str], watch: Sequence[str], timeout: float) -> tuple[SupervisorStep, ...]:
        framework: FrameworkName = self.suite.framework
        start = f"{self.suite.directory}/" if self.suite.directory else ""
        paths = dict.fromkeys(name.partition("::")[0].removeprefix(start) for name in ids)
        by_path = " --runTestsByPath" if framework == "jest" else ""
        command = f"{self.suite.narrowed} {_ARGUMENTS[framework]}{by_path} {shlex.join(paths)}"
        environment = dict(_ENVIRONMENT)
        measured = [path for path in watch if _PLAIN_SCRIPT.search(path)]
        if measured and framework in ("node", "mocha"):  # the others change the text before it is executed
            environment["NODE_V8_COVERAGE"] = "{place}/coverage"
        step = SupervisorStep(
            argv=("bash", "-c", command),
            timeout=timeout,
            env=environment,
            channel=True,
            coverage=tuple(measured) if "NODE_V8_COVERAGE" in environment else (),
        )
        return (step,)

    def program(self, command: str, timeout: float) -> tuple[SupervisorStep, ...]:
        environment = dict(_ENVIRONMENT)
        if self.suite.framework == "node":  # a script may have paths, and more than one command
            environment["NODE_OPTIONS"] = _ARGUMENTS["node"]
        else:
            chosen = command.removeprefix(self.suite.narrowed) if command != self.suite.command else ""
            command = f"{self.suite.narrowed} {_ARGUMENTS[self.suite.framework]}{chosen}"
        return (SupervisorStep(argv=("bash", "-c", command), timeout=timeout, env=environment, channel=True),)

    def read(self, ids: Sequence[str], answer: SupervisorAnswer, watch: Sequence[str]) -> LauncherReport:
        (ended,) = answer.steps
        reports = ScriptReports(" " if self.suite.framework == "mocha" else " > ")
        for text in ended.messages:
            reports.read(text)
        outcomes = {name: reports.outcomes(name, ended.output) for name in ids}
        lines = dict(ended.lines)
        return LauncherReport(
            outcomes=outcomes,
            problem=ended.not_started or ended.broken or reports.problem or reports.disagreement(ended),
            hanging=next((name for name, found in outcomes.items() if not found), "") if ended.timed_out else "",
            executed=tuple((path, lines.get(path, ())) for path in watch) if lines else (),
            measured=any(lines.values()),
        )

    def read_all(self, answer: SupervisorAnswer) -> LauncherReport:
        (ended,) = answer.steps
        reports = ScriptReports(" " if self.suite.framework == "mocha" else " > ")
        for text in ended.messages:
            reports.read(text)
        problem = ended.not_started or ended.broken or reports.problem or reports.contradiction(ended)
        return LauncherReport(outcomes=reports.all_of_it(), problem=problem)

    def sources(self, ids: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name.partition("::")[0] for name in ids))

    def group(self, name: str) -> str:
        return name.partition("::")[0]

    def replay(self, ids: Sequence[str], contents: Mapping[str, bytes], seconds: float) -> ReplayProgram | None:
        """Programs that call those of these tests which do not need their framework; None if all do.

        `contents` has the files with the tests; the calls are repeated for `seconds`.
        """
        framework = self.suite.framework
        if framework == "mocha" or self.suite.directory:
            return None
        paths = dict.fromkeys(name.partition("::")[0] for name in ids)
        source = _replay_source if framework == "node" else _loading_source
        texts = {path: source(contents.get(path, b"")) for path in paths if _PLAIN_SCRIPT.search(path)}
        by_path = {path: [name for name in ids if name.startswith(f"{path}::")] for path, text in texts.items() if text}
        if not by_path:
            return None
        files = [
            {"path": path, "text": texts[path], "loads": _LOADS in texts[path] and framework != "node", "ids": names}
            for path, names in by_path.items()
        ]
        program = Path(__file__).with_name("script_replay.js").read_text("utf-8")
        steps = []
        for shifted, environment in ((False, {}), (True, OTHER_ENVIRONMENT)):
            job = {"framework": framework, "files": files, "seconds": seconds, "pause": REPLAY_PAUSE}
            text = f"(() => {{\nconst job = {json.dumps({**job, 'shifted': shifted})};\n{program}}})();"
            timeout = REPLAY_TIMEOUT + 10 * seconds
            steps.append(SupervisorStep(argv=("node", "-e", text), timeout=timeout, env=environment, channel=True))
        chosen_ids = tuple(name for names in by_path.values() for name in names)
        return ReplayProgram(ids=chosen_ids, paths=tuple(by_path), steps=tuple(steps))

    def copies(
        self, ids: Sequence[str], contents: Mapping[str, bytes], random: Random, *, in_place: bool
    ) -> CopiedTests:
        return ScriptCopies(self.suite.framework, contents, random).made(ids, in_place=in_place)


def _replay_source(content: bytes) -> str:
    """The text of a test file, with `import` lines of whole modules as calls of `require`; empty if it needs more."""
    text = _IMPORT.sub(_required, content.decode("utf-8", "replace"))
    return "" if _MODULE.search(text) else text


def _loading_source(content: bytes) -> str:
    """The text of a test file with `import` lines that await modules; empty if it needs more."""
    text = _IMPORT.sub(_loaded, content.decode("utf-8", "replace"))
    text = _EFFECT.sub(rf"{_LOADS}\g<module>);", text)
    return "" if _MODULE.search(text) else text


def _loaded(found: re.Match[str]) -> str:
    names, module = found["names"].strip(), f"({_LOADS}{found['module']}))"
    default, _, others = (part.strip() for part in names.partition(","))
    if not re.fullmatch(r"[\w$]+", default):
        default, others = "", names
    lines = [f"const {default} = {module}.default;"] if default else []
    if others.startswith("{"):
        lines.append(f"const {re.sub(r' as ', ': ', others)} = {module};")
    elif others:
        lines.append(f"const {others.removeprefix('* as ')} = {module};")
    return " ".join(lines)


def _required(found: re.Match[str]) -> str:
    names, module = found["names"].strip(), found["module"]
    if names.startswith("{"):
        return f"const {re.sub(r' as ', ': ', names)} = require({module});"
    name = names.removeprefix("* as ").strip()
    return f"const {name} = require({module});" if re.fullmatch(r"[\w$]+", name) else found[0]


class ScriptReports:
    """The messages of one execution."""

    def __init__(self, separator: str) -> None:
        self._separator = separator
        self._tests: dict[str, list[CaseOutcome]] = {}
        self._files: dict[str, str] = {}
        self._ended = False
        self.problem = ""

    def read(self, text: str) -> None:
        message = _message(text)
        if self._ended:
            self.problem = self.problem or "Results came after the end of the tests."
        match message:
            case ["test", str(file), list(titles), "passed" | "failed" | "skipped" as status, str(failure)]:
                name = f"{file}::{self._separator.join(map(str, titles))}"
                self._tests.setdefault(name, []).append(CaseOutcome(_status(status), failure))
            case ["file", str(file), str(failure)]:
                self._files[file] = failure
            case ["end"]:
                self._ended = True
            case _:
                self.problem = self.problem or "A result has a form that our program does not send."

    def all_of_it(self) -> dict[str, tuple[tuple[str, CaseOutcome], ...]]:
        found = {name: tuple((name, outcome) for outcome in each) for name, each in self._tests.items()}
        errors = {path: ((path, CaseOutcome("error", text, plain=False)),) for path, text in self._files.items()}
        return {**errors, **found}

    def outcomes(self, name: str, output: bytes) -> tuple[tuple[str, CaseOutcome], ...]:
        if name in self._tests:
            return tuple((name, outcome) for outcome in self._tests[name])
        file = name.partition("::")[0]
        below = [
            (one, outcome) for one, found in self._tests.items() if one.startswith(f"{name}::") for outcome in found
        ]
        if below or file not in self._files:
            return tuple(below)
        # The report only says that the file failed; the output has the reason.
        text = f"{self._files[file]}\n{plain(output[-4 * _TAIL :].decode(errors='replace'))[-_TAIL:]}"
        return ((name, CaseOutcome("error", text, plain=False)),)

    @property
    def _failed(self) -> bool:
        return bool(self._files) or any(one.status == "failed" for found in self._tests.values() for one in found)

    def contradiction(self, ended: StepEnd) -> str:
        """Why these cannot be all results of a suite; its exit code may have other reasons than tests."""
        if ended.timed_out:
            return ""
        if not self._ended:
            return f"The tests did not come to their end (exit code {ended.exit_code})."
        return "The exit code is 0 although a test failed." if self._failed and ended.exit_code == 0 else ""

    def disagreement(self, ended: StepEnd) -> str:
        if ended.timed_out:
            return ""
        if not self._ended and not self._tests:
            return ""  # nothing at all was reported: the framework itself may not have started
        if wrong := self.contradiction(ended):
            return wrong
        if not self._failed and ended.exit_code != 0 and self._tests:
            return f"The exit code is {ended.exit_code} although no test failed."
        return ""


def _status(word: str) -> Status:
    words: Mapping[str, Status] = {"passed": "passed", "failed": "failed", "skipped": "skipped"}
    return words[word]


def _message(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
