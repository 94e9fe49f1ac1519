"""Draws lessons from a successful job: by rules from the harness's facts, and from the agent's own; pure.

Only a short fact in plain prose without orders, addresses or secrets may become a lesson. The rules on wording only
reduce noise, in one language. What they miss does no harm by itself: a lesson is shown as data, gives no rights, and
every change is verified whatever the agent was shown.

Nothing is learned from a pull request's branch: it may be a stranger's, and may never be merged.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from app.agent.base import Submission
from app.core.job import Job
from app.core.lessons import AGENT, HARNESS, MAX_PER_JOB, MAX_TEXT, LessonDraft, LessonKind
from app.core.patch import Patch, Tree
from app.core.redaction import find_secrets, mask_tokens
from app.core.text import listed, one_line, visible
from app.core.verification import BaselineResult, Reproduction, VerifiedPatch
from app.pipeline.lessons.recall import find_citation
from app.sandbox.setup.declared.python_metadata import PYTEST_SETTINGS
from app.sandbox.setup.package_tools import TEST_SCRIPT_RE
from app.verify.paths_of_tests import is_test_file

MIN_LENGTH: Final = 12
"""Characters that a fact needs."""
_MAX_READ_LENGTH: Final = 4_000

_ADDRESS = re.compile(r"(?i)://|\bwww\.|\b(?:mailto|data|javascript):|\bhttps?\b|@[\w-]+\.[a-z]{2,}")
_CODE = re.compile(r"`[^`]*`")
_MARKUP = re.compile(r"```|~~~|<[a-z/!]|\]\(|\{\{|<\|")
_OPERATORS = re.compile(r"&&|\|\||\$\(|\$\{|[|;]\s*\w+\s+-|>>|\b(?:sudo|rm|chmod|export)\s+\S")
_NETWORK_OR_SECRETS = re.compile(
    r"(?i)\b(?:curl|wget|netcat|ncat|telnet|ssh|scp|rsync|base64|eval|printenv|socat)\b|\brm\s+-\w*[rf]|\bgit\s+push\b"
    r"|/proc/|/etc/|~/\.|\.ssh\b|\.netrc\b|\bid_rsa\b|\bdev/tcp\b|\bnc\s+-"
)
_CHECKS = (
    r"(?:tests?|test\s+suite|suites?|checks?|verif\w+|reproductions?|gates?|lint\w*|reviews?|assert\w*|sandbox\w*|ci)"
)
_WEAKEN = (
    r"(?:skip\w*|disabl\w+|delet\w+|remov\w+|weaken\w*|ignor\w+|bypass\w*|circumvent\w*|xfail\w*|comment\w*\s+out"
    r"|omit\w*|avoid\w*|drop\w*|loosen\w*"
    r"|(?:do\s+not|don'?t|never|no\s+need\s+to|without|instead\s+of|stop)\s+(?:run|execut|wait|check|verif|test|us)\w*)"
)
_BEFORE = r"(?:^|[.,:;!?]\s*|\b(?:always|please|must|should|may|can|to|just|simply|and|or|not)\s+)"
_SECRETS = (
    r"(?:tokens?|secrets?|passwords?|credentials?|(?:api|private|ssh)\s*keys?|env(?:ironment)?\s+variables?|environ)"
)
_RULES = r"(?:instruct\w+|rules?|prompts?|above|previous|earlier|polic\w+|guidelines?)"
_ORDERS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_BEFORE}{_WEAKEN}\b[^.]{{0,60}}\b{_CHECKS}\b",
        rf"\b{_CHECKS}\b[^.]{{0,40}}\b(?:can|may|should|must|need\s+not|have\s+to)\s+(?:\w+\s+)?be\s+{_WEAKEN}",
        rf"\b{_CHECKS}\b[^.]{{0,40}}\b(?:need|do|does|must|should)\s*(?:not|n't)\s+(?:(?:be|to|have|need)\s+)*(?:run|pass|hold)",
        rf"\b(?:ignor|disregard|forget|overrid|obey|follow)\w*\b[^.]{{0,40}}\b{_RULES}\b",
        r"\bsystem\s+prompt\b|\bas\s+an\s+ai\b|\byou\s+(?:are|must|should|shall|will|can|may|have|need)\b",
        r"\byour\s+(?:task|rules?|instructions?|job)\b",
        rf"\b(?:print|send|post|upload|read|dump|copy|includ|echo|leak|exfiltrat|reveal|publish|commit)\w*\b[^.]{{0,40}}\b{_SECRETS}\b",
        r"\.github/(?:workflows|actions)\b|\bcodeowners\b|\.gitmodules\b|\bpre-(?:commit|push)\s+hooks?\b",
    )
)


class LessonRefusedError(ValueError):
    """Why a text cannot be a lesson, in a sentence."""


def check_remembered(text: str) -> str:
    """The text of a person with write access, as one line. Raises LessonRefusedError if it is too long or has a
    secret."""
    shown = one_line(visible(text).text)
    _refuse_unfit(shown)
    return shown


def check_learned(text: str) -> str:
    """An agent's text or a repository's own names, as one line. Raises LessonRefusedError unless it is a plain fact."""
    if len(text) > _MAX_READ_LENGTH:
        raise LessonRefusedError(f"It has {len(text):,} characters; the limit is {MAX_TEXT}.")
    if "\n" in text.strip():
        raise LessonRefusedError("It has several lines.")
    seen = visible(text)
    shown = one_line(seen.text)
    if seen.removed:
        raise LessonRefusedError("It has hidden characters or markup.")
    _refuse_unfit(shown)
    if _ADDRESS.search(shown):
        raise LessonRefusedError("It contains an address.")
    if _MARKUP.search(shown):
        raise LessonRefusedError("It contains markup.")
    if _NETWORK_OR_SECRETS.search(shown) or _OPERATORS.search(_CODE.sub("", shown)):
        raise LessonRefusedError("It contains a command outside backticks, or one that lessons may not have.")
    if any(order.search(shown) for order in _ORDERS):
        raise LessonRefusedError("It is an order, not a fact.")
    return shown


def _refuse_unfit(shown: str) -> None:
    if len(shown) < MIN_LENGTH:
        raise LessonRefusedError(f"It is shorter than {MIN_LENGTH} characters.")
    if len(shown) > MAX_TEXT:
        raise LessonRefusedError(f"It has {len(shown):,} characters; the limit is {MAX_TEXT}.")
    if find_secrets(shown) or mask_tokens(shown) != shown:
        raise LessonRefusedError("It seems to contain a secret.")


TESTED_VERDICTS: Final = frozenset({"proved", "tested"})
_EXIT_CODE = re.compile(r"exit (\d{1,3})\b")
_OUTPUT_TAIL = 400


class ExecutedCommand(NamedTuple):
    """A command of the agent, its exit code, and the end of its output."""

    command: str
    exit_code: int
    output: str = ""


@dataclass(frozen=True, slots=True)
class JobExperience:
    """What lessons are drawn from. `verified` are the facts of the submissions in order; the last one was accepted."""

    job: Job
    tree: Tree
    known: BaselineResult
    verified: Sequence[VerifiedPatch]
    submission: Submission | None = None
    commands: Sequence[ExecutedCommand] = ()

    @property
    def is_verified(self) -> bool:
        return bool(self.verified) and self.verified[-1].verification.verdict in TESTED_VERDICTS

    @property
    def after(self) -> dict[str, bytes | None]:
        """Changed files as the last patch leaves them."""
        return contents(self.verified[-1].patch) if self.verified else {}


def draft_with_citation(
    experience: JobExperience,
    text: str,
    kind: LessonKind,
    paths: Iterable[str],
    *,
    topic: str = "",
    author: str = HARNESS,
    min_shared: int = 1,
) -> LessonDraft | None:
    """None if the text cannot be a lesson, or if no line of these files shares `min_shared` words with it."""
    try:
        fact = check_learned(text)
    except LessonRefusedError:
        return None
    for path in paths:
        citation = find_citation(experience.tree, path, fact, experience.after, least=min_shared)
        if citation is not None:
            return LessonDraft(text=fact, kind=kind, topic=topic, citation=citation, author=author)
    return None


def contents(patch: Patch) -> dict[str, bytes | None]:
    return {change.path: change.content for change in patch.changes}


def commands_in(trajectory: Iterable[str]) -> Iterator[ExecutedCommand]:
    """The commands that the agent ran, from the lines of its trajectory (`app.agent.loop`)."""
    for record in map(json.loads, trajectory):
        for action in record["actions"]:
            observation = str(action.get("observation", ""))
            match = _EXIT_CODE.match(observation)
            command = action.get("arguments", {}).get("command")
            if action.get("tool") == "bash" and match and isinstance(command, str):
                yield ExecutedCommand(command, int(match[1]), observation[-_OUTPUT_TAIL:])


_MAX_NAMES = 3
_MAX_NAME_LENGTH, _MAX_COMMAND_LENGTH = 80, 100
_MANIFESTS = (
    ".github/agent-fix.yml",
    *PYTEST_SETTINGS,
    "pyproject.toml",
    "tox.ini",
    "setup.cfg",
    "package.json",
    "go.mod",
    "Cargo.toml",
    "Makefile",
    "pom.xml",
    "build.gradle",
    "Rakefile",
    ".rspec",
)
"""Files that may say how the tests are run, in order of weight."""


def by_rule(experience: JobExperience) -> Iterator[LessonDraft]:
    rules = (_suite_command, _command_that_does_not_start, _broken_tests, _failed_reproduction)
    for rule in rules:
        try:
            draft = rule(experience)
        except _DoesNotFitError:
            continue
        if draft is not None:
            yield draft


def _suite_command(experience: JobExperience) -> LessonDraft | None:
    """The command, its duration, and the tests that fail without any change."""
    suite = experience.known.suite
    if suite is None or suite.count is None or suite.partial:
        return None
    command = _command(suite.execution.command)
    sentence = f"{command} runs the suite, {_duration(suite.execution.seconds)}"
    failing = suite.failing or ()
    if not failing:
        return _draft(experience, f"{sentence}; all of it passes on the base.", "how_to_test", topic="suite")
    failing_count = "1 test fails" if len(failing) == 1 else f"{len(failing)} tests fail"
    names = _list_names(failing)
    texts = (
        f"{sentence}; {failing_count} on the base already: {names}.",
        f"{sentence}; {failing_count} on the base already.",
    )
    found = (_draft(experience, text, "how_to_test", topic="suite") for text in texts)
    return next((draft for draft in found if draft is not None), None)


def _command_that_does_not_start(experience: JobExperience) -> LessonDraft | None:
    """A way to start the tests that does not work in the sandbox, and one that does."""
    for place, first in enumerate(experience.commands):
        tool = _test_tool(first.command)
        absent = first.exit_code in {126, 127} or f"No module named {tool}" in first.output
        if not tool or not absent:
            continue
        for later in experience.commands[place + 1 :]:
            if later.exit_code == 0 and _test_tool(later.command) == tool and later.command != first.command:
                names = [_command(each.command) for each in (first, later)]
                text = f"{names[0]} does not start in the sandbox (exit code {first.exit_code}); {names[1]} does."
                return _draft(experience, text, "how_to_test", topic=f"start {tool}")
    return None


def _broken_tests(experience: JobExperience) -> LessonDraft | None:
    """Tests that an earlier change broke, and the files in which the accepted one differs."""
    *earlier, last = experience.verified
    for before in earlier:
        broken = before.verification.suite.newly_failing if before.verification.suite else ()
        fixed = [path for path in _differing_paths(before.patch, last.patch) if not is_test_file(path)]
        if not broken or not fixed:
            continue
        changed = [change.path for change in before.patch.changes if not is_test_file(change.path)]
        what_broke = f"A change of {_list_names(changed)} broke {_list_names(broken, 2)}"
        text = f"{what_broke}; what passed differs in {_list_names(fixed)}."
        places = [*filter(None, (_file_of(name, experience.tree) for name in broken[:2])), *fixed]
        return draft_with_citation(experience, text, "failure_and_fix", places)
    return None


def _failed_reproduction(experience: JobExperience) -> LessonDraft | None:
    """A command that showed nothing, and the one that did."""
    *earlier, last = experience.verified
    accepted = last.verification.reproduction
    if accepted is None or (accepted.on_base, accepted.on_head) != ("red", "green"):
        return None
    for before in earlier:
        earlier_reproduction = before.verification.reproduction
        reason = _why_no_reproduction(earlier_reproduction)
        if earlier_reproduction is not None and reason and earlier_reproduction.command != accepted.command:
            first, second = _command(earlier_reproduction.command), _command(accepted.command)
            text = f"{first} was no reproduction: {reason}. {second} was one."
            return draft_with_citation(
                experience, text, "failure_and_fix", _files_in(accepted.command, experience.tree)
            )
    return None


def _why_no_reproduction(reproduction: Reproduction | None) -> str:
    if reproduction is None:
        return ""
    match (reproduction.on_base, reproduction.on_head):
        case ("green", _):
            return "it passes on the base"
        case ("was_not_there", _):
            return "on the base it could not even start"
        case (_, "was_not_there"):
            return "it could not start"
        case _:
            return ""


def _draft(experience: JobExperience, text: str, kind: LessonKind, *, topic: str = "") -> LessonDraft | None:
    """A lesson about running tests: with the manifest that says so as its citation, or a test."""
    entries = experience.tree.entries()
    there = [path for path in _MANIFESTS if path in entries]
    tests = [path for path in entries if is_test_file(path)][:20]
    return draft_with_citation(experience, text, kind, [*there, *tests], topic=topic, min_shared=0)


def _differing_paths(before: Patch, after: Patch) -> list[str]:
    """Paths with different contents after the two patches."""
    first, last = contents(before), contents(after)
    return sorted(
        path for path in first.keys() | last.keys() if first.get(path, _NOT_CHANGED) != last.get(path, _NOT_CHANGED)
    )


_NOT_CHANGED = b"\0not changed"


def _file_of(test: str, tree: Tree) -> str | None:
    """The file in a test's id: `tests/test_x.py::test_y`, or `tests.test_x.Case.test_y`."""
    entries = tree.entries()
    path = test.partition("::")[0]
    if path in entries:
        return path
    parts = re.split(r"[./]", path)
    for end in range(len(parts), 0, -1):
        stem = "/".join(parts[:end])
        for suffix in (".py", ".js", ".ts", ".go", ".rs", ".java", ".rb"):
            if stem + suffix in entries:
                return stem + suffix
    return None


