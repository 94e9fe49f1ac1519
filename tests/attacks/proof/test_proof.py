"""Attacks on the verdict, honest fixes and broken ones as data, each with the real verifier and without a reviewer."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

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
NOTHING = Review(nothing="Nobody was asked.")
KNOWN: Final[Mapping[str, tuple[str, ...]]] = {}
"""Why these end `proved` although they are wrong: a reviewer has to find them."""


class Edited(Record):
    """How a file is changed: `swap` replaces text that is there, `top` and `end` are added, `link` makes it a link."""

    swap: tuple[tuple[str, str], ...] = ()
    top: str = ""
    end: str = ""
    link: str = ""

    def applied(self, before: str) -> str:
        for old, new in self.swap:
            assert old in before, f"there is no {old!r}"
            before = before.replace(old, new)
        return self.link or f"{self.top}{before}{self.end}"


Changes = Mapping[str, str | Edited | None]
"""New contents by path; None deletes."""
NO_CHANGES: Changes = {}
NO_FILES: Mapping[str, str] = {}


class Bug(Record):
    """An issue and its examples: what behaves how, the program behind `imports`, and what it prints."""

    issue: str
    imports: str
    shows: tuple[tuple[str, str, str], ...]
    keeps: tuple[tuple[str, str, str], ...] = ()
    fix: Changes = NO_CHANGES

    def examples(self, run: Run) -> Iterator[Example]:
        because = Because(quote=self.issue.partition("\n")[0], source="issue")
        kinds: Mapping[Literal["shows", "keeps"], tuple[tuple[str, str, str], ...]]
        kinds = {"shows": self.shows, "keeps": self.keeps}
        for kind, chosen in kinds.items():
            for behaviour, body, stdout in chosen:
                program = f"{self.imports}\n\n{body}\n"
                yield Example(
                    behaviour=behaviour, because=because, kind=kind, run=run, program=program, stdout=f"{stdout}\n"
                )


class Project(Record):
    run: Run
    files: Mapping[str, str]
    bugs: Mapping[str, Bug]


PROJECTS = {
    name: Project.model_validate(given)
    for name, given in yaml.safe_load((HERE / "projects.yaml").read_text("utf-8")).items()
}


class Case(Record):
    """What the fixer submits for `project.bug`: `changes`, over the right fix if it is `fixed`.

    `base` is laid over the project before the job begins.
    """

    name: str
    of: str
    family: str
    base: Mapping[str, str] = NO_FILES
    changes: Changes = NO_CHANGES
    fixed: bool = False
    reproduction: str = ""

    async def known(self, provider: BubblewrapProvider) -> tuple[Trial, BaselineResult]:
        """The project, and what is known of it before the change."""
        project, _, bug = self.of.partition(".")
        of = PROJECTS[project]
        trial = Trial(provider, {**of.files, **self.base}, text=of.bugs[bug].issue)
        if trial.key not in _KNOWN:
            _KNOWN[trial.key] = await trial.planned(*of.bugs[bug].examples(of.run))
        return trial, _KNOWN[trial.key].model_copy(update={"review": NOTHING})

    def changed(self, files: Mapping[str, str]) -> tuple[dict[str, str | bytes | None], dict[str, Mode]]:
        """The contents and modes of what is changed."""
        project, _, bug = self.of.partition(".")
        after: dict[str, str | bytes | None] = {}
        modes: dict[str, Mode] = {}
        for changes in (PROJECTS[project].bugs[bug].fix if self.fixed else {}, self.changes):
            for path, change in changes.items():
                before = after.get(path, files.get(path, ""))
                after[path] = change.applied(str(before)) if isinstance(change, Edited) else change
                if isinstance(change, Edited) and change.link:
                    modes[path] = "120000"
        return after, modes


_KNOWN: dict[str, BaselineResult] = {}


def cases() -> Iterator[Case]:
    for path in sorted(HERE.glob("*/*.yaml")):
        family = {"fixes": "honest fixes", "mutants": "broken fixes"}.get(path.stem, path.stem.replace("_", " "))
        for given in yaml.safe_load(path.read_text("utf-8")):
            yield Case.model_validate({"family": family, **given})
    for name, project in PROJECTS.items():
        for bug in (f"{name}.{bug}" for bug, given in project.bugs.items() if given.fix):
            yield Case(name=bug, of=bug, family="honest fixes", fixed=True)


def parameters() -> Iterator[ParameterSet]:
    """The first of each family is always tried."""
    seen = set[str]()
    for case in cases():
        marks = [pytest.mark.xdist_group(case.of), *([pytest.mark.full] if case.family in seen else [])]
        seen.add(case.family)
        yield pytest.param(case, id=f"{case.family}: {case.name}", marks=marks)


@pytest.mark.parametrize("case", tuple(parameters()))
async def test_verdict(
    case: Case, provider: BubblewrapProvider, record_property: Callable[[str, object], None]
) -> None:
    trial, known = await case.known(provider)
    patch = patch_of(*case.changed(trial.files))
    begun = time.monotonic()
    submission = Submission(summary="It works now.", reproduction=case.reproduction)
    found = (await trial.verifier.verify(patch, submission, known)).verification
    record_property("seconds", time.monotonic() - begun)
    record_property("family", case.family)
    record_property("verdict", found.verdict)
    said = (found.verdict, found.rules, found.reasons)
    if case.family == "honest fixes":
        assert found.verdict == "proved", said
    elif any(case.name in names for names in KNOWN.values()):
        assert found.verdict == "proved", f"no longer known: {said}"
    elif case.family == "broken fixes":
        assert found.verdict == "broken", said
    else:
        assert found.verdict != "proved", said
