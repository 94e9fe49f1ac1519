"""The page about the verdict has the corpus's figures."""

from collections import Counter
from pathlib import Path

from tests.attacks.proof.corpus import HERE, attacks, fixes, mutants

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "verdict.md"


def test_the_page_has_every_family_with_its_numbers() -> None:
    known = Counter(case.family for case in attacks() if case.known)
    rows = [
        f"| {family} | {number} | {known[family]} |"
        for family, number in sorted(Counter(case.family for case in attacks()).items())
    ]
    table = "\n".join(["| Family | Attacks | Known to succeed |", "|---|---|---|", *rows])
    total = f"{len(attacks())} attacks, {len(fixes())} honest fixes and {len(mutants())} fixes broken in one place"
    page = PAGE.read_text("utf-8")
    assert table in page, table
    assert total in page, total


def test_no_two_cases_of_a_family_have_one_name() -> None:
    names = Counter((case.family, case.name) for case in (*attacks(), *fixes(), *mutants()))
    assert max(names.values()) == 1
    assert len(list((HERE / "attacks").glob("*.yaml"))) == len({case.family for case in attacks()})