def _files_in(command: str, tree: Tree) -> list[str]:
    """Files of the base that a command names."""
    found = (_file_of(word, tree) for word in re.findall(r"[\w./:-]+", command))
    return [path for path in found if path is not None and PurePosixPath(path).suffix]


_TOOLS = re.compile(
    rf"\b(py\.?test|unittest|tox|nox|jest|vitest|mocha|{TEST_SCRIPT_RE}|go test|cargo|make|rspec|mvn|gradle)\b"
)


def _test_tool(command: str) -> str:
    """The program that a command starts tests with; empty if it does not."""
    found = _TOOLS.search(command)
    return found[1].replace(".", "") if found else ""


def _list_names(names: Sequence[str], limit: int = _MAX_NAMES) -> str:
    return listed([_name(name) for name in names], limit)


def _name(text: str) -> str:
    """A path or a test's id in a code span."""
    return _span(text, _MAX_NAME_LENGTH) or "one of a long name"


def _command(text: str) -> str:
    """A command in a code span. Raises _DoesNotFitError if the whole command does not fit."""
    shown = _span(text, _MAX_COMMAND_LENGTH)
    if not shown:
        raise _DoesNotFitError
    return shown


def _span(text: str, longest: int) -> str:
    plain = " ".join(text.split())
    return f"`{plain}`" if "`" not in plain and 0 < len(plain) <= longest else ""


