"""How long the last step waits for GitHub: its own patience, or until the moment that GitHub named."""

from app.action.drain import AFTER_A_RESET, DrainLimits


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def lasts(limits: DrainLimits, clock: Clock) -> float:
    while not limits.over:
        clock.seconds += 10
    return clock.seconds


def test_a_reset_within_the_hour_is_waited_for() -> None:
    clock = Clock()
    limits = DrainLimits(900, at_most=3_700, now=clock)
    limits.wait_for(30)
    assert lasts(limits, clock) == 900
    clock = Clock()
    limits = DrainLimits(900, at_most=3_700, now=clock)
    limits.wait_for(3_600)
    assert lasts(limits, clock) == 3_600 + AFTER_A_RESET


def test_what_is_too_far_away_is_not_waited_for() -> None:
    clock = Clock()
    limits = DrainLimits(900, at_most=3_700, now=clock)
    limits.wait_for(4_000)
    assert lasts(limits, clock) == 900


def test_after_a_cancel_nothing_is_waited_for() -> None:
    clock = Clock()
    limits = DrainLimits(150, now=clock)
    limits.wait_for(600)
    assert lasts(limits, clock) == 150
