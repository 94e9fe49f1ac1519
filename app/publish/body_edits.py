"""Edits our pull request's body: follow-ups, the state of an early draft, the repository's own template, notes.

The template comes from the default branch and keeps its wording: what we can answer goes below its headings, the rest
of our text is appended, and headings that we cannot answer stay.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from app.core.patch import Tree
from app.github.models import PullRequest
from app.jobs.store import JobWithContext
from app.publish.effects import MAX_BODY, AddFollowUpSection, OpenDraftPullRequest
from app.publish.markdown import alert, code_span

_FOOTER = "\n---\n\n<sub>agent-fix · "
_LEFT_OUT = "## An earlier follow-up\n\nLeft out, because the description would be too long; see its commit."

_NO_PLACE = """## Verification

Left out, because the description would be too long. The verdict above counts; the commit's check has the details."""


def _unix(body: str) -> str:
    """The body with the line ends that we write: a browser writes others when a person edits it."""
    return body.replace("\r\n", "\n")


def with_follow_up(body: str, key: str, effect: AddFollowUpSection) -> str:
    """The body with the section of this job, and with the verdict and the verification of the new head."""
    if effect.banner:
        if "<!-- agent-fix:verdict -->" not in body:  # written by 0.1
            body = _OLD_BANNER.sub(lambda _: marked_part("verdict", ""), _unix(body), count=1)
        body = with_parts(body, verdict=effect.banner, verification=effect.verifications)
    return with_section(body, key, effect.section, effect.shorter)


_OLD_BANNER = re.compile(r"(?m)^> \[!\w+\]\n> \*\*(?:Proved|Tested|Unproved|Broken)\.\*\* .*(?:\n>.*)*")


def with_section(body: str, key: str, section: str, shorter: Sequence[str] = ()) -> str:
    """The body with this job's section, new or replaced, before the footer. If it is too long, the oldest other
    sections are dropped; if that does not suffice, the first shorter section that fits is used, or else the last."""
    made = [_with_section(_unix(body), key, text) for text in (section, *shorter)]
    return next((each for each in made if len(each) <= MAX_BODY), made[-1])


def _with_section(body: str, key: str, section: str) -> str:
    block = _marked(key, section.strip())
    there = _blocks(body).get(key)
    if there is not None:
        body = body.replace(there, block, 1)
    else:
        at = body.rfind(_FOOTER)
        head, foot = (body[:at], body[at:]) if at >= 0 else (body, "")
        body = f"{head.rstrip()}\n\n{block}\n{foot}"
    for other, old in _blocks(body).items():
        if len(body) <= MAX_BODY:
            break
        if other != key:
            body = body.replace(old, _marked(other, _LEFT_OUT), 1)
    return body


def with_state(body: str, section: str) -> str:
    """The body with the job's state replaced; a body without one stays as it is."""
    return _replaced(_unix(body), "state", section)


PartName = Literal["state", "verdict", "verification"]


def marked_part(name: PartName, text: str) -> str:
    """Text of the body that may be replaced later, without what looks like its markers, such as in an output."""
    return f"<!-- agent-fix:{name} -->\n{_without_marks(name, text)}\n<!-- /agent-fix:{name} -->"


def _without_marks(name: str, text: str) -> str:
    return text.replace(f"agent-fix:{name}", f"agent-fix: {name}")


def with_parts(body: str, *, verdict: str, verification: Sequence[str]) -> str:
    """The body with the parts that it has replaced by these, and the first verification with which it fits.

    A part that says that tests are still running never stays: at worst it says that there is no place for more.
    """
    body = _replaced(_unix(body), "verdict", verdict)
    made = (_replaced(body, "verification", text) for text in verification)
    return next((each for each in made if len(each) <= MAX_BODY), "") or _replaced(body, "verification", _NO_PLACE)


def _replaced(body: str, name: PartName, text: str) -> str:
    # Each marker has a line of its own: others may be in a title or an output.
    there = rf"(?ms)^<!-- agent-fix:{name} -->$.*?^<!-- /agent-fix:{name} -->$"
    return re.sub(there, lambda _: marked_part(name, text), body, count=1)


def _marked(key: str, section: str) -> str:
    text = _without_marks("follow-up:", section)
    return f"<!-- agent-fix:follow-up:{key} -->\n{text}\n<!-- /agent-fix:follow-up:{key} -->"


def _blocks(body: str) -> dict[str, str]:
    """The existing sections by key, in order."""
    found = re.finditer(
        r"<!-- agent-fix:follow-up:(?P<key>[\w.-]+) -->\n.*?\n<!-- /agent-fix:follow-up:(?P=key) -->", body, re.DOTALL
    )
    return {block["key"]: block[0] for block in found}


FORK_MARK: Final = "<!-- agent-fix:commits-of-a-fork -->"
"""A marker in our pull requests with commits from a fork, to recognise them later."""
FORK_NOTE: Final = (
    f"{FORK_MARK}\n> [!WARNING]\n"
    "> **This branch holds commits from a fork.** GitHub gives no secrets to workflows of a fork's pull request, but "
    "workflows of this branch would get them. So agent-fix starts none, whatever the configuration says, not even for "
    "`/agent ci`. Review all commits first; a commit pushed by a person starts them."
)


def holds_commits_of_a_fork(pull: PullRequest, repository: int) -> bool:
    """True if a branch based on this pull request holds commits of another repository."""
    return pull.head_repository != repository or FORK_MARK in pull.body


