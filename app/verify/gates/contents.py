"""Gates on what is in changed files: conflicts, dependencies, secrets, syntax, and characters that mislead reviewers.

Misleading characters are invisible or look like others (Trojan Source and similar), or are read in another coding.
"""

import re
import tokenize
import unicodedata
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import PurePosixPath

from app.core.redaction import find_secrets
from app.core.text import is_hidden
from app.core.verification import GateResult
from app.repo.merge import markers_left
from app.repo.syntax import first_error, language_of
from app.verify.gates.candidate import CandidatePatch, ChangedPath, displayed_path, gate
from app.verify.overlay import Overlay
from app.verify.paths_of_tests import is_test_file, is_test_path


def conflicts(candidate: CandidatePatch, paths: Iterable[str]) -> GateResult:
    """Blocks while a conflict marker is left in one of these files, even if the patch does not touch it."""
    contents = Overlay(candidate.base, candidate.patch).read_many(paths)
    return gate("conflicts", blocked=[f"{place}: contains a conflict marker" for place in markers_left(contents)])


_DEPENDENCY_FILES = re.compile(
    r"^(?:pyproject\.toml|setup\.(?:py|cfg)|.*requirements.*\.(?:txt|in)|constraints.*\.txt|pipfile(?:\.lock)?|.*\.lock"
    r"|package(?:-lock)?\.json|npm-shrinkwrap\.json|pnpm-(?:lock|workspace)\.yaml|bun\.lockb?|deno\.jsonc?"
    r"|cargo\.toml|go\.(?:mod|sum|work)|gemfile|.*\.gemspec|composer\.json|pom\.xml|(?:build|settings)\.gradle(?:\.kts)?"
    r"|mix\.exs|pubspec\.yaml|package\.swift|environment\.ya?ml|flake\.(?:nix|lock)|.*\.csproj|packages\.config"
    r"|libs\.versions\.toml|gradle-wrapper\.properties)$"
)


def dependencies(candidate: CandidatePatch) -> GateResult:
    """Only warns: such changes are allowed, but always reported."""
    named = (delta for delta in candidate.deltas if _DEPENDENCY_FILES.match(PurePosixPath(delta.path).name.casefold()))
    return gate("dependencies", warned=[f"{displayed_path(delta.path)}: needs review" for delta in named])


_SECRET_FILES = re.compile(
    r"^(?:\.env(?:\.(?!example|sample|template|dist|test)[\w.-]+)?|\.netrc|\.pgpass|\.htpasswd|id_(?:rsa|dsa|ecdsa|ed25519)"
    r"|\.git-credentials|.*\.(?:pfx|p12|jks|keystore|kdbx))$",
    re.IGNORECASE,
)


def secrets(candidate: CandidatePatch) -> GateResult:
    """Blocks secrets in added lines, with type, path and line, and new files whose names suggest secrets."""
    blocked = []
    for delta in candidate.deltas:
        if delta.created and _SECRET_FILES.match(PurePosixPath(delta.path).name):
            blocked.append(f"{displayed_path(delta.path)}: files with this name usually hold secrets")
        blocked += _secrets_in(delta)
    return gate("secrets", blocked=blocked)


def _secrets_in(delta: ChangedPath) -> list[str]:
    if delta.new is None:
        return []
    if delta.text is None:  # binary, or a link's target: every line of it is new
        findings = find_secrets(delta.new.decode(errors="replace"))
        return [f"{displayed_path(delta.path)}: {finding.kind}" for finding in findings]
    added = {number for number, _ in delta.added}
    findings = find_secrets(delta.text) if added else ()
    return [
        f"{displayed_path(delta.path)}:{finding.line}: {finding.kind}" for finding in findings if finding.line in added
    ]


def syntax(candidate: CandidatePatch) -> GateResult:
    """Blocks a file that parsed on the base, or is new; test data may be broken on purpose, so it only warns."""
    blocked: list[str] = []
    warned: list[str] = []
    for delta in candidate.deltas:
        if delta.text is None or delta.new is None:
            continue
        problem = first_error(delta.path, delta.new)
        if problem is None:
            continue
        finding = f"{displayed_path(delta.path)}:{problem.line}: {problem.text}"
        broken_before = delta.old is not None and first_error(delta.path, delta.old) is not None
        data = is_test_path(delta.path) and not is_test_file(delta.path) and not delta.path.endswith("conftest.py")
        (warned if broken_before or data else blocked).append(finding)
    return gate("syntax", blocked=blocked, warned=warned)


# Letters of other scripts that look like ASCII ones. Greek letters that formulas use (such as nu) are left out.
_LOOKALIKES = frozenset(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u04bb\u051b\u051d\u04cf"  # Cyrillic, small
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0425\u0406\u0408\u0405"  # Cyrillic, capital
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03bf"  # Greek
    "\u0578\u057d\u0585\u0570\u13aa\u13a0\u13bb\u13d4"  # Armenian, Cherokee
)
_WORD = re.compile(r"[^\W\d]\w*")
# Strings and comments may be in any language; the rest of a line is code.
_NOT_CODE = re.compile(
    r"\\[\\\"'`]"  # so that each kind of quote is searched to the end of a line only once
    r"|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|`(?:\\.|[^`\\])*`|(?:#|//|--\s|/\*|^\s*\*).*$"
)
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
    """Only of characters that are new: others were in a line that was changed around them."""
    code = language_of(delta.path) is not None
    known = _HiddenCharacters(delta.removed)
    words = {finding for line in delta.removed for finding in _confusable(line)} if code else set()
    for number, line in delta.added:
        if line.isascii() and line.isprintable():
            continue
        for column, character in enumerate(line, start=1):
            if _invisible(line, column - 1, first=number == 1) and not known.takes(line, column - 1):
                name = unicodedata.name(character, "a control or unassigned character")
                yield f"{displayed_path(delta.path)}:{number}:{column}: U+{ord(character):04X} {name}"
        if code:
            yield from (
                f"{displayed_path(delta.path)}:{number}: {finding}"
                for finding in _confusable(line)
                if finding not in words
            )


class _HiddenCharacters:
    """Those of removed lines. Each excuses one in an added line that has the same neighbour on one side at least."""

    def __init__(self, removed: Iterable[str]) -> None:
        self._left = [_with_neighbours(line, at) for line in removed for at, one in enumerate(line) if is_hidden(one)]

    def takes(self, line: str, at: int) -> bool:
        before, character, after = _with_neighbours(line, at)
        alike = (each for each in self._left if each[1] == character and (each[0] == before or each[2] == after))
        found = next(alike, None)
        if found is not None:
            self._left.remove(found)
        return found is not None


def _with_neighbours(line: str, at: int) -> tuple[str, str, str]:
    return line[at - 1] if at else "", line[at], line[at + 1] if at + 1 < len(line) else ""


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
