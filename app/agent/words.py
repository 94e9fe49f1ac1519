"""What people say while the agent works: taken in at most once a turn, kept with it, and never overheard."""

from collections.abc import Iterable, Sequence

from app.agent.turn import Step
from app.job import Heard, Steering
from app.text import one_line

MOST = 5
"""Words of one turn; what was said beyond that is taken in with the next."""
LONGEST = 4_000
"""Characters of one person's words; of longer ones the model is told how much is left out."""


async def unread(steering: Steering, steps: Sequence[Step]) -> tuple[Heard, ...]:
    """The oldest words that none of these steps has. The steps say what was heard: nothing is marked as read."""
    return (await steering.since(last_heard(steps)))[:MOST]


def last_heard(steps: Sequence[Step]) -> int:
    return next((step.turn.words[-1].seq for step in reversed(steps) if step.turn.words), 0)


def told(words: Iterable[Heard]) -> str:
    """As the model reads them, in order."""
    return "\n\n".join(f"From {one_line(said.who)}, who may ask: {_bounded(said.text.strip())}" for said in words)


def remembered(steps: Sequence[Step], room: int) -> str:
    """All words of these steps again, for a digest; where they do not fit, the newest, and how many are missing."""
    kept: list[str] = []
    words = [said for step in steps for said in step.turn.words]
    for said in reversed(words):
        text = told([said])
        room -= len(text) + 2
        if room < 0:
            break
        kept.append(text)
    if len(kept) < len(words):
        kept.append(f"(… {len(words) - len(kept):,} earlier words of people are left out)")
    return "\n\n".join(reversed(kept))


def _bounded(text: str) -> str:
    more = len(text) - LONGEST
    return text if more <= 0 else f"{text[:LONGEST].rstrip()}\n(… {more:,} more characters are left out)"
