"""Attacks on the verdict by hostile or careless authors and fixers, and honest work, each as data."""

import os
from collections.abc import Callable, Sequence

import pytest
from _pytest.mark import ParameterSet

from app.core.verification import Verdict
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from tests.attacks.proof.corpus import Case, attacks, fixes, misread, mutants
from tests.attacks.proof.trial import Trials

RANK: Sequence[Verdict] = ("broken", "unproved", "tested", "proved")


@pytest.fixture(scope="session")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Trials:
    root = tmp_path_factory.mktemp("proof")
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    return Trials(BubblewrapProvider(root / "sandboxes", caches=root / "caches", environment=environment))


def cases(chosen: Sequence[Case], *, quick: bool) -> list[ParameterSet]:
    def marks(case: Case) -> Sequence[pytest.MarkDecorator]:
        known = [pytest.mark.xfail(raises=AssertionError, strict=True, reason=case.known)] if case.known else []
        return [*known, *([] if quick else [pytest.mark.full]), pytest.mark.xdist_group(case.of)]

    return [
        pytest.param(case, id=f"{case.family}: {case.name}", marks=marks(case))
        for case in chosen
        if case.quick == quick
    ]


async def held(trials: Trials, case: Case, record: Callable[[str, object], None]) -> None:
    record("family", case.family)
    assert await trials.prints(case) != (case.expected or case.bug.expected), "this is no attack: it does what is right"
    found = await trials.verdict(case)
    record("verdict", found.verdict)
    assert RANK.index(found.verdict) <= RANK.index(case.at_most), (found.verdict, found.rules, found.reasons)
    assert found.verdict == "proved" or found.rules, "each refusal names its rule"
    assert not case.rules or set(case.rules) & set(found.rules), found.rules


async def honoured(trials: Trials, case: Case, record: Callable[[str, object], None]) -> None:
    record("family", case.family)
    assert await trials.prints(case) == (case.expected or case.bug.expected)
    found = await trials.verdict(case)
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


@pytest.mark.parametrize("case", cases(misread(), quick=False))
async def test_what_no_verdict_can_know(
    case: Case, trials: Trials, record_property: Callable[[str, object], None]
) -> None:
    await held(trials, case, record_property)
