"""Messages from people while the agent works: read at most once a turn, and stored with it."""

from collections.abc import Iterable, Sequence

from app.agent.step import Step
from app.core.job import UserMessage, UserMessages
from app.core.text import one_line

MAX_MESSAGES = 5
"""Messages of one turn; later ones come with the next turn."""
MAX_MESSAGE_CHARACTERS = 4_000
"""Characters of one message; the model is told how many are left out."""


async def unread(user_messages: UserMessages, steps: Sequence[Step]) -> tuple[UserMessage, ...]:
    """The oldest messages that none of these steps has. Nothing is marked as read: the steps record it."""
    return (await user_messages.since(last_seen_message(steps)))[:MAX_MESSAGES]


def last_seen_message(steps: Sequence[Step]) -> int:
    return next((step.turn.user_messages[-1].seq for step in reversed(steps) if step.turn.user_messages), 0)


def format_messages(words: Iterable[UserMessage]) -> str:
    """The messages in order, as the model reads them."""
    return "\n\n".join(
        f"From {one_line(message.author)}, who may ask: {_bounded(message.text.strip())}" for message in words
    )


def remembered_messages(steps: Sequence[Step], space: int) -> str:
    """All messages of these steps, for a digest; if they do not fit, the newest, and the number of missing ones."""
    kept: list[str] = []
    words = [message for step in steps for message in step.turn.user_messages]
    for message in reversed(words):
        text = format_messages([message])
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
