"""Calls what the tests call without the test framework, and compares the results with what the tests ask for."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.core.patch import Patch, Tree
from app.core.python_source import parse_python, python_literal
from app.core.verification import Control, ControlName, TestSelection
from app.verify.frameworks import SuiteCommand
from app.verify.launcher import launcher_of
from app.verify.launcher.base import UNKNOWN_FORM, OddResult, ReplayReport, SupervisorAnswer, supervise
from app.verify.overlay import apply_patch
from app.verify.project import ProjectUnderTest
from app.verify.reports import json_line
from app.verify.sources.analysis import SourceAnalysis


def read_replay(answer: SupervisorAnswer, token: str = "") -> ReplayReport:
    """One program for each of the steps; a phase that was not reached has no outcomes."""
    outcomes: dict[str, dict[str, tuple[str, str]]] = {}
    odd: list[OddResult] = []
    left: set[str] = set()
    problem, unfinished = answer.problem, False
    for step in answer.steps:
        problem = problem or step.problem
        ended = False
        lines = step.output.decode("utf-8", "replace").splitlines() if token else []
        for text in step.messages or [line.removeprefix(token) for line in lines if line.startswith(token)]:
            match _message(text):
                case ("result", str(name), str(phase), str(kind), str(shown)) if not ended:
                    outcomes.setdefault(phase, {})[name] = (kind, shown)
                case ("odd", str(name), str(kind), list(methods)) if not ended:
                    try:
                        own = tuple((str(one), str(file), int(line)) for one, file, line in methods)
                        odd.append(OddResult(name, kind, own))
                    except (TypeError, ValueError):
                        problem = problem or UNKNOWN_FORM
                case ("left", str(name)) if not ended:
                    left.add(name)
                case ("end",):
                    ended = True
                case _:
                    problem = problem or UNKNOWN_FORM
        unfinished = unfinished or not ended
    return ReplayReport(outcomes, tuple(odd), problem, unfinished, frozenset(left))


def _message(text: str) -> Any:
    """A Python literal or JSON; an empty tuple for anything else."""
    if (message := python_literal(text)) is None:
        message = json_line(text)
    return () if message is None else message


SECONDS = 0.5
"""How long the calls are repeated."""
MAX_SECONDS = 60.0
"""Tests of which one run takes longer are not called again."""
MAX_NAMED = 2

PHASES: Mapping[ControlName, Mapping[str, str]] = {
    "replay_agrees": {
        "ended": "when it runs without the test framework",
        "loaded": "when it is loaded without the test framework",
        "first": "in a plain program",
        "plain": "when it is called without the test framework",
        "deep": "with more calls around it",
        "many": "when it is repeated in one process",
        "kept": "once other calls were made",
    },
    "conditions_agree": {
        "thread": "in another thread",
        "forked": "in a forked process",
        "worker": "in a worker",
        "collected": "after the garbage collector ran",
        "shifted": "in a process of another kind (optimised, with another time zone, directory, place and year)",
        "loop": "while an event loop runs",
        "pause": "after a pause",
        "task": "in a callback",
    },
    "children_end": {
        "forked_end": "to finish in a forked process, so its result there is not known",
        "worker_end": "to finish in a worker, so its result there is not known",
    },
    "arguments_stay": {
        "arguments": "if calls have to leave their arguments as they are, as on the base",
        "process": "if calls have to leave the output and settings of their process as they are, as on the base",
    },
    "other_calls_agree": {
        "varied": "if it is called as on the base: in other forms, with much or wrong values, after calls that failed",
    },
}
"""What a test failed in, by control."""
REPLAY_CONTROLS: tuple[ControlName, ...] = (*PHASES, "results_are_plain")

_VARYING = re.compile(r"^in call \d+: |0x[0-9a-f]+")


_CLASS_JSON = "toJSON of a class"
"""What the program for JavaScript notes of a result whose class writes itself as other JSON than the test expects."""

NOTHING = ReplayReport({})


@dataclass(frozen=True, slots=True)
class Replayed:
    """The tests that were called so on one tree, and what was reported; `why_not` if there were none."""

    ids: tuple[str, ...] = ()
    report: ReplayReport = NOTHING
    why_not: str = ""

    def outcome(self, phase: str, name: str) -> tuple[str, str]:
        if phase == "ended":
            return ("ended", "the process did not finish") if self.report.unfinished else ("", "")
        return self.report.outcomes.get(phase, {}).get(name, ("", ""))

    def failures(self) -> Iterator[tuple[str, str]]:
        """Phase and id of every test that did not pass."""
        for phase in (phase for phases in PHASES.values() for phase in phases):
            for name in self.ids:
                if self.outcome(phase, name)[0]:
                    yield phase, name


async def replay_tests(
    suite: SuiteCommand, selection: TestSelection, project: ProjectUnderTest, patch: Patch | None, *, name: str
) -> Replayed:
    """Call the tests on base (patch None) or base plus patch, in a fresh sandbox that does not have their files."""
    changes = (*(patch.changes if patch else ()), *selection.files)
    contents = {change.path: change.content for change in changes if change.content is not None}
    launcher = launcher_of(suite)
    program = launcher.replay(selection.ids, contents, SECONDS)
    why_not = launcher.why_not_replayed or f"these {suite.framework} tests cannot be called without their framework."
    if program is None:
        return Replayed(why_not=why_not)
    base = patch.base if patch else ""
    along = apply_patch(patch, Patch(base=base, changes=selection.files)) or Patch(base=base, changes=())
    without = tuple(change for change in along.changes if change.path not in program.paths)
    async with project.open(name, along.model_copy(update={"changes": without})) as sandbox:
        answer = await supervise(sandbox, program.steps)
    report = read_replay(answer, program.token)
    ids = tuple(name for name in program.ids if _was_called(name, report))
    return Replayed(ids, report, "" if ids or report.problem else why_not)


def _was_called(name: str, report: ReplayReport) -> bool:
    """False if it needs its framework, or no call told anything, as when a test of JavaScript waits for a promise."""
    if name in report.left:
        return False
    if report.unfinished or any(one.test == name for one in report.odd):
        return True
    found = {phase: outcomes[name][0] for phase, outcomes in report.outcomes.items() if name in outcomes}
    return any(found.values()) or not {"first", "plain", "shifted"}.isdisjoint(found)


def head_only_failures(head: Replayed, base: Replayed, texts: Mapping[str, str]) -> list[tuple[str, str]]:
    """The failures on the head that the base does not explain. `texts` are the framework's failure texts on the base.

    A test is excused if, without its framework or under the same condition, it already ends differently on the base.
    """
    return [found for found in head.failures() if not _excused(*found, head, base, texts)]


def _excused(phase: str, name: str, head: Replayed, base: Replayed, texts: Mapping[str, str]) -> bool:
    if phase == "arguments":  # there is no result where the test did not come to a call
        return base.report.outcomes.get(phase, {}).get(name, ("not reached", ""))[0] != ""
    if phase in ("process", "varied"):
        found, before = _entries(head.outcome(phase, name)[1]), _entries(base.outcome(phase, name)[1])
        new = (problem and not before.get(what, phase == "varied") for what, problem in found.items())
        return bool(found) and not any(new)  # our programs name each failure
    if name not in texts or phase == "ended" or phase in PHASES["children_end"]:  # it passes or ends on the base
        return base.outcome(phase, name)[0] != ""
    loaded, plain = base.outcome("loaded", name), base.outcome("plain", name)
    kind = loaded[0] or plain[0]
    if not kind or (kind not in texts[name] and kind != "AssertionError"):
        return True
    if loaded[0] or phase in ("loaded", "plain", "kept"):
        return False
    return _failure(base.outcome(phase, name)) != _failure(plain)


def _entries(text: str) -> dict[str, Any]:
    """What was looked at, each with its problem, if there is one."""
    found = _message(text)
    return {str(one): True for one in found} if isinstance(found, list) else found if isinstance(found, dict) else {}


def _failure(outcome: tuple[str, str]) -> tuple[str, str]:
    """What can be compared: no addresses, and not how often it was called before."""
    return outcome[0], _VARYING.sub("", outcome[1])


def replay_controls(head: Replayed, failures: list[tuple[str, str]], odd: list[str]) -> list[Control]:
    """The controls, by the failures that count and the results of an odd type."""
    if head.report.problem:
        return [control(name, head.report.problem) for name in REPLAY_CONTROLS]
    if head.why_not or (head.report.unfinished and not failures):
        detail = head.why_not or "without their framework these tests do not finish on the base, either."
        return [Control(name=name, outcome="not_run", detail=detail) for name in REPLAY_CONTROLS]
    found: list[Control] = []
    for control_name, phases in PHASES.items():
        # What is compared is not shown: the agent reads this, and a test may be hidden from it.
        wrong = [f"{name} fails {phases[phase]}" for phase, name in failures if phase in phases]
        found.append(control(control_name, joined(wrong, MAX_NAMED)))
    return [*found, control("results_are_plain", joined(odd, MAX_NAMED))]


def control(name: ControlName, wrong: str = "") -> Control:
    """One that failed for this reason, or held if there is none."""
    return Control(name=name, outcome="failed" if wrong else "held", detail=wrong)


def joined(sentences: Sequence[str], most: int) -> str:
    """The first of several findings as one sentence; empty if there are none."""
    more = f" (and {len(sentences) - most} more)" if len(sentences) > most else ""
    return f"{'; '.join(sentences[:most])}{more}." if sentences else ""


def other_types(head: Replayed) -> list[OddResult]:
    """The results of another type than what the tests compare them with."""
    return [one for one in head.report.odd if not one.methods]


def odd_results(head: Replayed, of_base: Replayed, sources: SourceAnalysis) -> list[str]:
    """The results whose class changes a built-in type in a way that the base does not have, or is another one than
    the expected value's and the base's result."""
    found = [f"{one.test} gets a {one.kind}" for one in other_types(head) if one not in other_types(of_base)]
    for one in head.report.odd:
        wrong = [name for name, file, line in one.methods if not _on_base(one.kind, name, file, sources)]
        if wrong:
            found.append(f"{one.test} gets a {one.kind} with its own {', '.join(sorted(set(wrong)))}")
    return found


def _on_base(kind: str, name: str, file: str, sources: SourceAnalysis) -> bool:
    """True if the base has the same method of the same class in the file."""
    base, patch = sources.base, sources.patch
    path = max((each for each in base.entries() if file.endswith(f"/{each}")), key=len, default=None)
    if path is None:
        return name == _CLASS_JSON and not _adds(b"toJSON", base, patch)
    after = next((change.content for change in patch.changes if change.path == path), None)
    before = _method(base.read(path), kind, name)
    return before is not None and (after is None or before == _method(after, kind, name))


def _adds(word: bytes, base: Tree, patch: Patch) -> bool:
    """True if the patch brings the word into a file that did not have it."""
    changed = {change.path: change.content for change in patch.changes if change.content and word in change.content}
    before = base.read_many([path for path in changed if path in base.entries()])
    return any(word not in before.get(path, b"") for path in changed)


def _method(content: bytes, kind: str, name: str) -> str | None:
    module = parse_python(content)
    body = module.body if module else []
    for part in kind.split("."):
        body = next((node.body for node in body if isinstance(node, ast.ClassDef) and node.name == part), [])
    return next((ast.dump(node) for node in body if isinstance(node, ast.FunctionDef) and node.name == name), None)
