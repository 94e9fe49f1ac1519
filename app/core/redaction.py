"""Finds secrets before text leaves the process: our own by their value, other people's by their format."""

import base64
import html
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote, quote_plus, unquote

MASK = "[redacted]"
_START = r"(?<![A-Za-z0-9_-])"
_END = r"(?![A-Za-z0-9_-])"


class SecretFormat(NamedTuple):
    """One provider's format.

    Every match contains the literal `head`, so most text is skipped without running a regular expression.
    """

    kind: str
    head: str
    pattern: re.Pattern[str]


def _token(kind: str, head: str, rest: str) -> SecretFormat:
    return SecretFormat(kind, head, re.compile(_START + re.escape(head) + rest + _END))


# What detect-secrets 1.5 does not know, matches only in part, or matches in ordinary code.
FORMATS = (
    _token("GitHub installation token", "ghs_", r"[A-Za-z0-9_.-]{36,}"),  # since 2026 ghs_APPID_JWT, about 520 long
    _token("GitHub token", "ghu_", r"[A-Za-z0-9_.-]{36,}"),
    _token("GitHub token", "ghr_", r"[A-Za-z0-9]{36,255}"),
    _token("GitHub token", "github_pat_", r"[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    _token("webhook signing secret", "whsec_", r"[A-Za-z0-9+/]{32,}={0,2}"),
    _token("Slack token", "xapp-", r"\d-[A-Z0-9]{8,}-\d+-[a-f0-9]{32,}"),
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
    _token("Shopify token", "shpat_", r"[0-9a-fA-F]{32}"),
    _token("Databricks token", "dapi", r"[0-9a-f]{32}(?:-\d)?"),
    SecretFormat("Telegram bot token", ":AA", re.compile(r"\b\d{8,10}:AA[A-Za-z0-9_-]{33}" + _END)),
    _token("HashiCorp Vault token", "hvs.", r"[A-Za-z0-9_-]{24,}"),
    _token("age key", "AGE-SECRET-KEY-1", r"[0-9A-Z]{58}"),
    SecretFormat(
        "private key",
        "PRIVATE KEY",
        re.compile(
            r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
            r"(?:\\[rn]|[\s\"'+,])*(?:(?:Proc-Type|DEK-Info|Version|Comment):[^\n]{0,80}[\s\"'+,]+)*+"
            r"[A-Za-z0-9+/=]{24}(?:[A-Za-z0-9+/=]|\\[rn]|[\s\"'+,])*+(?:-----END [A-Z0-9 ]{1,40}-----)?"
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
    r"""(?:[rbuf]{0,2}(?P<quote>["'`])(?P<value>[^"'`\s]{10,300})(?P=quote)|(?P<bare>[A-Za-z0-9+/=_.~-]{16,300})(?=\s*$|\s+(?:[#;]|//)))""",
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
MAX_PLACEHOLDER = 60
MIN_ENTROPY = {True: 2.7, False: 3.0}
"""Bits a character, for hexadecimal digits and otherwise; 20 random letters and digits have about 4."""


def is_placeholder(value: str) -> bool:
    """True for values that are obviously not secret: they say so, or hardly vary.

    A long random value has such a word by chance.
    """
    return len(set(value)) < 6 or (len(value) <= MAX_PLACEHOLDER and bool(_PLACEHOLDER.search(value)))


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


class SecretMatch(NamedTuple):
    """A likely secret, by kind and 1-based line; its value is never stored."""

    kind: str
    line: int


class _Span(NamedTuple):
    start: int
    end: int
    kind: str


def find_secrets(text: str) -> tuple[SecretMatch, ...]:
    """Likely secrets in text such as the added lines of a diff, in order, each kind once per line."""
    found = {SecretMatch(span.kind, text.count("\n", 0, span.start) + 1) for span in _spans(text)}
    return tuple(sorted(found, key=lambda finding: (finding.line, finding.kind)))


def mask_secrets(text: str) -> str:
    """The text with everything masked that looks like a secret."""
    for span in reversed(_spans(text)):
        text = f"{text[: span.start]}{MASK}{text[span.end :]}"
    return text


def _spans(text: str) -> list[_Span]:
    """Likely secrets in order, without overlaps; of two that overlap, the first to be found."""
    spans = list[_Span]()
    for span in _candidates(text):
        if all(span.end <= other.start or span.start >= other.end for other in spans):
            spans.append(span)
    return sorted(spans)


def _candidates(text: str) -> Iterator[_Span]:
    for kind, head, pattern in FORMATS:
        if head not in text:
            continue
        for match in pattern.finditer(text):
            generic = "value" in match.groupdict()
            value = match["value"] if generic else match[0].removeprefix(head)
            if not is_placeholder(value) and (not generic or looks_random(value)):
                yield _Span(*match.span("value" if generic else 0), kind)
    for kind, pattern in _library_formats():
        for match in pattern.finditer(text):
            if not is_placeholder(match[0]):
                end = _REST_OF_TOKEN.match(text, match.end())
                yield _Span(match.start(), end.end() if end else match.end(), kind)
    for match in ASSIGNMENT.finditer(text):
        group = "value" if match["value"] else "bare"
        if not is_placeholder(match[group]) and looks_random(match[group]):
            yield _Span(*match.span(group), "password or key")


_REST_OF_TOKEN = re.compile(r"[A-Za-z0-9_-]*")


@cache
def _library_formats() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """The formats of detect-secrets, as (kind, pattern); only its patterns are used, so it never asks a provider.

    Left out: what FORMATS does better, patterns that match ordinary words (Artifactory, keywords, entropy, addresses),
    and those whose time grows with the square of a line or worse (web tokens, npm, IBM).
    """
    from detect_secrets.plugins import (  # noqa: PLC0415  # 0.1 s of imports, when there is a text to search
        aws,
        azure_storage_key,
        discord,
        github_token,
        gitlab_token,
        mailchimp,
        sendgrid,
        slack,
        square_oauth,
        stripe,
        twilio,
    )

    detectors = (
        aws.AWSKeyDetector,
        azure_storage_key.AzureStorageKeyDetector,
        discord.DiscordBotTokenDetector,
        github_token.GitHubTokenDetector,
        gitlab_token.GitLabTokenDetector,
        mailchimp.MailchimpDetector,
        sendgrid.SendGridDetector,
        slack.SlackDetector,
        square_oauth.SquareOAuthDetector,
        stripe.StripeDetector,
        twilio.TwilioKeyDetector,
    )
    return tuple((kind.secret_type, pattern) for kind in detectors for pattern in kind.denylist)


MIN_LENGTH = 8
MIN_LINE = 32
"""Characters of a line of a key that is a secret by itself."""
_URL_PASSWORD = re.compile(r"^[a-z][a-z0-9+.-]*://[^/@\s]*?:([^/@\s]+)@")
_JOINTS = re.compile(r"(?:\\[nrt]|[\s\"'`+\\,:;|>#*])+")
"""What stands between the parts of a value that is wrapped, quoted or written as several literals."""


def secret_part(value: str) -> str:
    """The secret part of a setting: a URL's password, or the whole value of anything else."""
    password = _URL_PASSWORD.match(value)
    if password:
        return unquote(password[1])
    return "" if re.match(r"[a-z][a-z0-9+.-]*://", value) else value


def spellings(value: str) -> set[str]:
    """The value as it is, in JSON, HTML and URLs, and in hexadecimal digits and base64."""
    raw = value.encode()
    forms = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], html.escape(value)}
    forms |= {quote(value), quote(value, safe=""), quote_plus(value), raw.hex(), raw.hex().upper()}
    for offset in range(3):  # the characters that depend on these bytes alone, wherever they start in the encoded text
        padded = b"\0" * offset + raw
        encoded = base64.b64encode(padded).decode()[-(-offset * 8 // 6) : len(padded) * 8 // 6]
        forms |= {encoded, encoded.translate(str.maketrans("+/", "-_"))}
    return forms


class Redactor:
    """Knows our own secrets by value and finds or masks them in text.

    `found` decides whether text may be published: if not, none of it is. `redact` is for logs and for what is told on
    the way; it also masks what looks like anybody's secret. Of a URL only the password is secret. Not covered: values
    of fewer than eight characters or of one short lower-case word, parts of a value, and other encodings.
    """

    def __init__(self, values: Iterable[str] = (), *, directories: Iterable[Path] = ()) -> None:
        """`directories` of this machine are named by their last part alone."""
        self._directories = {str(path): path.name for path in directories if len(path.parts) > 2}
        guarded = {part for value in values if _is_guarded(part := secret_part(value.strip()))}
        self._count = len(guarded)
        lines = {line.strip() for value in guarded if "\n" in value for line in value.splitlines()}
        guarded |= {line for line in lines if len(line) >= MIN_LINE and not line.startswith("-----")}
        forms = {form for value in guarded for form in spellings(value)}
        self._spellings = sorted(forms, key=len, reverse=True)
        self._bare = {bare for form in forms if len(bare := _JOINTS.sub("", form)) >= MIN_LENGTH}

    def __repr__(self) -> str:
        return f"Redactor({self._count} values)"

    def __reduce__(self) -> str:
        raise TypeError("secrets are not stored")

    def found(self, text: str | bytes) -> bool:
        """Whether the text contains one of our secrets, also if it is wrapped, quoted in parts or encoded."""
        if not self._spellings:
            return False
        shown = text if isinstance(text, str) else text.decode(errors="replace")
        views = {shown, unquote(shown), unquote(unquote(shown))}
        if any(form in view for view in views for form in self._spellings):
            return True
        bare = _JOINTS.sub("", shown)
        return any(form in bare for form in self._bare)

    def redact(self, text: str) -> str:
        """Mask our secrets and what looks like others'; mask the whole text if ours are wrapped or written in parts."""
        text = self._mask_ours(text)
        for path, name in self._directories.items():
            text = text.replace(path, name)
        return f"{MASK}: this text contained an encoded secret" if self.found(text) else mask_secrets(text)

    def _mask_ours(self, text: str) -> str:
        for form in self._spellings:
            text = text.replace(form, MASK)
        return text

    def redact_diff(self, diff: bytes) -> bytes:
        """A diff with its added lines redacted; of the others, which the repository has, only our own secrets."""
        lines = diff.decode("utf-8", "surrogateescape").split("\n")
        blocks = groupby(lines, key=lambda line: line.startswith("+"))
        shown = ((self.redact if added else self._mask_ours)("\n".join(block)) for added, block in blocks)
        return "\n".join(shown).encode("utf-8", "surrogateescape")

    def redact_all(self, value: Any) -> Any:
        """JSON data with every string in it redacted."""
        match value:
            case str():
                return self.redact(value)
            case dict():
                return {name: self.redact_all(inner) for name, inner in value.items()}
            case list() | tuple():
                return [self.redact_all(inner) for inner in value]
        return value


ANYBODYS: Final = Redactor()
"""Knows no values, only formats."""


def _is_guarded(value: str) -> bool:
    return len(value) >= MIN_LENGTH and not (len(value) < 16 and value.isalpha() and value.islower())


def each_text(value: object) -> Iterator[str]:
    """Every string in JSON data, however deep."""
    match value:
        case str():
            yield value
        case dict():
            for name, inner in value.items():
                yield from (*each_text(name), *each_text(inner))
        case list() | tuple():
            for inner in value:
                yield from each_text(inner)
