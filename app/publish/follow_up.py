"""What was done to our pull request later stands in its body, a section for each job; the first text stays."""

import re

from app.publish.intent import MAX_BODY

_FOOTER = "\n---\n\n<sub>agent-fix · "
_LEFT_OUT = "## An earlier follow-up\n\nIt is left out here, because the description would be too long; see its commit."


def with_section(body: str, key: str, section: str) -> str:
    """The body with this job's section, new or replaced, before the footer. Where it would be too long earlier
    sections give way, the oldest first."""
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


def _marks(key: str) -> tuple[str, str]:
    return f"<!-- agent-fix:follow-up:{key} -->", f"<!-- /agent-fix:follow-up:{key} -->"


def _blocks(body: str) -> dict[str, str]:
    """The sections that are there, by key, in order."""
    found = re.finditer(
        r"<!-- agent-fix:follow-up:(?P<key>[\w.-]+) -->\n.*?\n<!-- /agent-fix:follow-up:(?P=key) -->", body, re.DOTALL
    )
    return {block["key"]: block[0] for block in found}


def _without_marks(section: str) -> str:
    """An output that is shown may hold what reads like a mark of ours."""
    return section.replace("agent-fix:follow-up:", "agent-fix: follow-up:")
