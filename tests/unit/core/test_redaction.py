"""Our own secrets are found by value, in the usual encodings; and nothing else is. They are made up at run time."""

import base64
import html
import io
import json
import pickle
import random
import string
import sysconfig
import textwrap
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, quote_plus

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
    "letters of other countries": "grüße-aus-København-" + drawn(RNG, ALPHANUMERIC, 8),
}


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def quoted_pieces(secret: str) -> str:
    return " +\n  ".join(f'"{secret[start : start + 7]}"' for start in range(0, len(secret), 7)).replace("\n-", "-")


ENCODINGS: dict[str, Callable[[str], str | bytes]] = {
    "raw": lambda s: s,
    "bytes": lambda s: s.encode(),
    "base64 at offset 0": lambda s: b64(f"{s} tail"),
    "base64 at offset 1": lambda s: b64(f"x{s} tail"),
    "base64 at offset 2": lambda s: b64(f"xy{s} tail"),
    "base64 for URLs": lambda s: base64.urlsafe_b64encode(f"~~~{s}???".encode()).decode(),
    "base64 wrapped at 76": lambda s: "\n".join(textwrap.wrap(b64(f"head {s} tail"), 76)),
    "base64 wrapped, in JSON": lambda s: json.dumps({"key": "\n".join(textwrap.wrap(b64(f"x{s}"), 64))}),
    "hex": lambda s: s.encode().hex(),
    "hex in capitals": lambda s: s.encode().hex().upper(),
    "hex dump": lambda s: s.encode().hex(" "),
    "hex with colons": lambda s: s.encode().hex(":"),
    "percent-encoded twice": lambda s: quote(quote(s, safe=""), safe=""),
    "percent-encoded": lambda s: quote(s, safe=""),
    "percent-encoded path": quote,
    "percent-encoded form": quote_plus,
    "percent-encoded throughout": lambda s: "".join(f"%{byte:02x}" for byte in s.encode()),
    "HTML-escaped": html.escape,
    "JSON": lambda s: json.dumps({"value": s}),
    "JSON in UTF-8": lambda s: json.dumps({"value": s}, ensure_ascii=False),
    "split over lines": lambda s: "\n".join(textwrap.wrap("".join(s.split()), 9)),
    "split over string literals": quoted_pieces,
    "in a diff": lambda s: "\n".join(f"+{line}" for line in s.split("\n")),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_encoded_secrets_are_found(encoding: str) -> None:
    missed = [name for name, secret in SECRETS.items() if not Redactor([secret]).found(ENCODINGS[encoding](secret))]
    assert missed == []


@pytest.mark.parametrize("name", ["rsa", "pkcs8"])
def test_one_line_of_a_key_is_found(name: str) -> None:
    line = SECRETS[name].split("\n")[3]
    redactor = Redactor([SECRETS[name]])
    assert redactor.found(f"it has {line} in it")
    assert redactor.redact(f"it has {line} in it") == f"it has {MASK} in it"
    assert not redactor.found(SECRETS[name].split("\n")[0])


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
    assert [text[:60] for text in [*code, *others] if redactor.found(text)] == []


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
    for encode in ENCODINGS.values():
        hidden = encode(secret)
        shown = redactor.redact(f"before {hidden if isinstance(hidden, str) else hidden.decode()} after")
        assert MASK in shown
        assert not redactor.found(shown)
        assert redactor.redact(shown) == shown


def test_redaction_masks_other_peoples_secrets() -> None:
    token = PROVIDERS["ghp"][1](random.Random(3))
    assert Redactor().redact(f"pushed with {token}.") == f"pushed with {MASK}."
    assert not Redactor().found(token)


def test_all_texts_of_json_data_are_redacted() -> None:
    secret = SECRETS["openai"]
    data = {"reason": f"key {secret}", "list": [secret, 1, None, {"inner": (secret, True)}]}
    assert Redactor([secret]).redact_all(data) == {
        "reason": f"key {MASK}",
        "list": [MASK, 1, None, {"inner": [MASK, True]}],
    }


def test_directories_of_the_machine_are_not_named() -> None:
    redactor = Redactor(directories=(Path("/srv/agents/state"), Path("/usr")))
    text = 'File "/srv/agents/state/mirrors/r1.git" and /usr/bin/python'
    assert redactor.redact(text) == 'File "state/mirrors/r1.git" and /usr/bin/python'


def test_redactor_values_cannot_be_printed_or_pickled() -> None:
    redactor = Redactor([SECRETS["ghp"], SECRETS["e2b"]])
    assert repr(redactor) == "Redactor(2 values)"
    with pytest.raises(TypeError, match="not stored"):
        pickle.dump(redactor, io.BytesIO())


@pytest.mark.timeout(30)
def test_search_of_hostile_text_terminates() -> None:
    redactor = Redactor([SECRETS["ghp"]])
    for text in ("A" * 500_000, "deadbeef" * 60_000, "A" * 24 + " " * 400_000, "%25" * 100_000, '"+"' * 100_000):
        assert not redactor.found(text)
        assert redactor.redact(text) == text


def test_short_fragments_are_not_found() -> None:
    secret = drawn(random.Random(5), ALPHANUMERIC, 40)
    redactor = Redactor([secret])
    assert not any(redactor.found(secret[start : start + 6]) for start in range(34))
    assert not redactor.found(string.ascii_letters)
