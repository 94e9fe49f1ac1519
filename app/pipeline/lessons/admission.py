"""Decides which text may become a lesson: one short fact in plain prose without orders, addresses or secrets.

The rules on wording only reduce noise, in one language. What they miss does no harm by itself: a lesson is shown as
data, gives no rights, and every change is verified whatever the agent was shown.
"""

import re
from typing import Final

from app.core.lessons import MAX_TEXT
from app.core.redaction import find_secrets, mask_tokens
from app.core.text import one_line, visible

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
