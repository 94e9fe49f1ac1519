"""The images beside an issue's file: named by relative paths in its text, below its directory, and nowhere else."""

import os
import stat
from pathlib import Path
from urllib.parse import unquote

from app.images import LARGEST, MOST, Album, NotShown, too_large
from app.markup import image_addresses

TOO_MANY = f"at most {MOST} are"
BESIDE = "only files beside the issue's are read"


def images_beside(issue: Path, body: str) -> Album:
    """Of the issue in that file; one on standard input (`-`) has none beside it. Blocking."""
    album, tried = Album(), 0
    folder = None if str(issue) == "-" else issue.expanduser().absolute().parent
    for place, address in enumerate(image_addresses(body), 1):
        if tried == MOST:
            album.leave_out(place, TOO_MANY)
            continue
        try:
            path = _inside(folder, address)
            tried += 1
            album.add(place, _read(path))
        except NotShown as why:
            album.leave_out(place, str(why))
    return album


def _inside(folder: Path | None, address: str) -> Path:
    """The file itself, behind all links; NotShown where it is not below the directory."""
    name = unquote(address)
    if folder is None or ":" in name or "\\" in name or "\0" in name or name.startswith("/"):
        raise NotShown(BESIDE)
    try:
        path = (folder / name).resolve(strict=True)
        inside = path.is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):
        raise NotShown("there is no such file beside the issue's") from None
    if not inside:
        raise NotShown(BESIDE)
    return path


def _read(path: Path) -> bytes:
    """Of a plain file only: a pipe or a device may never end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise NotShown("it is no file")
            content = file.read(LARGEST + 1)
    except OSError:
        raise NotShown("it cannot be read") from None
    if len(content) > LARGEST:
        raise too_large()
    return content
