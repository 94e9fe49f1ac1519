"""Finds secrets before text leaves the process: other people's by their format, our own by their value."""

import base64
import binascii
import bz2
import codecs
import contextlib
import html
import lzma
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, unquote

from app.core.text import normalised

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
            r"(?:\\[rn]|[\s\"'+,])*(?:(?:Proc-Type|DEK-Info|Version|Comment):[^\n]{0,80}[\s\"'+,]+)*+"
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


# Finds our secrets in text even if they are encoded, cut, split, reversed or compressed.
#
# Each secret is written in every known encoding and cut into all its parts of twelve characters, so that any part is
# found. The text is searched as it is and after decoding. Who wants to leak a secret chooses the encoding, so more
# than base64, hex and URLs is tried. Not covered: encryption, and encodings made up for the occasion.

MIN_LENGTH = 8
GRAM_LENGTH = 12
"""So many characters of a random value in any spelling are enough."""
MAX_UNPACKED = 4 * 1024 * 1024
MAX_BLOBS = 5_000
"""So many bytes and compressed streams are unpacked from one text, in all its layers together."""
MAX_LAYERS = 3

_PUBLIC_HEAD = re.compile(
    r"-----BEGIN [A-Z0-9 ]+-----|ghs_\d+_|gh[a-z]_|github_pat_|sk-(?:ant-|or-|proj-|svcacct-|admin-)?(?:(?:api|v)\d+-)?"
    r"|eyJ[A-Za-z0-9_-]*\.|-----END [A-Z0-9 ]+-----"
)
_URL_PASSWORD = re.compile(r"^[a-z][a-z0-9+.-]*://[^/@\s]*?:([^/@\s]+)@")
_ESCAPED = re.compile(r"\\(?:u\{?([0-9A-Fa-f]{1,6})\}?|x([0-9A-Fa-f]{2})|([0-7]{3}))")
_RUN = re.compile(rf"\S{{{GRAM_LENGTH},}}")
_DECIMALS = re.compile(r"(?:\b[0-9]{2,3}\b[\s,;]*){8,}")
_BITS = re.compile(r"(?:\b[01]{7,8}\b[\s,;]*){8,}")
_ENTITY_NUMBER = re.compile(r"&#0*([0-9]{1,7})[0-9]*")
_JOINTS = re.compile(r"(?:\\[nrt]|[\s\"'`+\\,;|>#*])+")
_NOT_ALPHANUMERIC = re.compile(r"[^A-Za-z0-9]+")
_BASE64 = r"[A-Za-z0-9+/_-]"
_PACKED = re.compile(
    rf"{_BASE64}{{20,}}(?:(?:\\n|[\s\"'\\,])+{_BASE64}{{20,}})*(?:(?:\\n|[\s\"'\\,])+{_BASE64}{{1,19}})?"
)
_HEXADECIMAL = re.compile(r"(?:[0-9A-Fa-f]{2}[\s:,]?){16,}")
_APART = b"\n!" + b"0" * GRAM_LENGTH + b"!\n"
"""Between decoded parts: no view of the text joins the end of one to the beginning of the next."""
_CHUNK = 64 * 1024
_OVERLAP = 256
"""So many bytes of the streams before are searched again, because a secret may be split."""
_ZLIB = b"\x78"
_UNPACKERS = (
    (b"\x1f\x8b", lambda: zlib.decompressobj(31)),
    (_ZLIB, zlib.decompressobj),
    (b"BZh", bz2.BZ2Decompressor),
    (b"\xfd7zXZ", lzma.LZMADecompressor),
)


class SecretPatterns(NamedTuple):
    """Search patterns of secrets.

    `grams` are parts of random values, all of the same length; `complete` are complete values that consist of words.
    """

    grams: frozenset[str]
    complete: frozenset[str]

    def are_in(self, text: str) -> bool:
        if any(encoded in text for encoded in self.complete):
            return True
        runs = (match[0] for match in _RUN.finditer(text))
        pieces = (run[start : start + GRAM_LENGTH] for run in runs for start in range(len(run) - GRAM_LENGTH + 1))
        return not self.grams.isdisjoint(pieces)


