"""What was requested, where, by whom, and at which base commit; and what kind of task that is, by rules in order."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from app.core.record import Record


class IssueRef(Record):
    """The issue or pull request that a job belongs to. The repository is identified by its number, not its name."""

    installation: int
    repository: int
    owner: str
    name: str
    number: int


TaskKind = Literal["bug", "feature", "tests", "refactoring", "dependencies", "ci", "review", "conflict"]
"""What sort of work it is (`kind_of`): how it is gone about, and what counts as proof of it."""
STRUCTURAL: frozenset[TaskKind] = frozenset({"refactoring", "dependencies"})
"""Nothing needs to be red before and green after: the suite on both is what counts."""


class Person(Record):
    """The person named in a commit trailer."""

    name: str
    email: str


class Issue(Record):
    """An issue's text as people wrote it; hidden characters are removed and counted (`app.core.text`)."""

    title: str
    body: str
    number: int | None = None
    url: str = ""
    """The issue's page, if the command line read it from GitHub."""
    hidden_characters: int = 0
    labels: tuple[str, ...] = ()
    milestone: str = ""


MAX_ISSUE_BODY = 65_536
"""Characters that the model is shown of an issue's own text: GitHub's limit. Of a file that has more, both ends."""


class TaskSection(Record):
    """Text shown to the model as data beside the issue: the branch's diff, a review thread, the end of a log.

    The harness writes the title; other people wrote the text. Its length was limited before it came here.
    """

    title: str
    text: str


class TaskImage(Record):
    """An image of the issue that may be described to the agent; its bytes are in the job's blobs under `digest`.

    `number` is its position among all images of the text, from 1.
    """

    number: int
    media_type: str
    digest: str
    width: int
    height: int


class TaskOrigin(Record):
    """Where on GitHub a task was requested, by numeric ids, which survive renames and transfers."""

    installation: int
    repository: int
    number: int
    is_pull_request: bool
    actor: int
    """The person who asked; their permission is checked again before anything is published."""


class AllowedPath(Record):
    """A path that the configuration protects and that a person let one job change; a directory ends with `/`."""

    path: str
    by: str = ""
    """The person's login; empty if it was allowed on the command line."""

    def covers(self, path: str) -> bool:
        return path.startswith(self.path) if self.path.endswith("/") else path == self.path


class Task(Record):
    """One thing to do in one repository.

    `base` is the full id of the commit the work starts from, `base_ref` the name it was resolved from (a full ref or
    what the user typed). `slug` is derived from the title and safe in a branch name. For a pull request, `issue` is the
    pull request's own text.
    """

    repository: str
    issue: Issue
    base: str
    base_ref: str
    slug: str
    requester: Person | None = None
    origin: TaskOrigin | None = None
    """None for tasks from the command line."""
    request: str = ""
    """What the authorised person who asked wants now, in their words, in addition to the issue."""
    sections: tuple[TaskSection, ...] = ()
    kind: TaskKind = "bug"
    kind_reason: str = ""
    """Why the task is of that kind, as the end of a sentence; empty if no rule applied."""
    prompt: str = ""
    """The repository's own prompt that was asked for (`app.config.repository`); empty if none was."""
    allowed_paths: tuple[AllowedPath, ...] = ()
    """Protected paths that this job may change."""
    images: tuple[TaskImage, ...] = ()
    """Images to describe, if the repository or the command enabled that (`app.pipeline.wiring.prompts`)."""
    images_left_out: tuple[str, ...] = ()
    """Notes for people about the images that were left out."""
    fixed_by: str = ""
    """For `tests`: the full id of the fix, a commit in the base's history. The tests must fail without it."""

    @property
    def expects_red(self) -> bool:
        """True if some test must fail before the change and pass after it."""
        return not (self.kind in STRUCTURAL or self.kind == "conflict" or (self.kind == "tests" and not self.fixed_by))

    @property
    def follows_up(self) -> bool:
        """True if the task is about an existing pull request."""
        return self.origin is not None and self.origin.is_pull_request


WorkType = Literal["issue", "pull request", "checks", "merge"]
"""Where the work is: on an issue, on a pull request as people want it, on its failing checks, on its conflicts."""


@dataclass(frozen=True, slots=True)
class TaskSignals:
    """Everything that the rules may use. `request` is what the authorised person who asked wrote."""

    title: str
    request: str = ""
    labels: tuple[str, ...] = ()
    work: WorkType = "issue"
    requested_kind: TaskKind | None = None
    prompt: str = ""
    """The repository's prompt that was asked for, and the kind of tasks that it is for, if it names one."""
    prompt_kind: TaskKind | None = None