class _DoesNotFitError(ValueError):
    """The lesson would not fit."""


def _duration(seconds: float) -> str:
    """Coarse, so that the same lesson is not learned again each time."""
    if seconds < 60:
        return "within seconds" if seconds < 10 else "within a minute"
    minutes = round(seconds / 60)
    return "in about a minute" if minutes == 1 else f"in about {minutes} minutes"


MAX_FROM_AGENT: Final = 3
_AGENT_LESSON = re.compile(r"\s*`?(?P<path>[^\s`:]+)`?(?::\d+)?\s*(?::|[-\u2013\u2014]|\s)\s*(?P<fact>\S.*)", re.DOTALL)


def lessons_of(experience: JobExperience) -> tuple[LessonDraft, ...]:
    """The lessons of a job, the harness's first; none unless its change is at least tested."""
    if not experience.is_verified or experience.job.task.follows_up:
        return ()
    drafts = [*by_rule(experience), *_from_agent(experience)]
    unique = {draft.about: draft.model_copy(update={"job": experience.job.id}) for draft in reversed(drafts)}
    return tuple(reversed(unique.values()))[:MAX_PER_JOB]


def _from_agent(experience: JobExperience) -> Iterator[LessonDraft]:
    """At most three, each with a file of the base about the same subject."""
    agent_lessons = experience.submission.lessons[:MAX_FROM_AGENT] if experience.submission else ()
    for text in agent_lessons:
        match = _AGENT_LESSON.fullmatch(text)
        if match is None:
            continue
        path = match["path"].removeprefix("/workspace/").removeprefix("./")
        draft = draft_with_citation(experience, match["fact"], "trap", [path], author=AGENT)
        if draft is not None:
            yield draft
