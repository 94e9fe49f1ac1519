"""Turns an issue's text into a query: weighted terms, and the files, modules and names it mentions."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import log

from app.repo.index.terms import identifiers, stem, terms

MAX_CHARACTERS = 60_000
"""The beginning and the end of a longer text are read: titles come first, tracebacks end in their cause."""

_SUFFIX = (
    r"(?:pyi?|[cm]?[jt]s|[jt]sx|go|rs|rb|java|kt|scala|swift|php|cs|c|cc|cpp|cxx|hh?|hpp|hxx"
    r"|cfg|toml|ini|ya?ml|json|rst|md|txt|html|css|sh)"
)
_FENCE = re.compile(r"^[ \t]*(```|~~~)[^\n]*\n(.*?)(?:^[ \t]*\1|\Z)", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_LINK = re.compile(r"https?://[^\s)\]>\"'`]+")
_LINKED_FILE = re.compile(r"/(?:blob|tree|blame|raw)/[^/\s]+/([^\s#?]+)")
_INLINE = re.compile(r"(?<!`)`++([^`\n]+)`++")
_PYTHON_FRAME = re.compile(r'File "([^"\n]+)", line \d+')
_FRAME = re.compile(rf"(?<![\w@~.\-/\\])([\w@~.\-/\\]+\.{_SUFFIX}):\d+")
_PATH = re.compile(rf"(?<![\w/.\-@+\\])((?:[\w@.\-+]+[/\\])*[\w@.\-+]+\.{_SUFFIX})\b(?![/\w])")
_DOTTED = re.compile(r"\b([A-Za-z_]\w*(?:(?:\.|::|#)[A-Za-z_]\w*)+)\b")
_CALL = re.compile(r"\b([A-Za-z_]\w*)\(\)")
_CALLED = re.compile(r"\b([A-Za-z_]\w*)\(")
_ERROR_NAME = re.compile(r"[A-Z]\w*(?:Error|Exception|Warning|Fault)")
_SYSTEM_LINE = re.compile(
    r"^[ \t>*+-]*\**(?:os|operating system|platform|(?:[\w.]+ )?versions?|python|browser|tex|architecture|kernel"
    r"|(?:sphinx |pytest )?(?:extra tools|extensions|plugins))\**[ \t]*:[^\n]*$",
    re.IGNORECASE | re.MULTILINE,
)
_INSTALLED = re.compile(r"^(?:[ \t]*[\w.-]+(?:==|[ \t]+)v?\d+(?:\.\w+)+[^\n]*\n){3,}", re.MULTILINE)
"""What reporters say of their machine: `OS: Ubuntu`, and three or more lines of a list of installed packages."""
_PHRASE = re.compile(r"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9]*+(?:[ -][A-Za-z][A-Za-z0-9]*+)+")
_CODE_NAME = re.compile(
    r"\w*[a-z0-9]_+\w+|_+[a-z]\w+|[a-z]+[A-Z]\w*|[A-Z]+[a-z0-9]+[A-Z]\w*|[A-Z]{2,}[a-z]\w+|[A-Z0-9]+_\w+"
)
_FILLER_WORDS = (
    "a am an and are as at be been but by can could did do does for from get got had has have here i if in into is it"
    " its it's me my no not of on or our should so than that the their them then there they this to us use used using"
    " was we were what when where which will with would you your"
)
STOP_WORDS = frozenset(term for word in _FILLER_WORDS.split() for term in (word, stem(word)))
"""As terms, so that `here` and `hav` are among them."""


@dataclass(frozen=True, slots=True)
class TermWeights:
    """How much a word counts, by where it occurs. A word that occurs in several places counts for each."""

    title: float = 2.0
    prose: float = 0.8
    code: float = 0.6
    inline: float = 1.5
    code_name: float = 0.7
    """Added once for each name that looks like code (`dry_run`, `dryRun`), wherever it occurs."""
    phrase: float = 1.0
    """For two neighbouring words joined to one, as a share of their separate weights."""
    repeated: float = 0.1
    """What each further e-fold of a word's repetitions adds."""


@dataclass(frozen=True, slots=True)
class IssueQuery:
    """`weights` by term; `frames` are a traceback's files, innermost first; `names` were written as code."""

    weights: Mapping[str, float]
    paths: tuple[str, ...]
    frames: tuple[str, ...]
    modules: tuple[str, ...]
    names: frozenset[str]
    titled: frozenset[str] = frozenset()
    """Names in the title with marks of code, or with a capital letter and written as code or called somewhere."""


@dataclass(frozen=True, slots=True)
class IssueSections:
    """An issue's text in parts: prose without code blocks and comments; all parts without links."""

    title: str
    prose: str
    code: str
    inline: tuple[str, ...]
    whole: str


