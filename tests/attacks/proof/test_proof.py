"""Attacks on the verdict, honest fixes and broken ones as data, each with the real verifier and without a reviewer."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
import yaml
from _pytest.mark import ParameterSet

from app.agent.base import Submission
from app.core.examples import Because, Example, Review, Run
from app.core.patch import Mode
from app.core.record import Record
from app.core.verification import BaselineResult
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from tests.support.sandbox_projects import patch_of
from tests.support.sandboxes import provider
from tests.support.verifier_trial import Trial

__all__ = ["provider"]

HERE = Path(__file__).parent
REVIEW = Review(nothing="Nobody was asked.")
KNOWN: Final = (
    "broken fixes: touching ends do not count",
    "forged suite: node's assertions are replaced",
    "forged suite: unittest's assertions are replaced",
    "forged suite: unittest's recorders take failures as successes",
    "forged suite: unittest's report is printed, and the process ends",
    "knows tests: NODE_ENV",
    "knows tests: no network",
    "knows tests: sys.argv",
    "knows tests: the container's name of the user",
    "knows tests: the main module",
    "knows tests: the number of loaded modules",
    "knows tests: the process is young",
    "knows tests: the sandbox's place",
    "other conditions: a count that is kept for very long",
    "other conditions: a result is emptied a little later",
    "other conditions: a year by another clock",
    "other conditions: no main module in JavaScript",
    "other conditions: no terminal is named in the environment",
    "other conditions: nobody sits at a terminal",
    "other conditions: only outside of a browser in JavaScript",
    "other conditions: only where the project is not installed",
    "other conditions: results with a hidden method in JavaScript",
    "other conditions: sums that no test is large enough for",
    "other conditions: the name of the machine",
    "special cases: only the held-back tests' kind",
)
"""These end `proved` although they are wrong: the code is right wherever examples and suite look at it, or it forges
the suite's own report. A reviewer has to find them."""


class Edited(Record):
    """How a file is changed: `swap` replaces text that is there, `top` and `end` are added, `link` makes it a link."""

    swap: tuple[tuple[str, str], ...] = ()
    top: str = ""
    end: str = ""
    link: str = ""

    def applied(self, text: str) -> str:
        for old, new in self.swap:
            assert old in text, f"there is no {old!r}"
            text = text.replace(old, new)
        return self.link or f"{self.top}{text}{self.end}"


Changes = Mapping[str, str | Edited | None]
"""New contents by path; None deletes."""


class Bug(Record):
    """An issue and its examples: what behaves how, the program behind `imports`, and what it prints."""

    issue: str
    imports: str
    shows: tuple[tuple[str, str, str], ...]
    keeps: tuple[tuple[str, str, str], ...] = ()
    fix: Changes | None = None

    def examples(self, run: Run) -> Iterator[Example]:
        because = Because(quote=self.issue.partition("\n")[0], source="issue")
        for behaviour, body, printed in (*self.shows, *self.keeps):
            one = Example(behaviour=behaviour, because=because, run=run, program=f"{self.imports}\n\n{body}\n")
            kind = "shows" if (behaviour, body, printed) in self.shows else "keeps"
            yield one.model_copy(update={"kind": kind, "stdout": f"{printed}\n"})


class Project(Record):
    run: Run
    files: Mapping[str, str]
    bugs: Mapping[str, Bug]


class Case(Record):
    """What the fixer submits for `project.bug`: `changes`, over the right fix if it is `fixed`.

    `base` is laid over the project before the job begins.
    """

    name: str
    of: str
    family: str
    base: Mapping[str, str] | None = None
    changes: Changes | None = None
    fixed: bool = False
    reproduction: str = ""

    @property
    def id(self) -> str:
        return f"{self.family}: {self.name}"

    @property
    def project(self) -> Project:
        return PROJECTS[self.of.partition(".")[0]]

    @property
    def bug(self) -> Bug:
        return self.project.bugs[self.of.partition(".")[2]]

    def changed(self, files: Mapping[str, str]) -> tuple[dict[str, str | bytes | None], dict[str, Mode]]:
        """The contents and modes of what is changed."""
        after: dict[str, str | bytes | None] = {}
        modes: dict[str, Mode] = {}
        for changes in ((self.bug.fix or {}) if self.fixed else {}, self.changes or {}):
            for path, change in changes.items():
                before = str(after.get(path, files.get(path, "")))
                after[path] = change.applied(before) if isinstance(change, Edited) else change
                if isinstance(change, Edited) and change.link:
                    modes[path] = "120000"
        return after, modes


PROJECTS = {
    name: Project.model_validate(given)
    for name, given in yaml.safe_load((HERE / "projects.yaml").read_text("utf-8")).items()
}
_KNOWN: dict[str, BaselineResult] = {}
"""What is known of each base, with its examples."""


def cases() -> Iterator[Case]:
    for path in sorted(HERE.glob("*/*.yaml")):
        family = {"fixes": "honest fixes", "mutants": "broken fixes"}.get(path.stem, path.stem.replace("_", " "))
        for given in yaml.safe_load(path.read_text("utf-8")):
            yield Case.model_validate({"family": family, **given})
    bugs = ((f"{name}.{bug}", given) for name, project in PROJECTS.items() for bug, given in project.bugs.items())
    yield from (Case(name=of, of=of, family="honest fixes", fixed=True) for of, bug in bugs if bug.fix)


def parameters() -> Iterator[ParameterSet]:
    """The first of each family is always tried."""
    seen = set[str]()
    for case in cases():
        marks = [pytest.mark.xdist_group(case.of), *([pytest.mark.full] if case.family in seen else [])]
        seen.add(case.family)
        yield pytest.param(case, id=case.id, marks=marks)


@pytest.mark.parametrize("case", tuple(parameters()))
async def test_verdict(
    case: Case, provider: BubblewrapProvider, record_property: Callable[[str, object], None]
) -> None:
    trial = Trial(provider, {**case.project.files, **(case.base or {})}, text=case.bug.issue)
    if trial.key not in _KNOWN:
        _KNOWN[trial.key] = await trial.planned(*case.bug.examples(case.project.run))
    known = _KNOWN[trial.key].model_copy(update={"review": REVIEW})
    patch, submission = (
        patch_of(*case.changed(trial.files)),
        Submission(summary="Done.", reproduction=case.reproduction),
    )
    begun = time.monotonic()
    found = (await trial.verifier.verify(patch, submission, known)).verification
    record_property("seconds", time.monotonic() - begun)
    record_property("family", case.family)
    record_property("verdict", found.verdict)
    said = (found.verdict, found.rules, found.reasons)
    if case.family == "honest fixes" or case.id in KNOWN:
        assert found.verdict == "proved", said
    elif case.family == "broken fixes":
        assert found.verdict == "broken", said
    else:
        assert found.verdict != "proved", said
