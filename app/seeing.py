"""The images of an issue in words: one durable call to a model that sees, for an agent that is never sent an image."""

import base64
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from app.agent.asks import Asks
from app.agent.prompts import render
from app.job import Journal
from app.model.base import Message, Picture, Request
from app.model.errors import ModelError
from app.noun import Noun
from app.task import Image
from app.text import plain

_OF_THESE_IMAGES: Final = frozenset({"bad_request", "refused"})
"""Reasons for which other calls need not fail."""
MOST_TOKENS: Final = 2_000
_CHARACTERS_PER_TOKEN: Final = 4
BLIND: Final = "The images of the issue were not described: none of the job's models is known to take images."


class Seen(Noun):
    """What was seen, bounded; `why_not` tells people why nothing was."""

    text: str = ""
    why_not: str = ""


async def describe(
    journal: Journal, meter: Callable[[], Asks | None], images: Sequence[Image], contents: Callable[[str], bytes]
) -> Seen:
    """The step `images.answer`, and its one call; `meter` is asked inside it, so that a resumed job has the same steps.

    A model that does not want these images never fails the job. What makes every call fail (no money, no provider) is
    raised.
    """
    return await journal.step("images.answer", Seen, partial(_describe, meter, images, contents))


async def _describe(
    choose: Callable[[], Asks | None], images: Sequence[Image], contents: Callable[[str], bytes]
) -> Seen:
    meter = choose()
    if meter is None:
        return Seen(why_not=BLIND)
    request = _request(images, {image.digest: contents(image.digest) for image in images})
    try:
        answer = await meter.ask("images", request)
    except ModelError as error:
        if error.kind != "shrink" and error.reason not in _OF_THESE_IMAGES:
            raise
        return Seen(why_not=f"The images of the issue were not described: {error.message}")
    text = plain(answer.content).strip()
    if not text:
        return Seen(why_not="The images of the issue were not described: the model said nothing of them.")
    return Seen(text=_bounded(text))


def _request(images: Sequence[Image], contents: Mapping[str, bytes]) -> Request:
    told = "\n".join(f"Image {image.number}: {image.width} by {image.height} pixels" for image in images)
    pictures = tuple(
        Picture(media_type=image.media_type, data=base64.b64encode(contents[image.digest]).decode()) for image in images
    )
    head = Message(role="system", content=render("images"))
    return Request(messages=(head, Message(role="user", content=told, images=pictures)), max_tokens=2 * MOST_TOKENS)


def _bounded(text: str) -> str:
    room = MOST_TOKENS * _CHARACTERS_PER_TOKEN
    more = len(text) - room
    return text if more <= 0 else f"{text[:room].rstrip()}\n(… {more:,} more characters are left out)"
