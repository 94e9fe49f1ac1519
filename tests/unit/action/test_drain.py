"""How long the last step waits for GitHub: its own patience, or until the moment that GitHub named."""

from app.action.context import AFTER_A_RESET, DrainLimits


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def lasts(limits: DrainLimits, clock: Clock) -> float:
    while not limits.over:
        clock.seconds += 10
    return clock.seconds


def test_drain_waits_for_a_rate_limit_reset_within_the_hour() -> None:
    clock = Clock()
    limits = DrainLimits(900, at_most=3_700, now=clock)
    limits.wait_for(30)
    assert lasts(limits, clock) == 900
    clock = Clock()
    limits = DrainLimits(900, at_most=3_700, now=clock)
    limits.wait_for(3_600)
    assert lasts(limits, clock) == 3_600 + AFTER_A_RESET


def test_drain_does_not_wait_for_a_reset_beyond_the_limit() -> None:
    clock = Clock()
    limits = DrainLimits(900, at_most=3_700, now=clock)
    limits.wait_for(4_000)
    assert lasts(limits, clock) == 900


def test_drain_does_not_extend_its_wait_after_a_cancel() -> None:
    clock = Clock()
    limits = DrainLimits(150, now=clock)
    limits.wait_for(600)
    assert lasts(limits, clock) == 150