_PLACES = ("", ".github/", "docs/")
_TEMPLATE = frozenset(f"{position}pull_request_template{end}" for position in _PLACES for end in (".md", ".txt", ""))
MAX_TEMPLATE = 10_000
_HEADING = re.compile(r"^ {0,3}(#{1,6})\s+(.+?)[\s#]*$")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_OPENING = re.compile(r"(?:Fixes #\d+|Changes for #\d+|Issue): .*")
_UNANSWERED = re.compile(r"(?im)^\W*(?:closes?|fix(?:es)?|resolves?|issue)?\s*:?\s*#?\W*$")
_SUMMARY = "What changed and why"
_BELOW = "See **Verification** below for what was run, on which commit, and the result."
_ISSUE = re.compile(r"(?i)\b(?:issues?|tickets?|fixes|closes)\b")
_TESTS = re.compile(r"(?i)\b(?:test\w*|verif\w+|qa)\b")
_WORDS = re.compile(r"(?i)\b(?:descri\w+|summary|what|why|changes?|motivation|overview|context)\b")


@dataclass(slots=True)
class _TemplateSection:
    """A heading with the text below it; the first of a text may have none."""

    heading: str = ""
    title: str = ""
    lines: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.lines).strip("\n")


def with_template(effect: OpenDraftPullRequest, tree: Tree, where: JobWithContext) -> OpenDraftPullRequest:
    """The draft in its repository's template, which counts only if the tree is the default branch's."""
    body = effect.body
    if where.job_context.config.ci == "manual" and (workflows := workflows_not_skipped(tree)):
        names = ", ".join(code_span(path) for path in workflows[:5])
        note = "CI waits for `/agent ci`, but workflows on `pull_request_target` start anyway"
        body = insert_note(body, alert("NOTE", f"{note}: {names} may be running already."))
    template = find_template(tree) if where.job_context.publish_target == "new_branch" else ""
    bodies = (fill_template(template, body) if template else body, body, effect.body)
    chosen = next((text for text in bodies if len(text) <= MAX_BODY), effect.body)  # our notes may have made it longer
    return effect.model_copy(update={"body": insert_note(chosen, FORK_NOTE) if where.job_context.fork else chosen})


def find_template(tree: Tree) -> str:
    """The repository's template; empty if there is none, or several, or one that is not text."""
    path = next((path for path in tree.entries() if path.casefold() in _TEMPLATE), None)
    if path is None or tree.entries()[path].mode == "120000" or tree.entries()[path].size > MAX_TEMPLATE:
        return ""
    return tree.read(path).decode("utf-8", "replace").replace("\r\n", "\n").strip()


def workflows_not_skipped(tree: Tree) -> tuple[str, ...]:
    """Workflows that a skip mark does not hold back: GitHub starts `pull_request_target` anyway."""
    found = [path for path in tree.entries() if re.fullmatch(r"\.github/workflows/[^/]+\.ya?ml", path)]
    contents = tree.read_many(found)
    return tuple(path for path in found if b"pull_request_target" in contents.get(path, b""))


def fill_template(template: str, body: str) -> str:
    """Our text in the repository's template."""
    at = body.rfind(_FOOTER)
    text, footer = (body[:at], body[at:].strip()) if at >= 0 else (body, "")
    ours = list(_sections(text))
    opening, banner = _opening(ours[0].text)
    summary = next((section.text for section in ours if section.title == _SUMMARY), "")
    parts: list[str] = []
    for section in _sections(template):
        answer = _answer(section, opening, summary)
        opening = "" if answer == opening else opening
        summary = "" if answer == summary else summary
        parts += [section.heading, _kept(section.text, answer), answer]
    left = [part for section in ours[1:] if section.title != _SUMMARY for part in (section.heading, section.text)]
    summary_lines = [f"## {_SUMMARY}", summary] if summary else []
    return "\n\n".join(part for part in (opening, banner, *parts, *summary_lines, *left, footer) if part) + "\n"


def _answer(section: _TemplateSection, opening: str, summary: str) -> str:
    """Our text for this heading: each part once, below the first heading that asks for it."""
    if _ISSUE.search(section.title) and opening:
        return opening
    if _TESTS.search(section.title) and "[ ]" not in section.text:
        return _BELOW
    return summary if _WORDS.search(section.title) else ""


def _kept(text: str, answer: str) -> str:
    """A template's own text; where it is answered, its instructions and empty fields are removed."""
    if not answer:
        return text
    question = _COMMENT.sub("", text).strip()
    return "" if _UNANSWERED.fullmatch(question) else question


def _opening(text: str) -> tuple[str, str]:
    """The line that closes the issue, and the banner below it."""
    first, _, below = text.partition("\n")
    return (first, below.strip()) if _OPENING.match(first) else ("", text)


def _sections(text: str) -> Iterator[_TemplateSection]:
    """Split at headings; code blocks and comments stay whole."""
    section, fence, comment = _TemplateSection(), "", False
    for line in text.split("\n"):
        if mark := _FENCE.match(line):
            fence = "" if fence and mark[1].startswith(fence) else fence or mark[1]
        heading = None if fence or comment else _HEADING.match(line)
        comment = (comment or "<!--" in line) and "-->" not in line.rpartition("<!--")[2]
        if heading is None:
            section.lines.append(line)
            continue
        yield section
        section = _TemplateSection(heading=line.strip(), title=heading[2])
    yield section


def with_note(body: str, note: str) -> str:
    """The body with this note, unless it has it already or there is no place for it."""
    longer = insert_note(_unix(body), note)
    return body if note in _unix(body) or len(longer) > MAX_BODY else longer


def insert_note(body: str, note: str) -> str:
    """The body with a note before its first section."""
    head, mark, rest = body.partition("\n## ")
    return f"{head.rstrip()}\n\n{note}\n{mark}{rest}" if mark else f"{body.rstrip()}\n\n{note}\n"
