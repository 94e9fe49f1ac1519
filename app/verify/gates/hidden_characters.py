"""Finds characters in added lines that are invisible to a reviewer or look like others (Trojan Source and similar)."""

import re
import tokenize
import unicodedata
from collections.abc import Iterator
from io import BytesIO

from app.core.text import is_hidden
from app.core.verification import GateResult
from app.repo.syntax import language_of
from app.verify.gates.candidate import CandidatePatch, ChangedPath, displayed_path, gate

# Letters of other scripts that look like ASCII ones. Greek letters that formulas use (such as nu) are left out.
_LOOKALIKES = frozenset(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u04bb\u051b\u051d\u04cf"  # Cyrillic, small
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0425\u0406\u0408\u0405"  # Cyrillic, capital
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03bf"  # Greek
    "\u0578\u057d\u0585\u0570\u13aa\u13a0\u13bb\u13d4"  # Armenian, Cherokee
)
_WORD = re.compile(r"[^\W\d]\w*")
# Strings and comments may be in any language; the rest of a line is code.
_NOT_CODE = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|`(?:\\.|[^`\\])*`|(?:#|//|--\s|/\*|^\s*\*).*$")
_USUAL_CODINGS = frozenset({"utf-8", "utf-8-sig", "ascii"})
_JOINERS = "\u200c\u200d"
_JOINING_SCRIPTS = frozenset(
    {"ARABIC", "SYRIAC", "MONGOLIAN", "DEVANAGARI", "BENGALI", "GURMUKHI", "GUJARATI", "ORIYA", "TAMIL", "TELUGU"}
    | {"KANNADA", "MALAYALAM", "SINHALA", "KHMER", "MYANMAR", "THAANA", "NKO", "TIBETAN"}
)


def hidden_characters(candidate: CandidatePatch) -> GateResult:
    """Blocks with path, line, column and the character's name, and a source that is read in another coding."""
    blocked = [finding for delta in candidate.deltas for finding in (*_codings(delta), *_findings(delta))]
    return gate("hidden characters", blocked=blocked)


def _codings(delta: ChangedPath) -> Iterator[str]:
    """A Python source whose first lines declare a coding in which its bytes mean something else than reviewers read."""
    if not delta.path.endswith((".py", ".pyi", ".pyw")) or delta.new is None or delta.is_symlink_now:
        return
    coding = _coding(delta.new)
    if coding in _USUAL_CODINGS:
        return
    path = displayed_path(delta.path)
    if delta.old is None or _coding(delta.old) != coding:
        yield f"{path}: declares the coding {coding}, in which Python reads other characters than reviewers do"
    elif delta.new.isascii() and not _means_itself(delta.new, coding):
        yield f"{path}: has sequences that the coding {coding} turns into other characters"


def _means_itself(content: bytes, coding: str) -> bool:
    try:
        return content.decode(coding, "replace") == content.decode("ascii")
    except LookupError:  # then Python does not load the file at all
        return True


def _coding(content: bytes) -> str:
    """As the interpreter finds it."""
    try:
        return tokenize.detect_encoding(BytesIO(content).readline)[0]
    except SyntaxError:
        return "that nobody knows"


def _findings(delta: ChangedPath) -> Iterator[str]:
    code = language_of(delta.path) is not None
    for number, line in delta.added:
        if line.isascii() and line.isprintable():
            continue
        for column, character in enumerate(line, start=1):
            if _invisible(line, column - 1, first=number == 1):
                name = unicodedata.name(character, "a control or unassigned character")
                yield f"{displayed_path(delta.path)}:{number}:{column}: U+{ord(character):04X} {name}"
        if code:
            yield from (f"{displayed_path(delta.path)}:{number}: {finding}" for finding in _confusable(line))


def _invisible(line: str, at: int, *, first: bool) -> bool:
    """True for an invisible character that no writing system or emoji needs there."""
    character = line[at]
    if not is_hidden(character) or (character in "\r\f\x1b" and _ordinary_control(line, at)):
        return False
    if character == "\ufeff" and first and at == 0:
        return False
    before, after = line[at - 1] if at else "", line[at + 1] if at + 1 < len(line) else ""
    if character in _JOINERS:
        return not (_joins(before) and _joins(after))
    if character in "\ufe0e\ufe0f":
        return not (_pictograph(before) or before in tuple("#*0123456789"))
    return True


def _ordinary_control(line: str, at: int) -> bool:
    """A carriage return that ends a line, or the form feed that separates sections in old sources."""
    return (line[at] == "\r" and at == len(line) - 1) or (line[at] == "\f" and not line.strip("\f\r"))


def _joins(character: str) -> bool:
    if not character:
        return False
    if _pictograph(character) or character == "\ufe0f":
        return True
    return unicodedata.name(character, "").split(" ")[0] in _JOINING_SCRIPTS


def _pictograph(character: str) -> bool:
    return bool(character) and (unicodedata.category(character) in ("So", "Sm", "Sk") or character in "\u203c\u2049")


def _confusable(line: str) -> Iterator[str]:
    """Names in code that look like others, or that a compiler reads as others."""
    for word in _WORD.findall(_NOT_CODE.sub(" ", line)):
        if word.isascii():
            continue
        folded = unicodedata.normalize("NFKC", word)
        letters = {character for character in word if character.isalpha()}
        if folded.isascii():
            yield f"a name with letters that compilers read as `{folded}`"
        elif letters & _LOOKALIKES and (any(letter.isascii() for letter in letters) or letters <= _LOOKALIKES):
            yield f"a name with letters of another script that look like ASCII: {ascii(word)[1:-1]}"
