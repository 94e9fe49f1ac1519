"""Which number of a gate's output is compared: real tools' last lines, and what only looks like a number."""

import pytest

from app.verify.gates.programs import last_number

COVERAGE = """\
Name          Stmts   Miss  Cover
---------------------------------
app.py           80     12    85%
TOTAL           120     15  87.5%
3 passed in 0.12s
"""
MUTMUT = "⠋ 41/41  🎉 33  ⏰ 0  🤔 1  🙁 7\nscore: 80.5 %\n"
GO = "ok  \texample.org/mod\t0.003s\ncoverage: 66.7% of statements\n"


@pytest.mark.parametrize(
    ("output", "metric", "number"),
    [
        (COVERAGE, "TOTAL", 87.5),
        (COVERAGE, None, 3),  # the last line with a number, whatever it counts: `metric` says which is meant
        (MUTMUT, "score", 80.5),
        (GO, "coverage:", 66.7),
        ("Branches : 71.43% ( 10/14 )\nLines : 90.1%", "Lines", 90.1),
        ("1,234 warnings\n", None, 1234),
        ("x -3\n", None, -3),
        ("rated at 9.50/10\n", "rated", 10),
        ("took 2.5s\n", None, None),
        ("py3 of version 1.2.3\n", None, None),
        ("0.5\ntook 2s\n", None, 0.5),
        ("v2 total\n", "v2", None),
        ("", None, None),
        ("TOTAL\n", "SUM", None),
    ],
)
def test_the_last_number_of_the_last_line_that_has_one(output: str, metric: str | None, number: float | None) -> None:
    assert last_number(output, metric) == number
