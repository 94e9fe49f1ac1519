"""Ten thousand ways in which the same events may arrive: repeated, out of order, some only when they are sent again."""

import random
from pathlib import Path

import pytest

from tests.integration.github.triggers.test_delivery_order import KINDS, tell
from tests.support.event_harness import event_harness

SEQUENCES, PER_SERVER = 10_000, 40

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]


@pytest.mark.parametrize("seed", range(SEQUENCES // PER_SERVER))
async def test_any_delivery_order_gives_the_same_result(tmp_path: Path, seed: int) -> None:
    """R5: what was lost comes at the end, when GitHub is asked to send it again; what is repeated may come anywhere."""
    chance = random.Random(seed)
    async with event_harness(tmp_path) as harness:
        for _ in range(PER_SERVER // 2):
            kinds = tuple(chance.choice(KINDS) for _ in range(chance.randint(2, 8)))
            in_order = await tell(harness, kinds)
            for order in (arrivals(chance, len(kinds)), arrivals(chance, len(kinds))):
                assert await tell(harness, kinds, order) == in_order, (kinds, order)


def arrivals(chance: random.Random, number: int) -> list[int]:
    """A third arrives twice, a fifth is lost at first."""
    lost = [place for place in range(number) if chance.random() < 0.2]
    arriving = [place for place in range(number) if place not in lost]
    arriving += [place for place in arriving if chance.random() < 0.3]
    chance.shuffle(arriving)
    chance.shuffle(lost)
    return arriving + lost
