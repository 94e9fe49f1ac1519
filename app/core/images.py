"""An issue's images: which of them may be shown to a model, and the notes about the others.

No image is decoded here. Kind and size are read from the first bytes, and unknown formats are refused.
"""

import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from app.core.task import TaskImage
from app.core.text import listed

MAX_IMAGES: Final = 5
MAX_IMAGE_BYTES: Final = 3_750_000
"""Bytes; in base64, in which they travel, these are the 5 MB that providers take."""
MAX_IMAGE_SIDE: Final = 8_000
"""Pixels on a side."""
_NAMED: Final = 5
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_FRAMES: Final = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
"""Markers of a JPEG that are followed by its size."""
_ALONE: Final = frozenset({0x01, *range(0xD0, 0xD9)})
"""Markers of a JPEG that are followed by nothing."""


class ImageRejected(Exception):  # noqa: N818  # the reason, for people
    """An image that may not be shown to a model.

    The message completes a sentence that begins by naming the image.
    """


class ImageSize(NamedTuple):
    """An image's media type and its size in pixels, as stated in its own header."""

    media_type: str
    width: int
    height: int


@dataclass(slots=True)
class ImageCollection:
    """Collects a job's images by their number in the text, and the reasons why others were left out."""

    images: list[TaskImage] = field(default_factory=list)
    contents: list[bytes] = field(default_factory=list)
    _left_out: dict[str, list[int]] = field(default_factory=dict)

    def add(self, number: int, content: bytes) -> None:
        """Add an image. Raises ImageRejected if a model may not be shown it."""
        shape = image_size(content)
        self.images.append(
            TaskImage(
                number=number,
                media_type=shape.media_type,
                digest=hashlib.sha256(content).hexdigest(),
                width=shape.width,
                height=shape.height,
            )
        )
        self.contents.append(content)

    @classmethod
    def unwanted(cls, addresses: Sequence[str]) -> Self:
        """All of them are left out, as the configuration says."""
        made = cls()
        for number, _ in enumerate(addresses, 1):
            made.leave_out(number, "`images` is false")
        return made

    def leave_out(self, number: int, why: str) -> None:
        self._left_out.setdefault(why, []).append(number)

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence per reason, naming images by number only.

        Image addresses are written by strangers, so we never repeat them.
        """
        return tuple(f"{_which(numbers)} not shown to a model: {why}." for why, numbers in self._left_out.items())


def image_size(content: bytes) -> ImageSize:
    """Read kind and size from the image's own bytes, whatever its name says. Raises ImageRejected with the reason."""
    if len(content) > MAX_IMAGE_BYTES:
        raise too_large()
    kinds: tuple[tuple[str, bool, Callable[[bytes], tuple[int, int]]], ...] = (
        ("image/png", content.startswith(_PNG) and content[12:16] == b"IHDR", _png),
        ("image/jpeg", content.startswith(b"\xff\xd8\xff"), _jpeg),
        ("image/gif", content.startswith((b"GIF87a", b"GIF89a")), _gif),
        ("image/webp", content.startswith(b"RIFF") and content[8:12] == b"WEBP", _webp),
    )
    for media_type, is_it, size in kinds:
        if is_it:
            return _bounded(media_type, size, content)
    raise ImageRejected("only PNG, JPEG, GIF and WebP are")


def too_large() -> ImageRejected:
    return ImageRejected(f"at most {MAX_IMAGE_BYTES:,} bytes are")


def _bounded(media_type: str, size: Callable[[bytes], tuple[int, int]], content: bytes) -> ImageSize:
    try:
        width, height = size(content)
    except (struct.error, IndexError):
        width = height = 0
    if not width or not height:
        raise ImageRejected("it does not say how large it is")
    if max(width, height) > MAX_IMAGE_SIDE:
        raise ImageRejected(f"at most {MAX_IMAGE_SIDE:,} pixels on a side are")
    return ImageSize(media_type, width, height)


def _png(content: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from(">II", content, 16)
    return width, height


def _gif(content: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from("<HH", content, 6)
    return width, height


def _webp(content: bytes) -> tuple[int, int]:
    match content[12:16]:
        case b"VP8X":
            low, middle, high, lower, mid, higher = struct.unpack_from("<6B", content, 24)
            return (low | middle << 8 | high << 16) + 1, (lower | mid << 8 | higher << 16) + 1
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", content, 21)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", content, 26)
            return width & 0x3FFF, height & 0x3FFF
    return 0, 0


def _jpeg(content: bytes) -> tuple[int, int]:
    """Read the size from a JPEG by walking its markers to the frame header."""
    place = 2
    while content[place] == 0xFF:
        marker = content[place + 1]
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", content, place + 5)
            return width, height
        place += 1 if marker == 0xFF else 2
        if marker != 0xFF and marker not in _ALONE:
            (length,) = struct.unpack_from(">H", content, place)
            place += max(length, 2)
    return 0, 0


def _which(numbers: list[int]) -> str:
    named = listed([*map(str, numbers)], _NAMED)
    return f"Image {named} of the issue was" if len(numbers) == 1 else f"Images {named} of the issue were"