def parse(text: str, emphasis: TermWeights = TermWeights()) -> IssueQuery:
    """Parse an issue: its first line is the title, the rest Markdown."""
    text = _shortened(text.strip())
    parts = sections(text)
    frames = tuple(_frames(text))
    modules = tuple(dict.fromkeys(_DOTTED.findall(parts.whole)))
    return IssueQuery(
        weights=_weights(parts, emphasis),
        paths=tuple(_paths(text, parts.whole, frames)),
        frames=frames,
        modules=modules,
        names=(names := frozenset(_names(parts, modules))),
        titled=frozenset(_titled(parts, names)),
    )


def sections(text: str) -> IssueSections:
    title, _, body = text.partition("\n")
    body = _SYSTEM_LINE.sub(" ", _INSTALLED.sub("\n", _COMMENT.sub(" ", body)))
    code = "\n".join(match[2] for match in _FENCE.finditer(body))
    prose = _FENCE.sub(" ", body)
    inline = tuple(_INLINE.findall(f"{title}\n{prose}"))
    return IssueSections(_unlinked(title), _unlinked(prose), _unlinked(code), inline, _unlinked(text))


def _shortened(text: str) -> str:
    if len(text) <= MAX_CHARACTERS:
        return text
    half = MAX_CHARACTERS // 2
    return f"{text[:half]}\n{text[-half:]}"


def _unlinked(text: str) -> str:
    return _LINK.sub(" ", text)


def _weights(parts: IssueSections, emphasis: TermWeights) -> dict[str, float]:
    written_as_code = dict.fromkeys(filter(_CODE_NAME.fullmatch, identifiers(parts.whole)))
    words_by_weight = (
        (emphasis.title, identifiers(parts.title)),
        (emphasis.prose, identifiers(parts.prose)),
        (emphasis.code, identifiers(parts.code)),
        (emphasis.inline, [word for span in parts.inline for word in identifiers(span)]),
        (emphasis.code_name, written_as_code),
    )
    weights: dict[str, float] = {}
    for weight, words in words_by_weight:
        counts = Counter(term for word in words for term in terms(word) if term not in STOP_WORDS)
        for term, number in counts.items():
            weights[term] = weights.get(term, 0.0) + weight * (1 + emphasis.repeated * log(number))
    for phrase, weight in _phrases(parts, emphasis).items():
        weights.setdefault(phrase, weight)
    return weights


def _phrases(parts: IssueSections, emphasis: TermWeights) -> dict[str, float]:
    """Neighbouring words joined to one: "type hints" may be `typehints.py`, "dry-run" may be `dryRun`."""
    found: dict[str, float] = {}
    for section, weight in ((parts.prose, emphasis.prose), (parts.title, emphasis.title)):
        for match in _PHRASE.finditer(section):
            words = re.split("[ -]", match[0].lower())
            for first, second in pairwise(words):
                for joined in terms(f"{first}_{second}")[:1]:
                    found[joined] = weight * emphasis.phrase
    return found


def _names(parts: IssueSections, modules: Iterable[str]) -> Iterator[str]:
    for span in parts.inline:
        if len(span) < 80:
            yield from identifiers(span)
    yield from _CALL.findall(parts.whole)
    for word in identifiers(parts.whole):
        if _CODE_NAME.fullmatch(word) or _ERROR_NAME.fullmatch(word):
            yield word
    for module in modules:
        yield from re.split(r"\.|::|#", module)[-2:]


def _titled(parts: IssueSections, names: frozenset[str]) -> Iterator[str]:
    called = set(_CALLED.findall(parts.whole))
    for word in identifiers(parts.title):
        if _CODE_NAME.fullmatch(word) or (word[0].isupper() and (word in names or word in called)):
            yield word


def _frames(text: str) -> Iterator[str]:
    """The files of tracebacks, innermost first: Python prints that frame last, other languages first."""
    python = [match[1] for match in _PYTHON_FRAME.finditer(text)]
    other = [match[1] for match in _FRAME.finditer(text)]
    python += [path for path in other if path.endswith(".py")]
    yield from dict.fromkeys(reversed(python))
    yield from dict.fromkeys(path for path in other if not path.endswith(".py"))


def _paths(text: str, unlinked: str, frames: tuple[str, ...]) -> Iterator[str]:
    linked = (_LINKED_FILE.search(link) for link in _LINK.findall(text))
    mentioned = (match[1] for match in _PATH.finditer(unlinked))
    for path in dict.fromkeys([*(match[1] for match in linked if match), *mentioned]):
        if not any(frame.endswith(path) for frame in frames):
            yield path
