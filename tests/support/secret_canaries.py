"""Values that exist in one place only, and the search for them everywhere else, in the encodings of thieves."""

import base64
import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

MARK = "CANARY"


def canary() -> str:
    """A value that is nowhere else; it begins with MARK, so that a thief can look for it too."""
    return f"{MARK}-{secrets.token_hex(16)}"


def forms(value: str) -> Iterator[bytes]:
    """The value as it is, and in every encoding in which it is searched for; of base64 what depends on it alone."""
    raw = value.encode()
    yield raw
    yield raw.hex().encode()
    yield raw.hex().upper().encode()
    yield " ".join(f"{byte:02x}" for byte in raw).encode()
    yield quote(value, safe="").encode()
    yield "".join(f"%{byte:02x}" for byte in raw).encode()
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + raw)
        yield encoded[-(-offset * 8 // 6) : (offset + len(raw)) * 8 // 6]


def find_canary(canaries: Mapping[str, str], *places: Path) -> list[str]:
    """Which canary is in which file below the places; databases are read row by row as well."""
    wanted = {name: tuple(forms(value)) for name, value in canaries.items()}
    seen = []
    for path in (file for place in places for file in place.rglob("*") if file.is_file() and not file.is_symlink()):
        content = path.read_bytes() + str(path).encode() + _rows(path)
        seen += [f"{name} in {path}" for name, shapes in wanted.items() if any(shape in content for shape in shapes)]
    return seen


def _rows(path: Path) -> bytes:
    if path.suffix != ".db":
        return b""
    with closing(sqlite3.connect(path)) as database:
        return "\n".join(database.iterdump()).encode("utf-8", "replace")
