"""Finds our secrets in text even if they are encoded, cut, split, reversed or compressed.

Each secret is written in every known encoding and cut into all its parts of twelve characters, so that any part is
found. The text is searched as it is and after decoding. Not covered: encryption, and encodings made up for the
occasion.
"""

import base64
import binascii
import bz2
import codecs
import html
import lzma
import re
import unicodedata
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from urllib.parse import quote, unquote

from app.core.secret_formats import looks_random

MIN_LENGTH = 8
GRAM_LENGTH = 12
"""So many characters of a random value in any spelling are enough."""
MAX_UNPACKED = 1024 * 1024
MAX_LAYERS = 3

_PUBLIC_HEAD = re.compile(
    r"-----BEGIN [A-Z0-9 ]+-----|ghs_\d+_|gh[a-z]_|github_pat_|sk-(?:ant-|or-|proj-|svcacct-|admin-)?(?:(?:api|v)\d+-)?"
    r"|eyJ[A-Za-z0-9_-]*\.|-----END [A-Z0-9 ]+-----"
)
_URL_PASSWORD = re.compile(r"^[a-z][a-z0-9+.-]*://[^/@\s]*?:([^/@\s]+)@")
_ESCAPED = re.compile(r"\\(?:u\{?([0-9A-Fa-f]{1,6})\}?|x([0-9A-Fa-f]{2})|([0-7]{3}))")
_RUN = re.compile(rf"\S{{{GRAM_LENGTH},}}")
_DECIMALS = re.compile(r"(?:\b[0-9]{2,3}\b[\s,;]*){8,}")
_BITS = re.compile(r"(?:\b[01]{7,8}\b[\s,;]*){8,}")
_JOINTS = re.compile(r"(?:\\[nrt]|[\s\"'`+\\,;|>#*])+")
_NOT_ALPHANUMERIC = re.compile(r"[^A-Za-z0-9]+")
_BASE64 = r"[A-Za-z0-9+/_-]"
_PACKED = re.compile(
    rf"{_BASE64}{{20,}}(?:(?:\\n|[\s\"'\\,])+{_BASE64}{{20,}})*(?:(?:\\n|[\s\"'\\,])+{_BASE64}{{1,19}})?"
)
_HEXADECIMAL = re.compile(r"(?:[0-9A-Fa-f]{2}[\s:,]?){16,}")
_UNPACKERS = (
    (b"\x1f\x8b", lambda: zlib.decompressobj(31)),
    (b"\x78", zlib.decompressobj),
    (b"BZh", bz2.BZ2Decompressor),
    (b"\xfd7zXZ", lzma.LZMADecompressor),
)


class SecretPatterns(NamedTuple):
    """Search patterns of secrets.

    `grams` are parts of random values, all of the same length; `complete` are complete values that consist of words.
    """

    grams: frozenset[str]
    complete: frozenset[str]

    def are_in(self, text: str) -> bool:
        if any(encoded in text for encoded in self.complete):
            return True
        runs = (match[0] for match in _RUN.finditer(text))
        pieces = (run[start : start + GRAM_LENGTH] for run in runs for start in range(len(run) - GRAM_LENGTH + 1))
        return not self.grams.isdisjoint(pieces)


class SearchForms(NamedTuple):
    """What to search for in a text as it is, in its lower case, and among its letters and digits only."""

    exact: SecretPatterns
    folded: SecretPatterns
    bare: SecretPatterns


def secret_part(value: str) -> str:
    """The secret part of a setting: a URL's password, or the whole value of anything else."""
    password = _URL_PASSWORD.match(value)
    if password:
        return unquote(password[1])
    return "" if re.match(r"[a-z][a-z0-9+.-]*://", value) else value


def search_forms(values: Iterable[str]) -> SearchForms:
    """The search patterns for these values."""
    grams: tuple[set[str], set[str], set[str]] = (set(), set(), set())
    complete: tuple[set[str], set[str], set[str]] = (set(), set(), set())
    for value in values:
        core = "".join(_PUBLIC_HEAD.sub("", value).split())
        if len(core) >= GRAM_LENGTH and looks_random(core):
            for kind, forms in zip(grams, _spelled(core), strict=True):
                kind.update(_grams(forms) - _words(core))
        else:
            for form in {value, "".join(value.split())}:
                for kind, forms in zip(complete, _spelled(form), strict=True):
                    kind.update(forms)
    return SearchForms(
        *(SecretPatterns(frozenset(parts), frozenset(forms)) for parts, forms in zip(grams, complete, strict=True))
    )


def _spelled(value: str) -> tuple[set[str], set[str], set[str]]:
    raw = value.encode()
    exact = _base64_spellings(raw) | _base64_spellings(value.encode("utf-16-le"))
    spellings = {value, codecs.encode(value, "rot13"), *_base32_spellings(raw)}
    folded = {form.lower() for form in spellings} | {raw.hex()}
    bare = {_NOT_ALPHANUMERIC.sub("", form.lower()) for form in spellings}
    exact, folded, bare = (forms | {form[::-1] for form in forms} for forms in (exact, folded, bare))
    return exact, folded, {form for form in bare if len(form) >= MIN_LENGTH}


