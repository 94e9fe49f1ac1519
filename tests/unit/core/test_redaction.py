"""Our own secrets are found in every encoding, whole or in part; and nothing else is. They are made up at run time."""

import base64
import bz2
import codecs
import gzip
import html
import io
import json
import lzma
import pickle
import random
import string
import sysconfig
import textwrap
import zlib
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.redaction import MASK, Redactor
from tests.unit.core.test_find_secrets import ALPHANUMERIC, HEX, PROVIDERS, URL_SAFE, drawn

RNG = random.Random(20261121)
SECRETS = {
    name: PROVIDERS[name][1](RNG)
    for name in ("ghs 2026", "ghs", "ghp", "pat", "openai", "anthropic", "e2b", "jwt", "rsa", "pkcs8")
} | {
    "hex webhook secret": drawn(RNG, HEX, 64),
    "short webhook secret": drawn(RNG, ALPHANUMERIC, 20),
    "passphrase": "correct horse battery staple 7!",
    "base64 key": base64.b64encode(RNG.randbytes(32)).decode(),
    "punctuated password": drawn(RNG, ALPHANUMERIC + "!$%&/()=?#", 24),
}


def b64(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def quoted_pieces(secret: str) -> str:
    return " +\n  ".join(f'"{secret[start : start + 7]}"' for start in range(0, len(secret), 7)).replace("\n-", "-")


ENCODINGS: dict[str, Callable[[str], str | bytes]] = {
    "raw": lambda s: s,
    "base64 at offset 0": lambda s: b64(f"{s} tail"),
    "base64 at offset 1": lambda s: b64(f"x{s} tail"),
    "base64 at offset 2": lambda s: b64(f"xy{s} tail"),
    "base64 for URLs": lambda s: base64.urlsafe_b64encode(f"~~~{s}???".encode()).decode(),
    "base64 wrapped at 76": lambda s: "\n".join(textwrap.wrap(b64(f"head {s} tail"), 76)),
    "base64 twice": lambda s: b64(b64(f"head {s}")),
    "base64 of UTF-16": lambda s: b64(s.encode("utf-16-le")),
    "base64 reversed": lambda s: b64(s)[::-1],
    "base32": lambda s: base64.b32encode(f"xyz{s}".encode()).decode(),
    "hex": lambda s: s.encode().hex(),
    "hex in capitals": lambda s: s.encode().hex().upper(),
    "hex dump": lambda s: s.encode().hex(" "),
    "hex escapes": lambda s: "".join(f"\\x{byte:02x}" for byte in s.encode()),
    "octal escapes": lambda s: "".join(f"\\{byte:03o}" for byte in s.encode()),
    "Unicode escapes": lambda s: "".join(f"\\u{ord(character):04x}" for character in s),
    "decimal codes": lambda s: ", ".join(str(byte) for byte in s.encode()),
    "binary": lambda s: " ".join(f"{byte:08b}" for byte in s.encode()),
    "reversed": lambda s: s[::-1],
    "rot13": lambda s: codecs.encode(s, "rot13"),
    "percent-encoded": lambda s: quote(s, safe=""),
    "percent-encoded throughout": lambda s: "".join(f"%{byte:02X}" for byte in s.encode()),
    "percent-encoded twice": lambda s: quote("".join(f"%{byte:02x}" for byte in s.encode())),
    "HTML entities": lambda s: "".join(f"&#{ord(character)};" for character in s),
    "HTML entities with zeros": lambda s: "".join(f"&#{ord(character):012};" for character in s),
    "HTML-escaped": html.escape,
    "JSON": lambda s: json.dumps({"value": s}),
    "JSON twice": lambda s: json.dumps(json.dumps({"value": s})),
    "UTF-16": lambda s: s.encode("utf-16"),
    "NUL between": "\0".join,
    "gzip": lambda s: gzip.compress(f"head {s}".encode()),
    "gzip in base64": lambda s: "data: " + b64(gzip.compress(f"head {s} tail".encode())),
    "gzip in wrapped base64": lambda s: "\n".join(textwrap.wrap(b64(gzip.compress(f"head {s}".encode() * 2)), 64)),
    "gzip in hex": lambda s: gzip.compress(s.encode()).hex(),
    "zlib in base64": lambda s: f"x = '{b64(zlib.compress(s.encode()))}'",
    "bzip2 in base64": lambda s: b64(bz2.compress(s.encode())),
    "xz in base64": lambda s: b64(lzma.compress(s.encode())),
    "gzip in base64 in base64": lambda s: b64(b64(gzip.compress(s.encode()))),
    "split over lines": lambda s: "\n".join(textwrap.wrap("".join(s.split()), 9)),
    "split over string literals": quoted_pieces,
    "spaced out": " ".join,
    "dotted": ".".join,
    "zero-width between": "\u200b".join,
    "full-width letters": lambda s: "".join(
        chr(ord(character) + 0xFEE0) if "!" <= character <= "~" else character for character in s
    ),
    "capitals": lambda s: s.upper(),
    "in a diff": lambda s: "\n".join(f"+{line}" for line in s.split("\n")),
}
PARTS: dict[str, Callable[[str], str]] = {
    "without the first seven": lambda s: s[7:],
    "without the last seven": lambda s: s[:-7],
    "a middle half in base64": lambda s: b64(s[len(s) // 4 : -(len(s) // 4)]),
    "the last thirty": lambda s: s[-60:-30] if "PRIVATE" in s else s[-30:],
    "the last twenty, reversed": lambda s: (s[-60:-40] if "PRIVATE" in s else s[-20:])[::-1],
}
RANDOM = sorted(name for name, secret in SECRETS.items() if len(secret) >= 36)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_encoded_secrets_are_found(encoding: str) -> None:
    missed = [name for name, secret in SECRETS.items() if not Redactor([secret]).found(ENCODINGS[encoding](secret))]
    assert missed == []


@pytest.mark.parametrize("part", PARTS)
def test_parts_of_random_secrets_are_found(part: str) -> None:
    missed = [name for name in RANDOM if not Redactor([SECRETS[name]]).found(f"see {PARTS[part](SECRETS[name])} end")]
    assert missed == []


def test_number_of_encoded_secrets_is_as_documented() -> None:
    assert len(ENCODINGS) >= 14
    assert len(SECRETS) * len(ENCODINGS) + len(RANDOM) * len(PARTS) >= 300


@given(st.integers(0, 2**32), st.integers(16, 120), st.sampled_from([ALPHANUMERIC, HEX, URL_SAFE]))
def test_any_random_secret_in_any_encoding_is_found(seed: int, length: int, alphabet: str) -> None:
    rng = random.Random(seed)
    secret = drawn(rng, alphabet, length)
    name = rng.choice(sorted(ENCODINGS))
    assert Redactor([secret]).found(ENCODINGS[name](secret)), name


def test_ordinary_text_and_other_secrets_are_not_found() -> None:
    redactor = Redactor(SECRETS.values())
    root = Path(sysconfig.get_path("stdlib"))
    code = [file.read_text("utf-8", "replace")[:20_000] for file in sorted(root.glob("*.py"))[:40]]
    others = [PROVIDERS[name][1](random.Random(99)) for name in PROVIDERS]
    wrapped = [b64(gzip.compress(text.encode())) for text in code[:5]]
    assert [text[:60] for text in [*code, *others, *wrapped] if redactor.found(text)] == []


def test_public_parts_of_secrets_are_not_secret() -> None:
    redactor = Redactor([SECRETS["jwt"], SECRETS["rsa"], SECRETS["anthropic"], SECRETS["ghs 2026"]])
    header = SECRETS["jwt"].split(".")[0]
    for text in (header, SECRETS["rsa"].split("\n")[0], "sk-ant-api03-", SECRETS["ghs 2026"][:12]):
        assert not redactor.found(f"the format is {text}…")


def test_words_inside_a_key_are_not_secret() -> None:
    redactor = Redactor([f"key_productiongatewayinternal_{drawn(RNG, ALPHANUMERIC, 32)}"])
    assert not redactor.found("see productiongatewayinternal")


def test_short_and_ordinary_values_are_not_treated_as_secrets() -> None:
    redactor = Redactor(["", "  ", "short", "anything", "postgresql://localhost:5432/agentfix"])
    assert not redactor.found("anything short in postgresql://localhost:5432/agentfix")
    assert redactor.redact("anything") == "anything"


def test_password_of_a_url_is_found() -> None:
    password = drawn(RNG, ALPHANUMERIC, 18)
    redactor = Redactor([f"postgresql://agent:{password}@db.example.org/agentfix"])
    assert redactor.found(f"connecting with {password}")
    assert not redactor.found("connecting to postgresql://agent:…@db.example.org/agentfix")


@pytest.mark.parametrize("name", SECRETS)
def test_redaction_masks_secrets_and_keeps_the_rest(name: str) -> None:
    secret = SECRETS[name]
    redactor = Redactor(SECRETS.values())
    assert redactor.redact(f"before {secret} after") == f"before {MASK} after"
    assert redactor.redact("nothing here") == "nothing here"
    for encoding in ("base64 at offset 1", "hex", "percent-encoded", "reversed", "rot13", "JSON"):
        hidden = ENCODINGS[encoding](secret)
        assert isinstance(hidden, str)
        shown = redactor.redact(f"before {hidden} after")
        assert MASK in shown
        assert not redactor.found(shown)


def test_compressed_secret_is_masked_as_a_whole() -> None:
    secret = SECRETS["ghp"]
    hidden = b64(gzip.compress(secret.encode()))
    shown = Redactor([secret]).redact(f"see {hidden}")
    assert hidden not in shown
    assert "encoded secret" in shown


def test_redactor_values_cannot_be_printed_or_pickled() -> None:
    redactor = Redactor([SECRETS["ghp"], SECRETS["rsa"]])
    assert repr(redactor) == "Redactor(2 values)"
    with pytest.raises(TypeError, match="not stored"):
        pickle.dump(redactor, io.BytesIO())


@pytest.mark.timeout(30)
def test_search_of_hostile_text_terminates() -> None:
    redactor = Redactor([SECRETS["ghp"]])
    for text in (
        "A" * 500_000,
        "deadbeef" * 60_000,
        "AAAAAAAAAAAAAAAAAAAAAAAA " * 20_000,
        "\\u0041" * 60_000,
        "%25" * 100_000,
        "&#" + "1" * 5_000 + ";",
        "a" + "\u0301\u0323" * 200_000,
    ):
        assert not redactor.found(text)


@pytest.mark.timeout(60)
def test_text_that_unpacks_to_too_much_counts_as_a_secret() -> None:
    redactor = Redactor([SECRETS["ghp"]])
    nested = "a " * 500_000
    for _ in range(3):
        packed = b64(lzma.compress(nested.encode())).rstrip("=")
        nested = f"{packed}!" * (1_000_000 // len(packed))
    each = [b64(bz2.compress(b"a")[:-4] + number.to_bytes(4)) for number in range(6_000)]
    for text in (packed, b64(gzip.compress(b"\0" * 50_000_000)), "!".join(each), "\n".join(each)):
        assert redactor.found(text) == "too much to search"
        assert "more encoded or compressed data than" in redactor.redact(text)
    assert not redactor.found(b64(gzip.compress(b"a " * 2_000_000)))
    each = [b64(bz2.compress(b"%d" % number)) for number in range(4_900)]
    assert not redactor.found("!".join(each)), "each is opened once"


def test_long_encoded_text_is_searched() -> None:
    secret = SECRETS["ghp"]
    lines = [
        f"{number} order {RNG.randrange(10**8)} shipped to customer {RNG.randrange(10**5)}" for number in range(9_000)
    ]
    for encode in (
        base64.encodebytes,
        lambda raw: "\n".join(raw[at : at + 16].hex(" ", 2) + "  |" for at in range(0, len(raw), 16)).encode(),
    ):
        assert not Redactor([secret]).found(encode("\n".join(lines).encode()))
        assert Redactor([secret]).found(encode("\n".join([*lines, secret, *lines]).encode())) == "secret"


def test_decoded_parts_are_not_joined() -> None:
    redactor = Redactor(["correct-horse-battery"])
    first, second = (b64(text.encode()) for text in ("it was all correct-horse-", "battery and staple it was"))
    assert redactor.found(b64(b"it was all correct-horse-battery"))
    assert not redactor.found(f"{first}! {second}")
    assert not redactor.found(f"{second}! {first}")


def test_secret_before_corrupt_data_is_found() -> None:
    secret = SECRETS["ghp"]
    for pack in (gzip.compress, zlib.compress, lzma.compress):
        packed = pack(f"{secret}\n{RNG.randbytes(200_000).hex()}".encode())
        assert Redactor([secret]).found(b64(packed[:-40] + b"x" * 40)), pack


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, bz2.compress, lzma.compress])
def test_short_secret_before_a_wrong_checksum_is_found(pack: Callable[[bytes], bytes]) -> None:
    secret = "correct horse battery staple 7!"
    packed = pack(f"the passphrase of the server is {secret}".encode())
    wrong = packed[:-3] + bytes([packed[-3] ^ 1]) + packed[-2:]
    assert Redactor([secret]).found(b64(wrong))
    assert not Redactor([secret[::2]]).found(b64(wrong))


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("word", ["", "the_base64_of_the_archive_of_logs", "archives/of/the/second/of/may"])
def test_streams_behind_others_and_blocks_behind_words_are_opened(pack: Callable[[bytes], bytes], word: str) -> None:
    secret = SECRETS["ghp"]
    long = f"{RNG.randbytes(3_000).hex()} {secret} {RNG.randbytes(3_000).hex()}".encode()
    half = len(long) // 2
    for packed in (
        pack(long),
        pack(b"one line\n") + pack(long),
        pack(long[:half]) + pack(long[half:]),
        pack(b"") + pack(long),
        pack(b"") + bytes(8) + pack(long),
    ):
        for block in (b64(packed), base64.encodebytes(packed).decode()):
            assert Redactor([secret]).found(f"{word}\n{block}") == "secret"
            assert not Redactor([drawn(random.Random(5), ALPHANUMERIC, 40)]).found(f"{word}\n{block}")
    for packed in (pack(b"one line\n") + pack(long), pack(long) + b"junk"):
        assert Redactor([secret]).found(packed) == "secret"


@pytest.mark.timeout(60)
def test_many_streams_in_one_text_do_not_take_for_ever() -> None:
    redactor = Redactor([SECRETS["ghp"]])
    stream = zlib.compress(b"a")
    for text in (
        b64(stream * 100_000),
        "\n".join([b64(stream + b"\0" * 46)] * 20_000),
        f"{'a' * 30}\n" + "\n".join(b64(stream + number.to_bytes(46)) for number in range(20_000)),
    ):
        assert redactor.found(text) in {"", "too much to search"}


def test_short_fragments_are_not_found() -> None:
    secret = drawn(random.Random(5), ALPHANUMERIC, 40)
    redactor = Redactor([secret])
    assert not any(redactor.found(secret[start : start + 6]) for start in range(34))
    assert not redactor.found(string.ascii_letters)
