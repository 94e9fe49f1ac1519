"""Edits our pull request's body: a section for each follow-up, the state of an early draft, the mark of a fork."""

import re
from collections.abc import Sequence
from typing import Final, Literal

from app.github.models import PullRequest
from app.publish.effects import MAX_BODY

_FOOTER = "\n---\n\n<sub>agent-fix · "
_STATE_MARKS = ("<!-- agent-fix:state -->", "<!-- /agent-fix:state -->")
_LEFT_OUT = "## An earlier follow-up\n\nLeft out, because the description would be too long; see its commit."

_NO_PLACE = """## Verification

Left out, because the description would be too long. The verdict above counts; the commit's check has the details."""


def _between(begin: str, end: str) -> re.Pattern[str]:
    """Two markers with the text between them. Each has a line of its own: others may be in a title or an output."""
    return re.compile(rf"(?ms)^{re.escape(begin)}$.*?^{re.escape(end)}$")


def _unix(body: str) -> str:
    """The body with the line ends that we write: a browser writes others when a person edits it."""
    return body.replace("\r\n", "\n")


def with_section(body: str, key: str, section: str) -> str:
    """The body with this job's section, new or replaced, before the footer. If it is too long, the oldest other
    sections are dropped."""
    body = _unix(body)
    begin, end = _marks(key)
    block = f"{begin}\n{_without_marks(section).strip()}\n{end}"
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
            begin, end = _marks(other)
            body = body.replace(old, f"{begin}\n{_LEFT_OUT}\n{end}", 1)
    return body


def with_state(body: str, section: str) -> str:
    """The body with the job's state replaced; a body without one stays as it is."""
    return _between(*_STATE_MARKS).sub(lambda _: marked_state(section), _unix(body), count=1)


def marked_state(section: str) -> str:
    return f"{_STATE_MARKS[0]}\n{section}\n{_STATE_MARKS[1]}"


PartName = Literal["verdict", "verification"]


def marked_part(name: PartName, text: str) -> str:
    """Text of the body that may be replaced later, without what looks like its markers, such as in an output."""
    begin, end = _part_marks(name)
    return f"{begin}\n{text.replace(f'agent-fix:{name}', f'agent-fix: {name}')}\n{end}"


def _part_marks(name: PartName) -> tuple[str, str]:
    return f"<!-- agent-fix:{name} -->", f"<!-- /agent-fix:{name} -->"


def with_parts(body: str, *, verdict: str, verification: Sequence[str]) -> str:
    """The body with the parts that it has replaced by these, and the first verification with which it fits.

    A part that says that tests are still running never stays: at worst it says that there is no place for more.
    """
    body = _replaced(_unix(body), "verdict", verdict)
    made = (_replaced(body, "verification", text) for text in verification)
    return next((each for each in made if len(each) <= MAX_BODY), "") or _replaced(body, "verification", _NO_PLACE)


def _replaced(body: str, name: PartName, text: str) -> str:
    return _between(*_part_marks(name)).sub(lambda _: marked_part(name, text), body, count=1)


def _marks(key: str) -> tuple[str, str]:
    return f"<!-- agent-fix:follow-up:{key} -->", f"<!-- /agent-fix:follow-up:{key} -->"


def _blocks(body: str) -> dict[str, str]:
    """The existing sections by key, in order."""
    found = re.finditer(
        r"<!-- agent-fix:follow-up:(?P<key>[\w.-]+) -->\n.*?\n<!-- /agent-fix:follow-up:(?P=key) -->", body, re.DOTALL
    )
    return {block["key"]: block[0] for block in found}


def _without_marks(section: str) -> str:
    """The section without anything that looks like one of our markers, such as in a shown output."""
    return section.replace("agent-fix:follow-up:", "agent-fix: follow-up:")


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