def _grams(forms: Iterable[str]) -> set[str]:
    parts = (form[start : start + GRAM_LENGTH] for form in forms for start in range(len(form) - GRAM_LENGTH + 1))
    return {part for part in parts if len(set(part)) >= 5}


def _words(value: str) -> set[str]:
    """Parts of a random value that are letters of one case: the word `production` inside a key is not secret."""
    words = {part.lower() for part in _grams([value]) if part.isalpha() and (part.islower() or part[1:].islower())}
    return words | {word[::-1] for word in words}


def contains_secret(secrets: SearchForms, text: str | bytes, layers: int = MAX_LAYERS) -> bool:
    """True if the text contains a secret directly, in one of its views, or inside decoded content."""
    shown = text if isinstance(text, str) else text.decode("latin-1")
    if any(_in_view(secrets, view) for view in _views(shown)):
        return True
    inner = _unpacked(shown) if layers else iter(())
    return any(contains_secret(secrets, content, layers - 1) for content in inner)


def encodings(value: str) -> set[str]:
    """Every spelling of the whole value that can appear directly in text, for masking."""
    raw = value.encode()
    forms = {value, value[::-1], codecs.encode(value, "rot13"), quote(value, safe=""), quote(value)}
    forms |= {value.replace("\n", "\\n"), value.replace("\n", "\\r\\n"), html.escape(value)}
    forms |= _base64_spellings(raw) | _base32_spellings(raw) | {raw.hex(), raw.hex().upper()}
    return forms


def _base64_spellings(raw: bytes) -> set[str]:
    """The base64 characters that depend on these bytes alone, for each position at which they may start."""
    forms = set()
    for offset in range(3):
        padded = b"\0" * offset + raw
        first, last = -(-offset * 8 // 6), len(padded) * 8 // 6
        text = base64.b64encode(padded).decode()[first:last]
        forms |= {text, text.translate(str.maketrans("+/", "-_"))}
    return forms


def _base32_spellings(raw: bytes) -> set[str]:
    forms = set()
    for offset in range(5):
        padded = b"\0" * offset + raw
        forms.add(base64.b32encode(padded).decode()[-(-offset * 8 // 5) : len(padded) * 8 // 5])
    return forms


def _in_view(secrets: SearchForms, view: str) -> bool:
    lower = view.lower()
    if secrets.exact.are_in(view) or secrets.folded.are_in(lower):
        return True
    return secrets.bare.are_in(_NOT_ALPHANUMERIC.sub("", lower))


def _views(text: str) -> set[str]:
    """The text as it is and with one layer of encoding removed at a time, without duplicates."""
    views = {text, text.replace("\0", ""), _JOINTS.sub("", text), html.unescape(text), _ESCAPED.sub(_character, text)}
    views |= {unquote(text), unquote(unquote(text)), _DECIMALS.sub(_characters, text), _BITS.sub(_characters, text)}
    if not text.isascii():
        views.add(unicodedata.normalize("NFKC", text))
    return views


def _character(match: re.Match[str]) -> str:
    code = int(match[1] or match[2], 16) if match[1] or match[2] else int(match[3], 8)
    return chr(code) if code < 0x110000 else ""


def _characters(match: re.Match[str]) -> str:
    base = 2 if match.re is _BITS else 10
    return "".join(chr(int(number, base)) for number in re.findall(r"\d+", match[0]))


def _unpacked(text: str) -> Iterator[bytes]:
    """Decode the encoded parts of the text that contain compressed data or more text."""
    for match in _HEXADECIMAL.finditer(text):
        yield from _opened(bytes.fromhex(re.sub(r"[\s:,]", "", match[0])))
    for match in _PACKED.finditer(text):
        pieces = re.findall(_BASE64 + "+", match[0].replace("\\n", " "))
        for run in {"".join(pieces), *pieces}:
            encoded = run.translate(str.maketrans("-_", "+/"))
            try:
                content = base64.b64decode(encoded[: -1 if len(encoded) % 4 == 1 else None] + "==")
            except binascii.Error:
                continue
            yield from _opened(content)
    yield from _opened(text.encode("latin-1", "ignore"), only_packed=True)


def _opened(content: bytes, *, only_packed: bool = False) -> Iterator[bytes]:
    for magic, unpacker in _UNPACKERS:
        if content.startswith(magic):
            try:
                yield unpacker().decompress(content, MAX_UNPACKED)
            except (zlib.error, OSError, EOFError, lzma.LZMAError, ValueError):
                continue
    if (
        not only_packed
        and len(content) >= GRAM_LENGTH
        and sum(32 <= byte < 127 for byte in content) > 0.9 * len(content)
    ):
        yield content
