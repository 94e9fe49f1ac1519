"""Finds secrets before text leaves the process: other people's by their format, our own by their value."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from app.core.secret_encodings import MIN_LENGTH, contains_secret, encodings, search_forms, secret_part
from app.core.secret_formats import ASSIGNMENT, FORMATS, is_placeholder, looks_random

MASK = "[redacted]"
_CREDENTIALS = {"JSON web token", "credentials in a URL", "authorization header", "private key"}


class SecretMatch(NamedTuple):
    """A likely secret, by kind and 1-based line; its value is never stored."""

    kind: str
    line: int


def find_secrets(text: str) -> tuple[SecretMatch, ...]:
    """Likely secrets in text such as the added lines of a diff, in order, each kind once per line."""
    found = {SecretMatch(kind, text.count("\n", 0, start) + 1) for kind, start in _candidates(text)}
    return tuple(sorted(found, key=lambda finding: (finding.line, finding.kind)))


def _candidates(text: str) -> Iterator[tuple[str, int]]:
    for kind, head, pattern in FORMATS:
        if head not in text:
            continue
        for match in pattern.finditer(text):
            generic = "value" in match.groupdict()
            value = match["value"] if generic else match[0].removeprefix(head)
            if not is_placeholder(value) and (not generic or looks_random(value)):
                yield kind, match.start()
    for match in ASSIGNMENT.finditer(text):
        value = match["value"] or match["bare"]
        if not is_placeholder(value) and looks_random(value):
            yield "password or key", match.start("value" if match["value"] else "bare")


def mask_tokens(text: str) -> str:
    """Mask everything that looks like a GitHub credential, for text that came from outside."""
    for kind, _, pattern in FORMATS:
        if kind.startswith("GitHub") or kind in _CREDENTIALS:
            text = pattern.sub(MASK, text)
    return text


class Redactor:
    """Knows our own secrets by value and finds or masks them in text.

    `found` decides whether text may be posted (a match is quarantined); `redact` is for logs. Of a URL only the
    password is secret. Not covered: values of fewer than eight characters, or of one short lower-case word.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        guarded = {part for value in values if _is_guarded(part := secret_part(value.strip()))}
        self._count = len(guarded)
        self._sought = search_forms(guarded)
        self._spellings = sorted({form for value in guarded for form in encodings(value)}, key=len, reverse=True)

    def __repr__(self) -> str:
        return f"Redactor({self._count} values)"

    def __reduce__(self) -> str:
        raise TypeError("secrets are not stored")

    def found(self, text: str | bytes) -> bool:
        """True if the text contains one of our secrets, or a revealing part of one, in any known encoding."""
        return contains_secret(self._sought, text)

    def redact(self, text: str) -> str:
        """Mask every direct spelling of a secret; mask the whole text if a secret is encoded in another way."""
        for form in self._spellings:
            text = text.replace(form, MASK)
        return f"{MASK}: this text contained an encoded secret" if self.found(text) else text


def _is_guarded(value: str) -> bool:
    return len(value) >= MIN_LENGTH and not (len(value) < 16 and value.isalpha() and value.islower())
