"""What people say while the agent works: taken in at most once a turn, kept with it, and never overheard."""

from collections.abc import Iterable, Sequence

from app.agent.step import Step
from app.core.job import UserMessage, UserMessages
from app.core.text import one_line

MAX_MESSAGES = 5
"""Words of one turn; what was said beyond that is taken in with the next."""
MAX_MESSAGE_CHARACTERS = 4_000
"""Characters of one person's words; of longer ones the model is told how much is left out."""


async def unread(user_messages: UserMessages, steps: Sequence[Step]) -> tuple[UserMessage, ...]:
    """The oldest words that none of these steps has. The steps say what was heard: nothing is marked as read."""
    return (await user_messages.since(last_seen_message(steps)))[:MAX_MESSAGES]


def last_seen_message(steps: Sequence[Step]) -> int:
    return next((step.turn.words[-1].seq for step in reversed(steps) if step.turn.words), 0)


def format_messages(words: Iterable[UserMessage]) -> str:
    """As the model reads them, in order."""
    return "\n\n".join(f"From {one_line(said.who)}, who may ask: {_bounded(said.text.strip())}" for said in words)


def remembered_messages(steps: Sequence[Step], space: int) -> str:
    """All words of these steps again, for a digest; where they do not fit, the newest, and how many are missing."""
    kept: list[str] = []
    words = [said for step in steps for said in step.turn.words]
    for said in reversed(words):
        text = format_messages([said])
        space -= len(text) + 2
        if space < 0:
            break
        kept.append(text)
    if len(kept) < len(words):
        kept.append(f"(… {len(words) - len(kept):,} earlier words of people are left out)")
    return "\n\n".join(reversed(kept))


def _bounded(text: str) -> str:
    more = len(text) - MAX_MESSAGE_CHARACTERS
    return text if more <= 0 else f"{text[:MAX_MESSAGE_CHARACTERS].rstrip()}\n(… {more:,} more characters are left out)"