class SearchForms(NamedTuple):
    """What to search for in a text as it is, in its lower case, and among its letters and digits only."""

    exact: SecretPatterns
    folded: SecretPatterns
    bare: SecretPatterns


def secret_part(value: str) -> str:
    """The secret part of a setting: a URL's password, or the whole value of anything else."""
    password = _URL_PASSWORD.match(value)
    if password:
        return unquote(password[1])
    return "" if re.match(r"[a-z][a-z0-9+.-]*://", value) else value


def search_forms(values: Iterable[str]) -> SearchForms:
    """The search patterns for these values."""
    grams: tuple[set[str], set[str], set[str]] = (set(), set(), set())
    complete: tuple[set[str], set[str], set[str]] = (set(), set(), set())
    for value in values:
        core = "".join(_PUBLIC_HEAD.sub("", value).split())
        if len(core) >= GRAM_LENGTH and looks_random(core):
            for kind, forms in zip(grams, _spelled(core), strict=True):
                kind.update(_grams(forms) - _words(core))
        else:
            for form in {value, "".join(value.split())}:
                for kind, forms in zip(complete, _spelled(form), strict=True):
                    kind.update(forms)
    return SearchForms(
        *(SecretPatterns(frozenset(parts), frozenset(forms)) for parts, forms in zip(grams, complete, strict=True))
    )


def _spelled(value: str) -> tuple[set[str], set[str], set[str]]:
    raw = value.encode()
    exact = _base64_spellings(raw) | _base64_spellings(value.encode("utf-16-le"))
    spellings = {value, codecs.encode(value, "rot13"), *_base32_spellings(raw)}
    folded = {form.lower() for form in spellings} | {raw.hex()}
    bare = {_NOT_ALPHANUMERIC.sub("", form.lower()) for form in spellings}
    exact, folded, bare = (forms | {form[::-1] for form in forms} for forms in (exact, folded, bare))
    return exact, folded, {form for form in bare if len(form) >= MIN_LENGTH}


def _grams(forms: Iterable[str]) -> set[str]:
    parts = (form[start : start + GRAM_LENGTH] for form in forms for start in range(len(form) - GRAM_LENGTH + 1))
    return {part for part in parts if len(set(part)) >= 5}


def _words(value: str) -> set[str]:
    """Parts of a random value that are letters of one case: the word `production` inside a key is not secret."""
    words = {part.lower() for part in _grams([value]) if part.isalpha() and (part.islower() or part[1:].islower())}
    return words | {word[::-1] for word in words}


Finding = Literal["", "secret", "too much to search"]
"""What a search found; empty if nothing. A text with too much to search may have a secret."""


def contains_secret(secrets: SearchForms, text: str | bytes) -> Finding:
    """Whether the text contains a secret directly, in one of its views, or inside decoded content."""
    layer = [text if isinstance(text, str) else text.decode("latin-1")]
    size = blobs = 0
    for depth in range(MAX_LAYERS + 1):
        inner = []
        for shown in layer:
            if any(_in_view(secrets, view) for view in _views(shown)):
                return "secret"
            for content in _unpacked(shown) if depth < MAX_LAYERS else ():
                size, blobs = size + len(content), blobs + 1
                if size > MAX_UNPACKED or blobs > MAX_BLOBS:
                    return "too much to search"
                inner.append(content.decode("latin-1"))
        layer = inner
    return ""


def encodings(value: str) -> set[str]:
    """Every spelling of the whole value that can appear directly in text, for masking."""
    raw = value.encode()
    forms = {value, value[::-1], codecs.encode(value, "rot13"), quote(value, safe=""), quote(value)}
    forms |= {value.replace("\n", "\\n"), value.replace("\n", "\\r\\n"), html.escape(value)}
    forms |= _base64_spellings(raw) | _base32_spellings(raw) | {raw.hex(), raw.hex().upper()}
    return forms


