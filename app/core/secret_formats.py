"""The formats of well-known providers' secrets, and of values that only look like secrets."""

import math
import re
from collections import Counter
from typing import NamedTuple

_START = r"(?<![A-Za-z0-9_-])"
_END = r"(?![A-Za-z0-9_-])"


class SecretFormat(NamedTuple):
    """One provider's format.

    Every match contains the literal `head`, so most text is skipped without running a regular expression.
    """

    kind: str
    head: str
    pattern: re.Pattern[str]


def _token(kind: str, head: str, rest: str, *, end: str = _END) -> SecretFormat:
    return SecretFormat(kind, head, re.compile(_START + re.escape(head) + rest + end))


FORMATS = (
    _token("GitHub installation token", "ghs_", r"[A-Za-z0-9_.-]{36,}"),  # since 2026 ghs_APPID_JWT, about 520 long
    _token("GitHub token", "ghp_", r"[A-Za-z0-9]{36,255}"),
    _token("GitHub token", "gho_", r"[A-Za-z0-9]{36,255}"),
    _token("GitHub token", "ghu_", r"[A-Za-z0-9_.-]{36,}"),
    _token("GitHub token", "ghr_", r"[A-Za-z0-9]{36,255}"),
    _token("GitHub token", "github_pat_", r"[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    _token("GitLab token", "glpat-", r"[A-Za-z0-9_-]{20,}(?:\.[a-z0-9.]{2,})?"),
    _token("AWS access key", "AKIA", r"[A-Z2-7]{16}"),
    _token("AWS access key", "ASIA", r"[A-Z2-7]{16}"),
    _token("Slack token", "xox", r"[abeoprs]-[A-Za-z0-9-]{20,}"),
    _token("Slack token", "xapp-", r"\d-[A-Z0-9]{8,}-\d+-[a-f0-9]{32,}"),
    SecretFormat("Slack webhook", "/services/T", re.compile(r"slack\.com/services/T\w{8,}/B\w{8,}/\w{20,}")),
    _token("Stripe key", "sk_live_", r"[A-Za-z0-9]{16,}"),
    _token("Stripe key", "rk_live_", r"[A-Za-z0-9]{16,}"),
    _token("Stripe key", "sk_test_", r"[A-Za-z0-9]{24,}"),
    _token("webhook signing secret", "whsec_", r"[A-Za-z0-9+/]{32,}={0,2}"),
    _token("Google API key", "AIza", r"[A-Za-z0-9_-]{35}"),
    _token("Google OAuth token", "ya29.", r"[A-Za-z0-9_-]{30,}"),
    _token("Google OAuth secret", "GOCSPX-", r"[A-Za-z0-9_-]{28}"),
    _token("Anthropic key", "sk-ant-", r"[A-Za-z0-9_-]{24,}"),
    _token("OpenAI key", "sk-", r"(?:(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{40,}|[A-Za-z0-9]{32,64})"),
    _token("OpenRouter key", "sk-or-", r"v1-[0-9a-f]{64}"),
    _token("Groq key", "gsk_", r"[A-Za-z0-9]{40,}"),
    _token("xAI key", "xai-", r"[A-Za-z0-9]{60,}"),
    _token("E2B key", "e2b_", r"[0-9a-f]{40}"),
    _token("Hugging Face token", "hf_", r"[A-Za-z0-9]{30,}"),
    _token("npm token", "npm_", r"[A-Za-z0-9]{36}"),
    _token("PyPI token", "pypi-AgE", r"[A-Za-z0-9_-]{50,}"),
    _token("Docker token", "dckr_pat_", r"[A-Za-z0-9_-]{27}"),
    _token("DigitalOcean token", "dop_v1_", r"[0-9a-f]{64}"),
    _token("SendGrid key", "SG.", r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    _token("Shopify token", "shpat_", r"[0-9a-fA-F]{32}"),
    _token("Databricks token", "dapi", r"[0-9a-f]{32}(?:-\d)?"),
    _token("HashiCorp Vault token", "hvs.", r"[A-Za-z0-9_-]{24,}"),
    SecretFormat("Telegram bot token", ":AA", re.compile(r"\b\d{8,10}:AA[A-Za-z0-9_-]{33}" + _END)),
    _token("age key", "AGE-SECRET-KEY-1", r"[0-9A-Z]{58}"),
    SecretFormat("Azure storage key", "AccountKey=", re.compile(r"AccountKey=[A-Za-z0-9+/]{80,88}={0,2}")),
    SecretFormat(
        "private key",
        "PRIVATE KEY",
        re.compile(
            r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
            r"(?:\\[rn]|[\s\"'+,])*(?:(?:Proc-Type|DEK-Info|Version|Comment): ?[^\n]{0,80}[\s\"'+,]+)*"
            r"[A-Za-z0-9+/=]{24}"
        ),
    ),
    _token("JSON web token", "eyJ", r"[A-Za-z0-9_-]{12,}\.eyJ[A-Za-z0-9_-]{12,}\.[A-Za-z0-9_-]{20,}"),
    SecretFormat(
        "credentials in a URL",
        "://",
        re.compile(r"[a-z][a-z0-9+.-]{1,20}://[^\s/:@\"'<>]{0,80}:(?P<value>[^\s/:@\"'<>]{8,200})@"),
    ),
    SecretFormat(
        "authorization header", "asic ", re.compile(r"[Bb]asic (?P<value>[A-Za-z0-9+/]{20,}={0,2})(?![\w+/=])")
    ),
    SecretFormat("authorization header", "earer ", re.compile(r"[Bb]earer (?P<value>[A-Za-z0-9._~+/-]{20,}=*)")),
)

_NAMES = r"passw(?:or)?d|passphrase|pwd|secret|token|(?:api|access|private|client|auth)[_-]?key|credential"
ASSIGNMENT = re.compile(
    rf"""(?i:{_NAMES})[\w.-]{{0,30}}["']?\]?\s{{0,8}}"""
    r"""(?::(?:\s{0,4}[\w\[\] |.]{1,40}=)?|=>?|:=|,)\s{0,8}"""
    r"""(?:[rbuf]{0,2}(?P<quote>["'`])(?P<value>[^"'`\s]{10,300})(?P=quote)|(?P<bare>[A-Za-z0-9+/=_.~-]{16,300})\s*$)""",
    re.MULTILINE,
)
"""A name that promises a secret, and a literal given to it."""

_PLACEHOLDER = re.compile(
    r"(?i)example|sample|dummy|fake|test|mock|placeholder|changeme|change_me|your|insert|replace|redacted|secret|passw|"
    r"token|foobar|lorem|xxxx|\*\*\*|\.\.\.|0123456789|1234567890|abcdefgh|<|>|\$\{|\{\{|%\(|\{\w*\}|^\$|^%|^/|^\.|://"
)
_PUBLIC_SHAPE = re.compile(
    r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"  # a UUID is an identifier
    r"|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+"  # attribute access
)
_MIXED = re.compile(r"[0-9][A-Za-z]|[a-z][A-Z][a-z]*[0-9]|[A-Za-z][0-9]{1,3}[A-Za-z]|[a-z]{1,3}[A-Z]{2,}[a-z]")
_WORDS = re.compile(r"[A-Za-z]{1,20}[0-9]{0,2}(?:[-_./:, @+=]+[A-Za-z0-9]{1,20})*")
MIN_ENTROPY = {True: 2.7, False: 3.0}
"""Bits a character, for hexadecimal digits and otherwise; 20 random letters and digits have about 4."""


def is_placeholder(value: str) -> bool:
    """True for values that are obviously not secret: they say so, or hardly vary."""
    return bool(_PLACEHOLDER.search(value)) or len(set(value)) < 6


def looks_random(value: str) -> bool:
    """True for letters and digits that look generated: not words, identifiers, paths or versions."""
    digits = sum(character.isdigit() for character in value)
    letter_count = sum(character.isalpha() for character in value)
    mixed_case = len(re.findall(r"[a-z][A-Z]", value)) >= 2
    if letter_count < 4 or digits + mixed_case < 2 or _PUBLIC_SHAPE.fullmatch(value) or _reads_as_words(value):
        return False
    return entropy(value) >= MIN_ENTROPY[not value.strip("0123456789abcdefABCDEF")]


def _reads_as_words(value: str) -> bool:
    parts = re.split(r"[^A-Za-z0-9]+", value)
    return bool(_WORDS.fullmatch(value)) and not any(map(_MIXED.search, parts))


def entropy(value: str) -> float:
    """Shannon entropy in bits per character."""
    total = len(value)
    return -sum(count / total * math.log2(count / total) for count in Counter(value).values())
