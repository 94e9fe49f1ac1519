"""Normalizes a path as the most tolerant file system would, so that no spelling evades a rule."""

import re
import unicodedata

_SEPARATORS = re.compile("[/\\\\\u2044\u2215\u29f5\u29f8]")
_STREAM = re.compile(r":.*$")
_SHORT_NAME = re.compile(r"^(?P<start>\.?git[a-z]{0,3}|codeow|husky)~\d$")
_SHORT_NAMES = {"git": ".git", ".git": ".git", "gitmod": ".gitmodules", "gitatt": ".gitattributes"} | {
    "gitcon": ".gitconfig",
    "github": ".github",
    "codeow": "codeowners",
    "husky": ".husky",
}


def components(path: str) -> tuple[str, ...]:
    """The parts of a path, folded as NTFS, HFS+ and APFS fold them.

    Handles case and width, composition and diacritics, invisible characters, trailing dots and spaces, backslashes,
    alternate streams (`.git::$INDEX`), DOS short names (`GIT~1`), empty and `.` parts.
    """
    return tuple(part for part in _folded(path) if part not in ("", "."))


def has_empty_part(path: str) -> bool:
    """True if some part reads as nothing, `.` or `..`, so that the path may mean another one."""
    return not {"", ".", ".."}.isdisjoint(_folded(path))


def _folded(path: str) -> list[str]:
    return [_fold(part) for part in _SEPARATORS.split(unicodedata.normalize("NFKD", path))]


def _fold(part: str) -> str:
    text = unicodedata.normalize("NFKD", part.casefold())
    text = unicodedata.normalize("NFKD", "".join(character for character in text if not _ignored(character)).casefold())
    text = "".join(character for character in text if not _ignored(character))
    if text in (".", ".."):
        return text
    text = _STREAM.sub("", text).strip().rstrip(". ")
    short = _SHORT_NAME.match(text)
    return _SHORT_NAMES.get(short["start"], text) if short else text


def _ignored(character: str) -> bool:
    """Invisible, or dropped by some file system: format, control, unassigned, private, combining."""
    if unicodedata.category(character) in ("Cc", "Cf", "Cn", "Co", "Cs", "Mn", "Me"):
        return True
    return character in "\u115f\u1160\u3164\uffa0\u2800"


def collision_key(path: str) -> str:
    """Equal for two paths that cannot be in one directory of a case-insensitive file system."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())
