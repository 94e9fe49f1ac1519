"""Loads the images of an issue file: relative paths in its text, and only below its directory."""

import os
import stat
from pathlib import Path
from urllib.parse import unquote

from app.core.images import MAX_IMAGE_BYTES, MAX_IMAGES, ImageCollection, ImageRejected, too_large
from app.core.markup import image_addresses

TOO_MANY = f"the limit is {MAX_IMAGES}"
NOT_BESIDE = "only files next to the issue's file are read"


def images_beside(issue: Path, body: str) -> ImageCollection:
    """The images of the issue in that file; none for standard input (`-`). Blocking."""
    image_collection, read_count = ImageCollection(), 0
    folder = None if str(issue) == "-" else issue.expanduser().absolute().parent
    for place, address in enumerate(image_addresses(body), 1):
        if read_count == MAX_IMAGES:
            image_collection.leave_out(place, TOO_MANY)
            continue
        try:
            path = _inside(folder, address)
            read_count += 1
            image_collection.add(place, _read(path))
        except ImageRejected as why:
            image_collection.leave_out(place, str(why))
    return image_collection


def _inside(folder: Path | None, address: str) -> Path:
    """The file after resolving links. Raises ImageRejected if it is outside the directory."""
    name = unquote(address)
    if folder is None or ":" in name or "\\" in name or "\0" in name or name.startswith("/"):
        raise ImageRejected(NOT_BESIDE)
    try:
        path = (folder / name).resolve(strict=True)
        inside = path.is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):
        raise ImageRejected("there is no such file next to the issue's file") from None
    if not inside:
        raise ImageRejected(NOT_BESIDE)
    return path


def _read(path: Path) -> bytes:
    """Read plain files only: a pipe or a device may never end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ImageRejected("it is not a file")
            content = file.read(MAX_IMAGE_BYTES + 1)
    except OSError:
        raise ImageRejected("it cannot be read") from None
    if len(content) > MAX_IMAGE_BYTES:
        raise too_large()
    return content
