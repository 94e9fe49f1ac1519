"""A slice of `bench.edits`: clean edits apply, spoiled ones are recovered, and none is made at a wrong place."""

import random
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.support.edits.corpus import Source
from tests.support.edits.judge import Fate, judge
from tests.support.edits.kinds import CLEAN, HOPELESS, KINDS, RECOVERABLE, cases
from tests.support.edits.samples import SAMPLES

CASES = 720
FILES = sorted((Path(__file__).parents[3] / "demo" / "sample").rglob("*.py"))
"""Files that stay as they are, or every change of ours would change what is measured."""


@cache
def judged() -> dict[str, Counter[Fate]]:
    """Fates by kind, of edits of the demo's project and of the samples."""
    sources = [Source(path.name, path.read_text("utf-8")) for path in FILES] + list(SAMPLES) * 4
    fates: dict[str, Counter[Fate]] = {name: Counter() for name in KINDS}
    for case in cases(sources, random.Random(7), CASES):
        fates[case.kind][judge(case).fate] += 1
    return fates


def total(group: str) -> Counter[Fate]:
    return sum((fates for name, fates in judged().items() if KINDS[name].group == group), Counter())


def test_generated_edits_cover_every_kind() -> None:
    assert sum(sum(fates.values()) for fates in judged().values()) == CASES
    assert all(sum(fates.values()) >= CASES // len(KINDS) - 1 for fates in judged().values())


@pytest.mark.parametrize(("group", "least"), [(CLEAN, 0.995), (RECOVERABLE, 0.97)])
def test_edits_apply(group: str, least: float) -> None:
    """`bench.edits` measures more, over larger files. In these, lines that tell one place from another are few."""
    fates = total(group)
    assert fates["applied"] >= least * sum(fates.values()), {n: f for n, f in judged().items() if f["refused"]}


def test_no_edit_is_applied_at_a_wrong_place() -> None:
    assert {name: fates for name, fates in judged().items() if fates["wrong"]} == {}


def test_edits_without_a_matching_place_are_refused() -> None:
    assert total(HOPELESS)["applied"] == 0
