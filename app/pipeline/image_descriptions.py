"""Describes an issue's images with one durable model call, for an agent that never gets images."""

import base64
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from app.agent.base import ModelPort
from app.agent.prompts import render
from app.core.job import Journal
from app.core.record import Record
from app.core.task import TaskImage
from app.core.text import plain
from app.llm.base import ImageContent, Message, ModelRequest
from app.llm.errors import ModelError

_IMAGE_ERRORS: Final = frozenset({"bad_request", "refused"})
"""Errors that concern only this call."""
MAX_TOKENS: Final = 2_000
_CHARACTERS_PER_TOKEN: Final = 4
NO_VISION_MODEL: Final = "The images of the issue were not described: none of the job's models is known to take images."


class ImageDescription(Record):
    """The description, limited in length; `why_not` tells people why there is none."""

    text: str = ""
    why_not: str = ""


async def describe(
    journal: Journal,
    budgeted_model: Callable[[], ModelPort | None],
    images: Sequence[TaskImage],
    contents: Callable[[str], bytes],
) -> ImageDescription:
    """The step `images.answer` with its one call; `budgeted_model` is chosen inside it, so that a resumed job has the
    same steps.

    A model that rejects these images never fails the job. Errors that concern all calls (no money, no provider) are
    raised.
    """
    return await journal.step("images.answer", ImageDescription, partial(_describe, budgeted_model, images, contents))


async def _describe(
    choose: Callable[[], ModelPort | None], images: Sequence[TaskImage], contents: Callable[[str], bytes]
) -> ImageDescription:
    budgeted_model = choose()
    if budgeted_model is None:
        return ImageDescription(why_not=NO_VISION_MODEL)
    request = _request(images, {image.digest: contents(image.digest) for image in images})
    try:
        answer = await budgeted_model.ask("images", request)
    except ModelError as error:
        if error.kind != "shrink" and error.reason not in _IMAGE_ERRORS:
            raise
        return ImageDescription(why_not=f"The images of the issue were not described: {error.message}")
    text = plain(answer.content).strip()
    if not text:
        return ImageDescription(why_not="The images of the issue were not described: the model's answer was empty.")
    return ImageDescription(text=_bounded(text))


def _request(images: Sequence[TaskImage], contents: Mapping[str, bytes]) -> ModelRequest:
    text = "\n".join(f"Image {image.number}: {image.width} by {image.height} pixels" for image in images)
    contents_of_images = tuple(
        ImageContent(media_type=image.media_type, data=base64.b64encode(contents[image.digest]).decode())
        for image in images
    )
    head = Message(role="system", content=render("images"))
    return ModelRequest(
        messages=(head, Message(role="user", content=text, images=contents_of_images)), max_tokens=2 * MAX_TOKENS
    )


def _bounded(text: str) -> str:
    space = MAX_TOKENS * _CHARACTERS_PER_TOKEN
    more = len(text) - space
    return text if more <= 0 else f"{text[:space].rstrip()}\n(… {more:,} more characters are left out)"
