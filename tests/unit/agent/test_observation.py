"""Observations are plain, small and honest: what is left out is counted, and the whole is kept."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.agent.observation import LIMIT, OVERSHOOT, cut, headline, observe
from app.core.text import plain
from app.sandbox.base import CompletedCommand
from tests.support.output_samples import LEFT_ALONE, OUTPUTS

KEPT = "/tmp/output/7-1.txt"
GAP = re.compile(r"\(… ([\d,]+) lines, ([\d,]+) characters left out; all of it is in (\S+): view or grep it\)")


def shown(output: str, limit: int = LIMIT) -> str:
    return observe(output.encode(), limit=limit, kept_in=KEPT).text


@pytest.mark.parametrize(
    ("done", "line"),
    [
        (CompletedCommand(0, b"", seconds=0.04), "exit 0, 0.0 s"),
        (CompletedCommand(2, b"", seconds=12.34), "exit 2, 12.3 s"),
        (CompletedCommand(137, b"", seconds=3), "exit 137 (signal 9, perhaps out of memory), 3.0 s"),
        (CompletedCommand(139, b"", seconds=3), "exit 139 (signal 11), 3.0 s"),
        (
            CompletedCommand(137, b"", timed_out=True),
            "stopped at its limit of 120 s; everything it had started was ended",
        ),
    ],
)
def test_first_line_shows_exit_code_and_time(done: CompletedCommand, line: str) -> None:
    assert headline(done, 120.0) == line


def test_short_output_is_not_cut() -> None:
    seen = observe(b"one\ntwo\n", limit=LIMIT, kept_in=KEPT)
    assert (seen.text, seen.whole) == ("one\ntwo", None)


def test_empty_output_is_reported() -> None:
    assert shown(" \n\n") == "(no output)"


def test_output_slightly_over_the_limit_is_not_cut() -> None:
    text = "\n".join(f"{n:04} {'x' * 40}" for n in range(250))
    assert LIMIT < len(text) < LIMIT * OVERSHOOT
    assert shown(text) == text


def test_long_output_is_cut_at_lines_with_exact_counts() -> None:
    lines = [f"{n} {'y' * (n % 70)}" for n in range(5_000)]
    text = "\n".join(lines)
    seen = observe(text.encode(), limit=LIMIT, kept_in=KEPT)
    assert seen.whole == text
    head, tail = re.split(r"\n\(… .*\n", seen.text)
    found = GAP.search(seen.text)
    assert found is not None
    assert head.split("\n") == lines[: head.count("\n") + 1]
    assert tail.split("\n") == lines[-tail.count("\n") - 1 :]
    assert int(found[1].replace(",", "")) == len(lines) - head.count("\n") - tail.count("\n") - 2
    assert int(found[2].replace(",", "")) == len(text) - len(head) - len(tail) - 1
    assert found[3] == KEPT
    assert 1 < len(tail) / len(head) < 2


@given(st.lists(st.text(alphabet="ab \t\n", max_size=3_000), max_size=20), st.integers(1_000, 10_000))
def test_observation_never_exceeds_limit_and_overshoot(parts: list[str], limit: int) -> None:
    assert len(shown("".join(parts), limit)) <= limit * OVERSHOOT + 300


@given(st.text(max_size=4_000))
def test_cut_text_names_the_file_with_the_whole_output(text: str) -> None:
    assert cut(text, 500, KEPT) == text or KEPT in cut(text, 500, KEPT)


@given(st.binary(max_size=2_000))
def test_any_bytes_become_printable_text(output: bytes) -> None:
    """Any bytes become printable text."""
    text = observe(output, limit=1_000, kept_in=KEPT).text
    assert text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)


def test_colours_and_progress_bars_are_resolved() -> None:
    output = "\x1b[31mred\x1b[0m\n 10%\r 50%\r100% done\nabc\b\bX\n"
    assert shown(output) == "red\n100% done\naX"


def test_huge_lines_are_cut_with_their_length() -> None:
    text = shown("a" * 9_000 + "\nend")
    assert "(… 7,500 more characters in this line)\nend" in text
    assert KEPT in text


def test_single_huge_line_keeps_the_limit() -> None:
    assert len(shown("z" * 1_000_000)) < 3_000


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["warning: slow"] * 120, "warning: slow\n(… the line above 120 times)"),
        ([f"tests/test_a.py::test_{n} PASSED [ {n}%]" for n in range(30)], "(… 30 lines on passing tests)"),
        ([f"[gw1] [ 1%] PASSED tests/test_a.py::test_{n}" for n in range(9)], "(… 9 lines on passing tests)"),
        ([f"test_{n} (tests.test_a.Case.test_{n}) ... ok" for n in range(9)], "(… 9 lines on passing tests)"),
        ([f"test money::t{n} ... ok" for n in range(9)], "(… 9 lines on passing tests)"),
        ([f"ok {n} - adds" for n in range(9)], "(… 9 lines on passing tests)"),
        (["=== RUN   TestA", "--- PASS: TestA (0.00s)"] * 5, "(… 10 lines on passing tests)"),
        ([f"Requirement already satisfied: p{n} in /env" for n in range(9)], "(… 9 lines of package progress)"),
    ],
)
def test_uninformative_lines_are_summarised_in_one(lines: list[str], said: str) -> None:
    text = shown("\n".join(["begin", *lines, "end"]))
    assert text == f"begin\n{said}\nend\n(the whole output: {KEPT})"


def test_failures_among_passing_tests_are_kept() -> None:
    passing = [f"t.py::test_{n} PASSED" for n in range(10)]
    text = shown("\n".join([*passing, "t.py::test_x FAILED", *passing]))
    assert text.split("\n")[:3] == [
        "(… 10 lines on passing tests)",
        "t.py::test_x FAILED",
        "(… 10 lines on passing tests)",
    ]


def test_few_repeated_lines_are_kept() -> None:
    assert shown("a\na\na\nb") == "a\na\na\nb"


def test_dropped_bytes_are_reported() -> None:
    text = observe(b"head\ntail", limit=LIMIT, kept_in=KEPT, dropped=5_000_000).text
    assert "5,000,000 bytes more than are kept" in text


@pytest.mark.parametrize("name", OUTPUTS)
def test_real_outputs_keep_their_informative_lines(name: str) -> None:
    output = OUTPUTS[name]
    seen = observe(output.text.encode(), limit=LIMIT, kept_in=KEPT)
    lines = seen.text.split("\n")
    assert [line for line in output.kept if line not in lines] == []
    assert [part for part in output.gone if part in seen.text] == []
    assert len(seen.text) < 0.6 * len(output.text)
    assert (seen.whole is None) == (seen.text == plain(output.text).rstrip("\n"))
    assert seen.whole is None or lines[-1] == f"(the whole output: {KEPT})"


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_possibly_informative_lines_are_not_filtered(name: str) -> None:
    assert shown(LEFT_ALONE[name]) == LEFT_ALONE[name].rstrip("\n")


def test_very_long_output_is_cut_but_not_filtered() -> None:
    text = shown("\n".join(f"t.py::test_{n} PASSED" for n in range(70_000)))
    assert "t.py::test_0 PASSED" in text
    assert "t.py::test_69999 PASSED" in text
    assert GAP.search(text)