ASKABLE: Final[tuple[TaskKind, ...]] = ("bug", "feature", "tests", "refactoring", "dependencies", "ci")
"""What people may say that it is; the others are what is done on a pull request."""


class KindDecision(NamedTuple):
    """A kind and its reason, as the end of a sentence that begins with "because"."""

    kind: TaskKind
    reason: str = ""


def kind_of(signals: TaskSignals) -> KindDecision:
    """The kind from the first rule that applies, or `bug`."""
    return next((found for rule in RULES if (found := rule(signals))), None) or KindDecision("bug")


def kind_of_change(found: KindDecision) -> KindDecision:
    """What counts for a change that is there already: tests that it adds must not change behaviour."""
    return KindDecision("refactoring", found.reason) if found.kind == "tests" else found


def _merge(signals: TaskSignals) -> KindDecision | None:
    return KindDecision("conflict", "its branch is brought up to its base") if signals.work == "merge" else None


def _requested_kind(signals: TaskSignals) -> KindDecision | None:
    if signals.requested_kind is None:
        return None
    return KindDecision(signals.requested_kind, f"{_THAT_WAS_ASKED} (`--kind {signals.requested_kind}`)")


def _prompt(signals: TaskSignals) -> KindDecision | None:
    if signals.prompt_kind is None:
        return None
    return KindDecision(signals.prompt_kind, f"the prompt `{signals.prompt}` is for such tasks")


_THAT_WAS_ASKED = "that was asked for"


def explicitly_requested_kind(task: Task) -> TaskKind | None:
    """The kind that people explicitly requested; None if it was inferred in another way."""
    return task.kind if task.kind_reason.startswith(_THAT_WAS_ASKED) else None


def _place(signals: TaskSignals) -> KindDecision | None:
    match signals.work:
        case "checks":
            return KindDecision("ci", "checks of the pull request fail")
        case "pull request" if (found := _words(signals)) and found.kind == "refactoring" and _is_one(signals.request):
            return found
        case "pull request":
            return KindDecision("review", "it is about a pull request that is open")
        case _:
            return None


def _is_one(request: str) -> bool:
    """True if nothing else is asked for in the same breath."""
    return len(request.strip().splitlines()) == 1 and not re.search(r"\b(?:and|also|then)\b|[.;]\s", request)


def _labels(signals: TaskSignals) -> KindDecision | None:
    """By labels as projects name them, with or without an area prefix, in any case."""
    words = {label: _LABEL_AREA.sub("", label.casefold()).replace("-", " ").strip() for label in signals.labels}
    for kind, names in _LABELS.items():
        for label, word in words.items():
            if word in names:
                return KindDecision(kind, f"it has the label `{label.replace('`', '')}`")
    return None


def _prefix(signals: TaskSignals) -> KindDecision | None:
    """By the title's prefix, as in commit conventions (`feat(shop): …`) or issue forms (`[Bug] …`)."""
    found = _CONVENTION.match(signals.title) or _BRACKETS.match(signals.title)
    if found is None:
        return None
    word, scope = found["word"].casefold().strip(), (found.groupdict().get("scope") or "").casefold()
    kind: TaskKind | None = "dependencies" if scope in {"deps", "deps-dev"} else _PREFIXES.get(word)
    return KindDecision(kind, f"its title begins with `{found[0].strip()}`") if kind else None


def _words(signals: TaskSignals) -> KindDecision | None:
    """By the wording. The request counts more than the title; a complaint is a bug unless tests are requested."""
    for where, text in (("what was asked", signals.request), ("its title", signals.title)):
        for kind, pattern in _WORDS:
            if found := pattern.search(text):
                return KindDecision(kind, f"{where} says “{' '.join(found[0].casefold().split())}”")
    return None


RULES: Final[tuple[Callable[[TaskSignals], KindDecision | None], ...]] = (
    _merge,
    _requested_kind,
    _prompt,
    _place,
    _labels,
    _prefix,
    _words,
)