def _base64_spellings(raw: bytes) -> set[str]:
    """The base64 characters that depend on these bytes alone, for each position at which they may start."""
    forms = set()
    for offset in range(3):
        padded = b"\0" * offset + raw
        first, last = -(-offset * 8 // 6), len(padded) * 8 // 6
        text = base64.b64encode(padded).decode()[first:last]
        forms |= {text, text.translate(str.maketrans("+/", "-_"))}
    return forms


def _base32_spellings(raw: bytes) -> set[str]:
    forms = set()
    for offset in range(5):
        padded = b"\0" * offset + raw
        forms.add(base64.b32encode(padded).decode()[-(-offset * 8 // 5) : len(padded) * 8 // 5])
    return forms


def _in_view(secrets: SearchForms, view: str) -> bool:
    lower = view.lower()
    if secrets.exact.are_in(view) or secrets.folded.are_in(lower):
        return True
    return secrets.bare.are_in(_NOT_ALPHANUMERIC.sub("", lower))


def _views(text: str) -> set[str]:
    """The text as it is and with one layer of encoding removed at a time, without duplicates."""
    views = {text, text.replace("\0", ""), _JOINTS.sub("", text), _ESCAPED.sub(_character, text)}
    views.add(html.unescape(_ENTITY_NUMBER.sub(r"&#\1", text)))  # Python reads no number of more than 4300 digits
    views |= {unquote(text), unquote(unquote(text)), _DECIMALS.sub(_characters, text), _BITS.sub(_characters, text)}
    if not text.isascii():
        views.add(normalised(text, "NFKC"))
    return views


def _character(match: re.Match[str]) -> str:
    code = int(match[1] or match[2], 16) if match[1] or match[2] else int(match[3], 8)
    return chr(code) if code < 0x110000 else ""


def _characters(match: re.Match[str]) -> str:
    base = 2 if match.re is _BITS else 10
    return "".join(chr(int(number, base)) for number in re.findall(r"\d+", match[0]))


def _unpacked(text: str) -> Iterator[bytes]:
    """What each compressed part of the text contains, then all its encoded parts that are text as one."""
    texts = []
    for content in _decoded(text):
        yield from _opened(content)
        if _is_text(content):
            texts.append(content)
    yield from _opened(text.encode("latin-1", "ignore"))
    if texts:
        yield _APART.join(texts)


def _decoded(text: str) -> Iterator[bytes]:
    for match in _HEXADECIMAL.finditer(text):
        yield bytes.fromhex(re.sub(r"[\s:,]", "", match[0]))
    for match in _PACKED.finditer(text):
        pieces = re.findall(_BASE64 + "+", match[0].replace("\\n", " "))
        whole = "".join(pieces)
        content = _from_base64(whole)
        yield content
        apart = () if _is_text(content) and not any(len(piece) % 4 for piece in pieces[:-1]) else pieces
        # A word before the compressed data would shift it: from each piece that begins some. Only the first goes to the
        # end, so that the time does not grow with the square of the text.
        starts = [number for number, piece in enumerate(pieces) if number and _begins_compressed(piece)]
        parts = ("".join(pieces[start:end]) for start, end in zip(starts, (None, *starts[2:], None), strict=False))
        yield from (_from_base64(run) for run in dict.fromkeys((*apart, *parts)) if run != whole)


def _from_base64(run: str) -> bytes:
    """The content, or nothing if that is no base64."""
    encoded = run.translate(str.maketrans("-_", "+/"))
    try:
        return base64.b64decode(encoded[: -1 if len(encoded) % 4 == 1 else None] + "==")
    except binascii.Error:
        return b""


def _begins_compressed(piece: str) -> bool:
    head = _from_base64(piece[:8])
    if head.startswith(_ZLIB) and int.from_bytes(head[:2]) % 31:  # zlib's own check of its first two bytes
        return False
    return any(head.startswith(magic) for magic, _ in _UNPACKERS)


def _is_text(content: bytes) -> bool:
    return len(content) >= GRAM_LENGTH and sum(32 <= byte < 127 for byte in content) > 0.9 * len(content)


def _opened(content: bytes) -> Iterator[bytes]:
    """The content of each of the compressed streams that follow one another, behind the end of those before.

    There may be zeros between them (padding).
    """
    rest, before = memoryview(content), b""
    while unpacker := next((make for magic, make in _UNPACKERS if rest[: len(magic)] == magic), None):
        unpacked, rest = _decompressed(unpacker, rest)
        yield before + unpacked
        before = (before + unpacked)[-_OVERLAP:]
        rest = rest[next((at for at, byte in enumerate(rest) if byte), len(rest)) :]


def _decompressed(unpacker: Callable[[], Any], packed: memoryview) -> tuple[bytes, memoryview]:
    """What is before the end, an error, or more than may be unpacked; and what follows the end, if it was reached."""
    content = bytearray()
    for step in (_CHUNK, 1):  # a call that fails returns nothing, so what was before an error is read byte by byte
        content.clear()
        with contextlib.suppress(zlib.error, OSError, EOFError, lzma.LZMAError, ValueError):
            stream = unpacker()
            for start in range(0, len(packed), step):
                for part in _parts(stream, packed[start : start + step], step):
                    content += part
                    if len(content) > MAX_UNPACKED:
                        return bytes(content), packed[:0]
                if stream.eof:
                    return bytes(content), packed[min(start + step, len(packed)) - len(stream.unused_data) :]
            break
    return bytes(content), packed[:0]


def _parts(stream: Any, packed: memoryview, step: int) -> Iterator[bytes]:
    """The content in parts of up to `step` bytes, each as soon as so many bytes give it."""
    rest: bytes | memoryview = packed
    while (part := stream.decompress(rest, step)) and not stream.eof:
        yield part
        rest = getattr(stream, "unconsumed_tail", b"")  # only zlib's returns what it did not read
    yield part


MASK = "[redacted]"
_MASKED: Mapping[Finding, str] = {
    "": "",
    "secret": f"{MASK}: this text contained an encoded secret",
    "too much to search": f"{MASK}: this text had more encoded or compressed data than is searched for secrets",
}
_CREDENTIALS = {"JSON web token", "credentials in a URL", "authorization header", "private key"}


class SecretMatch(NamedTuple):
    """A likely secret, by kind and 1-based line; its value is never stored."""

    kind: str
    line: int


def find_secrets(text: str) -> tuple[SecretMatch, ...]:
    """Likely secrets in text such as the added lines of a diff, in order, each kind once per line."""
    found = {SecretMatch(kind, text.count("\n", 0, start) + 1) for kind, start in _candidates(text)}
    return tuple(sorted(found, key=lambda finding: (finding.line, finding.kind)))


def _candidates(text: str) -> Iterator[tuple[str, int]]:
    for kind, head, pattern in FORMATS:
        if head not in text:
            continue
        for match in pattern.finditer(text):
            generic = "value" in match.groupdict()
            value = match["value"] if generic else match[0].removeprefix(head)
            if not is_placeholder(value) and (not generic or looks_random(value)):
                yield kind, match.start()
    for match in ASSIGNMENT.finditer(text):
        value = match["value"] or match["bare"]
        if not is_placeholder(value) and looks_random(value):
            yield "password or key", match.start("value" if match["value"] else "bare")


def mask_tokens(text: str) -> str:
    """Mask everything that looks like a GitHub credential, for text that came from outside."""
    for kind, _, pattern in FORMATS:
        if kind.startswith("GitHub") or kind in _CREDENTIALS:
            text = pattern.sub(MASK, text)
    return text


class Redactor:
    """Knows our own secrets by value and finds or masks them in text.

    `found` decides whether text may be posted (a match is quarantined); `redact` is for logs. Of a URL only the
    password is secret. Not covered: values of fewer than eight characters, or of one short lower-case word.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        guarded = {part for value in values if _is_guarded(part := secret_part(value.strip()))}
        self._count = len(guarded)
        self._sought = search_forms(guarded)
        self._spellings = sorted({form for value in guarded for form in encodings(value)}, key=len, reverse=True)

    def __repr__(self) -> str:
        return f"Redactor({self._count} values)"

    def __reduce__(self) -> str:
        raise TypeError("secrets are not stored")

    def found(self, text: str | bytes) -> Finding:
        """Whether the text contains one of our secrets, or a revealing part of one, in any known encoding."""
        return contains_secret(self._sought, text)

    def redact(self, text: str) -> str:
        """Mask every direct spelling of a secret; mask the whole text if it may have one in another encoding."""
        for form in self._spellings:
            text = text.replace(form, MASK)
        return _MASKED[self.found(text)] or text


def _is_guarded(value: str) -> bool:
    return len(value) >= MIN_LENGTH and not (len(value) < 16 and value.isalpha() and value.islower())
