"""The live view, read back by a terminal emulator that others wrote."""

import io
from collections.abc import Callable
from datetime import UTC, datetime

import pyte
import pytest

from app.cli.live_view import JobView, LiveView
from app.core.job import BASE_SUITE, Budget, Job
from app.core.model_usage import Totals
from app.core.plan import Plan, render_plan
from tests.support.pull_requests import task

PLAN = Plan(summary="Round half up.", steps=("Read money.py", "Add a test", "Change the rounding"))


class Screen(io.StringIO):
    """A terminal of a fixed size."""

    def __init__(self, columns: int, rows: int = 24) -> None:
        super().__init__()
        self.emulated = pyte.Screen(columns, rows)
        self._stream = pyte.Stream(self.emulated)

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._stream.feed(text.replace("\n", "\r\n"))
        return super().write(text)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.emulated.display if line.strip()]


class Ticks:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def job() -> Job:
    budget = Budget(usd=2_000_000, minutes=30, steps=40)
    return Job(
        id="abc123", task=task(), branch="b", budget=budget, model="m", created_at=datetime(2026, 1, 1, tzinfo=UTC)
    )


def watched(columns: int, rows: int = 24, *, colours: bool = True) -> tuple[Screen, LiveView, Ticks]:
    screen, ticks = Screen(columns, rows), Ticks()
    view = LiveView(screen, colours=colours, now=ticks, width=columns, height=rows)
    view.watch(job(), lambda: Totals(calls=2, prompt_tokens=1_500, completion_tokens=90, cost=310_000))
    return screen, view, ticks


def planned(view: LiveView, ticks: Callable[[], float]) -> None:
    view.report("state", "planning")
    view.report("started", BASE_SUITE)
    view.report("started", "acme/coder (plan)")
    view.report("finished", "acme/coder (plan)")
    view.report("cost", "plan: 1,500 tokens in, 90 out")
    view.report("plan", render_plan(PLAN))


@pytest.mark.parametrize("columns", [80, 140])
def test_live_view_shows_plan_stages_waits_and_costs(columns: int) -> None:
    screen, view, ticks = watched(columns)
    planned(view, ticks)
    ticks.seconds = 75.0
    view.refresh()
    shown = "\n".join(screen.lines)
    assert "plan     Round half up." in shown
    assert "✓ plan   ▸ tests from the issue   ▸ suite on the base   · work" in shown
    assert "  2. Add a test" in shown
    assert f"waiting for {BASE_SUITE} 1:15" in shown
    assert "1:15 of 30 min · $0.31 of $2.00 · 1,500 tokens in, 90 out · at most 40 turns" in shown
    assert max(map(len, screen.lines)) <= columns
    view.finish()


def test_no_limit_is_shown_before_the_job_is_known() -> None:
    assert JobView(now=Ticks(), begun=-7.0).spending == "0:07"


def test_a_command_is_shown_with_its_output_and_then_on_one_line() -> None:
    screen, view, ticks = watched(80)
    view.report("state", "working")
    view.report("step", "turn 1 of at most 40")
    view.report("command", "bash make test")
    for piece in ("compiling…\n", "10 %\r", "20 %\r90 %", "\n3 passed\n"):
        view.report("output", piece)
    ticks.seconds = 5.0
    view.refresh()
    shown = "\n".join(screen.lines)
    assert " bash make test  0:05" in shown
    assert "   │ 90 %\n   │ 3 passed" in shown
    view.report("observation", "exit 0, 5.0 s")
    view.finish()
    assert screen.lines[-1] == "         bash make test  → exit 0, 5.0 s"
    assert "│" not in "\n".join(screen.lines), "the live part is gone"


def test_model_text_is_shown_once_it_is_complete() -> None:
    screen, view, _ = watched(80)
    for piece in ("Half cents ", "are lost."):
        view.report("text", piece)
    assert "Half cents" not in "\n".join(screen.lines)
    view.report("cost", "turn.1: 2 tokens")
    assert "         Half cents are lost." in screen.lines
    view.finish()


def test_small_terminal_still_shows_the_costs() -> None:
    screen, view, ticks = watched(80, rows=8)
    planned(view, ticks)
    view.refresh()
    assert "Add a test" not in "\n".join(screen.lines)
    assert "of 30 min" in screen.lines[-1]
    view.finish()


def test_untrusted_text_cannot_control_the_terminal() -> None:
    hostile = "\x1b]52;c;aGk=\x07\x1b[2J\x9b31m[red]red[/red]\x1b[0m"
    screen, view, _ = watched(80, colours=False)
    view.report("step", "turn 1")
    for kind in ("note", "warning", "plan", "command", "output", "started", "text", "cost", "observation"):
        view.report(kind, hostile)
        view.refresh()
    view.finish()
    written = screen.getvalue()
    assert "\x1b]52" not in written
    assert "\x1b[2J" not in written
    assert "\x1b[31m" not in written
    assert "[red]red[/red]" in "\n".join(screen.lines), "what looks like Rich's markup is text"
