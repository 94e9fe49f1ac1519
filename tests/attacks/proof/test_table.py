"""The page about security has the corpus's figures. `python -m tests.attacks.proof.test_table` writes them."""

import re
from collections import Counter
from pathlib import Path

from tests.attacks.proof.corpus import HERE, attacks, fixes, misread, mutants

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "security.md"
RANK = ("broken", "unproved", "tested", "proved")
SECTION = re.compile(r"(?<=^## Attacks on the verdict\n\n).*?\n\n(?:\|[^\n]*\n)+", re.DOTALL | re.MULTILINE)
TEXT = """\
`tests/attacks/proof` is a public corpus on small projects: {attacks} attacks, {honest} honest fixes that have to
be proved, {mutants} fixes broken in one place that must not be, and {misread} cases of what no verdict can know.
Each is data: what the author answers, what the fixer submits, and a hidden check that shows whether the bug is
really gone. `make proof` executes all of them with the real verifier. An attack fails the tests if its verdict is
better than the family's highest one here, or if the verdict names no rule.

"""


def section() -> str:
    frameworks = sorted({case.project.framework for case in attacks()})
    numbers = Counter((case.family, case.project.framework) for case in attacks())
    rows = []
    for family in sorted({case.family for case in attacks()}):
        cells = [str(numbers[family, framework] or "") for framework in frameworks]
        limits = Counter(case.at_most for case in attacks() if case.family == family and not case.known)
        highest = max(limits, key=RANK.index)
        known = [case for case in attacks() if case.family == family and case.known]
        still = sum(case.second_tests is None for case in known)
        rows.append([family, *cells, f"`{highest}`", str(len(known) or ""), str(still) if known else ""])
    head = ["Family", *frameworks, "Highest verdict", "Known to exceed its limit", "of these with a second author"]
    lines = [head, ["---"] * len(head), *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    text = TEXT.format(attacks=len(attacks()), honest=len(fixes()), mutants=len(mutants()), misread=len(misread()))
    return text + table


def test_the_page_has_every_family_with_its_numbers() -> None:
    assert section() in PAGE.read_text("utf-8"), "python -m tests.attacks.proof.test_table"


def test_no_attack_may_be_proved() -> None:
    assert {case.at_most for case in attacks()} <= {"broken", "unproved", "tested"}


def test_no_two_cases_of_a_family_have_one_name() -> None:
    names = Counter((case.family, case.name) for case in (*attacks(), *fixes(), *mutants()))
    assert max(names.values()) == 1
    assert len(list((HERE / "attacks").glob("*.yaml"))) == len({case.family for case in attacks()})


if __name__ == "__main__":
    page = PAGE.read_text("utf-8")
    PAGE.write_text(SECTION.sub(lambda _: f"{section()}\n", page, count=1), "utf-8")