_LABEL_AREA = re.compile(r"^[^:/]{1,20}[:/]\s*")
# A label such as `tests` or `ci` often names the area of a bug, so these count only if they name the work.
_LABELS: Final[dict[TaskKind, set[str]]] = {
    "bug": {"bug", "bugs", "defect", "regression", "crash", "confirmed bug"},
    "dependencies": {"dependencies", "dependency", "deps", "dependency update", "dependency upgrade"},
    "tests": {"needs tests", "tests needed", "missing tests", "test coverage", "add tests", "regression test"},
    "refactoring": {"refactor", "refactoring", "cleanup", "clean up", "tech debt", "technical debt", "code quality"},
    "ci": {"ci failure", "failing ci", "flaky", "flaky test", "flaky tests"},
    "feature": {"feature", "feature request", "enhancement", "improvement", "new feature"},
}
_CONVENTION = re.compile(r"(?P<word>[A-Za-z]{2,12})(?:\((?P<scope>[\w./-]{1,40})\))?!?:(?=\s)")
_BRACKETS = re.compile(r"\[(?P<word>[A-Za-z ]{2,20})\]:?")
_PREFIXES: Final[dict[str, TaskKind]] = {
    "fix": "bug",
    "bug": "bug",
    "bugfix": "bug",
    "feat": "feature",
    "feature": "feature",
    "feature request": "feature",
    "enhancement": "feature",
    "test": "tests",
    "tests": "tests",
    "refactor": "refactoring",
    "refactoring": "refactoring",
    "deps": "dependencies",
    "ci": "ci",
}


def _verbs(words: Iterable[str], rest: str = "") -> re.Pattern[str]:
    """A pattern for one of these verbs at the beginning of a sentence."""
    return re.compile(rf"^\s*(?:please\s+)?(?:{'|'.join(words)})\b{rest}", re.IGNORECASE)


_COMPLAINT = re.compile(
    r"\b(?:crash(?:es|ed)?|errors?|exceptions?|traceback|raises|broken|breaks|wrong(?:ly)?|incorrect(?:ly)?|bugs?|"
    r"regression(?! tests?\b)|doesn't|does not|cannot|can't|fails?|failed|not work(?:ing)?|unexpected(?:ly)?)\b",
    re.IGNORECASE,
)
# Each pattern needs an unambiguous sentence: a wrong kind misleads, and `tests` even restricts the change.
_TESTS = (
    r"\s+(?:(?:a|an|the|some|more|missing|unit|regression|integration)\s+){0,3}tests?(?:\s+(?:cases?|coverage))?"
    r"(?=\s*(?:$|[.,:;!?(]|(?:for|of|that|which|to\s+cover|covering|around|about|against)\b))(?!.*\b(?:and|then)\s+fix)"
)
_VERSIONS = r"\s+(?:(?:all\s+)?dependenc\w+|\S+\s+(?:from\s+v?\d+\.\S+\s+)?to\s+v?\d+\.\d\S*)"
_WORDS: Final[tuple[tuple[TaskKind, re.Pattern[str]], ...]] = (
    ("tests", _verbs(("add", "write", "create"), _TESTS)),
    ("bug", _COMPLAINT),
    ("dependencies", _verbs(("bump", "upgrade", "update"), _VERSIONS)),
    ("refactoring", _verbs(("refactor", "restructure"))),
    ("refactoring", _verbs(("rename",), r"(?:\s+\S+){1,3}?\s+to\s+\S+")),
    ("refactoring", _verbs(("extract", "move"), r"(?:\s+\S+){1,5}?\s+(?:into|out\s+of)\s+(?:an?|its|their|one)\b")),
    ("feature", _verbs(("add", "support", "implement", "introduce", "allow", "provide", "feature request"))),
)


_NAMES: Final[dict[TaskKind, str]] = {
    "feature": "a feature",
    "tests": "tests for code that stays as it is",
    "refactoring": "a refactoring",
    "dependencies": "the update of a dependency",
}


def note_of(task: Task) -> str:
    """A note for people about the task's kind; empty for ordinary kinds and for kinds that are obvious."""
    if task.kind not in _NAMES or not task.kind_reason:
        return ""
    note = f"Worked on as {_NAMES[task.kind]}, because {task.kind_reason}."
    if task.kind in STRUCTURAL:
        note += " So nothing had to fail before and pass after: the suite on both is what counts."
    if task.kind == "tests":
        note += (
            f" The fix that they are for: `{task.fixed_by[:10]}`." if task.fixed_by else " No fix is known for them."
        )
    return note


REVIEW_REQUEST = "A review requests changes: address its threads."
FIX_OPEN_CHECKS = "Address what is open on this pull request: its review threads and its failing checks."
OWN_REQUESTS = frozenset({REVIEW_REQUEST, FIX_OPEN_CHECKS})
"""Requests in our words, if people wrote none; nobody is quoted with them."""
