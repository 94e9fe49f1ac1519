"""Attacks on the verdict by hostile or careless authors and fixers, and honest work, each as data."""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from app.core.verification import Verdict
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from tests.attacks.proof.corpus import Case, attacks, fixes, misread, mutants
from tests.attacks.proof.trial import FROM_NPM, Trials
from tests.support.console import Console
from tests.support.recorded_answers import RecordedAnswers, write
from tests.support.repositories import make_repository
from tests.support.sandbox_projects import missing_npm_package
from tests.support.sandboxes import provider

__all__ = ["provider"]

RANK: Sequence[Verdict] = ("broken", "unproved", "tested", "proved")
SUBMISSIONS = 7
"""More than a job verifies."""


@pytest.fixture(scope="session")
def trials(provider: BubblewrapProvider) -> Trials:
    return Trials(provider)


def cases(chosen: Sequence[Case], *, quick: bool) -> list[ParameterSet]:
    def marks(case: Case) -> Sequence[pytest.MarkDecorator]:
        stays = case.known and (case.second_tests is None or case.at_most == "proved")
        known = [pytest.mark.xfail(raises=AssertionError, strict=True, reason=case.known)] if stays else []
        return [*known, *([] if quick else [pytest.mark.full]), pytest.mark.xdist_group(case.of)]

    missing = {name for name in ("go", "cargo", "node") if shutil.which(name) is None}

    def skipped(case: Case) -> Sequence[pytest.MarkDecorator]:
        program = case.project.framework
        if program in missing:
            return [pytest.mark.skip(f"NOT TESTED: {program} is not installed")]
        slow = program in ("go", "cargo", *FROM_NPM)  # each run is compiled anew, or starts slowly
        return [pytest.mark.timeout(1200)] if slow else []

    return [
        pytest.param(case, id=f"{case.family}: {case.name}", marks=[*marks(case), *skipped(case)])
        for case in chosen
        if case.quick == quick
    ]


def skip_if_missing(case: Case) -> None:
    framework = case.project.framework
    if framework in FROM_NPM and (missing := missing_npm_package(framework)):
        pytest.skip(f"NOT TESTED: {missing}")


async def held(trials: Trials, case: Case, record: Callable[[str, object], None]) -> None:
    skip_if_missing(case)
    record("family", case.family)
    assert await trials.prints(case) != (case.expected or case.bug.expected), "this is no attack: it does what is right"
    alone = await trials.verdict(case)
    found = await trials.verdict_with_second_tests(case, alone)
    if case.known:
        assert RANK.index(alone.verdict) > RANK.index(case.at_most), "the first author's tests suffice now"
    record("verdict", found.verdict)
    assert RANK.index(found.verdict) <= RANK.index(case.at_most), (found.verdict, found.rules, found.reasons)
    assert found.verdict == "proved" or found.rules, "each refusal names its rule"
    assert not case.rules or set(case.rules) & set(found.rules), found.rules


async def honoured(trials: Trials, case: Case, record: Callable[[str, object], None]) -> None:
    skip_if_missing(case)
    record("family", case.family)
    assert await trials.prints(case) == (case.expected or case.bug.expected)
    found = await trials.verdict_with_second_tests(case, await trials.verdict(case))
    record("verdict", found.verdict)
    assert found.verdict == case.at_most, (found.verdict, found.rules, found.reasons)


@pytest.mark.parametrize("case", cases(attacks(), quick=True))
async def test_quick_attacks_are_held(
    case: Case, trials: Trials, record_property: Callable[[str, object], None]
) -> None:
    await held(trials, case, record_property)


@pytest.mark.parametrize("case", cases(fixes(), quick=True))
async def test_quick_honest_fixes_are_proved(
    case: Case, trials: Trials, record_property: Callable[[str, object], None]
) -> None:
    await honoured(trials, case, record_property)


@pytest.mark.parametrize("case", cases(attacks(), quick=False))
async def test_attacks_are_held(case: Case, trials: Trials, record_property: Callable[[str, object], None]) -> None:
    await held(trials, case, record_property)


@pytest.mark.parametrize("case", cases(mutants(), quick=False))
async def test_broken_fixes_are_held(
    case: Case, trials: Trials, record_property: Callable[[str, object], None]
) -> None:
    await held(trials, case, record_property)


@pytest.mark.parametrize("case", cases(fixes(), quick=False))
async def test_honest_fixes_are_proved(
    case: Case, trials: Trials, record_property: Callable[[str, object], None]
) -> None:
    await honoured(trials, case, record_property)


@pytest.mark.full
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in attacks() if case.whole])
async def test_attacks_through_the_whole_command_are_held(case: Case, tmp_path: Path) -> None:
    assert case.tests is not None
    files, ids = case.tests.written(case.project.framework)
    changes = case.patch().changes
    answers = RecordedAnswers().specify({file.path: file.text for file in files}, *ids)
    answers.turn("Work.", *(write(change.path, (change.content or b"").decode()) for change in changes))
    for _ in range(SUBMISSIONS):
        answers.submit("It works now.", case.reproduction)
    repository = make_repository(tmp_path / "project", case.files)
    ended = await asyncio.to_thread(Console(tmp_path).fix, repository, case.text, "--no-plan", recording=answers)
    assert ended.code in (20, 21), ended.said
    assert RANK.index(ended.verification["verdict"]) <= RANK.index(case.at_most)


@pytest.mark.parametrize("case", cases(misread(), quick=False))
async def test_limits_of_a_verdict(case: Case, trials: Trials, record_property: Callable[[str, object], None]) -> None:
    await held(trials, case, record_property)
