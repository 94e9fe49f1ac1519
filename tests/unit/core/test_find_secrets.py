"""Other people's secrets are known by their looks; ordinary code is left in peace. All are made up at run time."""

import base64
import itertools
import json
import random
import string
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from app.core.redaction import MASK, SecretMatch, find_secrets, mask_secrets

ALPHANUMERIC = string.ascii_letters + string.digits
BASE32 = string.ascii_uppercase + "234567"
HEX = "0123456789abcdef"
URL_SAFE = ALPHANUMERIC + "-_"


def drawn(rng: random.Random, alphabet: str, length: int) -> str:
    return "".join(rng.choice(alphabet) for _ in range(length))


def web_token(rng: random.Random) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    payload = {"iss": rng.randrange(10**6), "iat": rng.randrange(10**9), "exp": rng.randrange(10**9)}
    return f"{part({'alg': 'RS256', 'typ': 'JWT'})}.{part(payload)}.{drawn(rng, URL_SAFE, 342)}"


def private_key(rng: random.Random, kind: str) -> str:
    body = "\n".join(drawn(rng, ALPHANUMERIC + "+/", 64) for _ in range(12))
    return f"-----BEGIN {kind}PRIVATE" + f" KEY-----\n{body}\n-----END {kind}PRIVATE" + " KEY-----"


def slack_hook(rng: random.Random) -> str:
    parts = (drawn(rng, BASE32, 8), drawn(rng, BASE32, 8), drawn(rng, ALPHANUMERIC, 24))
    return "https://hooks.slack.com/services/T{}/B{}/{}".format(*parts)


Maker = Callable[[random.Random], str]
PROVIDERS: dict[str, tuple[str, Maker]] = {
    "ghs 2026": ("GitHub installation token", lambda r: f"ghs_{r.randrange(10**6, 10**7)}_" + web_token(r)),
    "ghs": ("GitHub installation token", lambda r: "ghs_" + drawn(r, ALPHANUMERIC, 36)),
    "ghp": ("GitHub Token", lambda r: "ghp_" + drawn(r, ALPHANUMERIC, 36)),
    "gho": ("GitHub Token", lambda r: "gho_" + drawn(r, ALPHANUMERIC, 36)),
    "ghr": ("GitHub token", lambda r: "ghr_" + drawn(r, ALPHANUMERIC, 76)),
    "pat": (
        "GitHub token",
        lambda r: "github_" + "pat_" + drawn(r, ALPHANUMERIC, 22) + "_" + drawn(r, ALPHANUMERIC, 59),
    ),
    "gitlab": ("GitLab Token", lambda r: "glpat-" + drawn(r, ALPHANUMERIC, 20)),
    "aws": ("AWS Access Key", lambda r: "AKIA" + drawn(r, BASE32, 16)),
    "aws session": ("AWS Access Key", lambda r: "ASIA" + drawn(r, BASE32, 16)),
    "slack": (
        "Slack Token",
        lambda r: f"xoxb-{r.randrange(10**11, 10**12)}-{r.randrange(10**12, 10**13)}-{drawn(r, ALPHANUMERIC, 24)}",
    ),
    "slack hook": ("Slack Token", slack_hook),
    "stripe": ("Stripe Access Key", lambda r: "sk_" + "live_" + drawn(r, ALPHANUMERIC, 24)),
    "stripe restricted": ("Stripe Access Key", lambda r: "rk_" + "live_" + drawn(r, ALPHANUMERIC, 99)),
    "google": ("Google API key", lambda r: "AI" + "za" + drawn(r, URL_SAFE, 35)),
    "google oauth": ("Google OAuth secret", lambda r: "GOCSPX-" + drawn(r, URL_SAFE, 28)),
    "anthropic": ("Anthropic key", lambda r: "sk-ant-" + "api03-" + drawn(r, URL_SAFE, 93) + "AA"),
    "openai": ("OpenAI key", lambda r: "sk-" + "proj-" + drawn(r, URL_SAFE, 124)),
    "openai old": ("OpenAI key", lambda r: "sk-" + drawn(r, ALPHANUMERIC, 48)),
    "openrouter": ("OpenRouter key", lambda r: "sk-or-" + "v1-" + drawn(r, HEX, 64)),
    "groq": ("Groq key", lambda r: "gsk_" + drawn(r, ALPHANUMERIC, 52)),
    "xai": ("xAI key", lambda r: "xai-" + drawn(r, ALPHANUMERIC, 80)),
    "e2b": ("E2B key", lambda r: "e2b_" + drawn(r, HEX, 40)),
    "hugging face": ("Hugging Face token", lambda r: "hf_" + drawn(r, string.ascii_letters, 34)),
    "npm": ("npm token", lambda r: "npm_" + drawn(r, ALPHANUMERIC, 36)),
    "pypi": ("PyPI token", lambda r: "pypi-" + "AgE" + drawn(r, URL_SAFE, 160)),
    "docker": ("Docker token", lambda r: "dckr_" + "pat_" + drawn(r, URL_SAFE, 27)),
    "digitalocean": ("DigitalOcean token", lambda r: "dop_v1_" + drawn(r, HEX, 64)),
    "sendgrid": ("SendGrid API Key", lambda r: f"SG.{drawn(r, URL_SAFE, 22)}.{drawn(r, URL_SAFE, 43)}"),
    "shopify": ("Shopify token", lambda r: "shpat_" + drawn(r, HEX, 32)),
    "databricks": ("Databricks token", lambda r: "dapi" + drawn(r, HEX, 32)),
    "vault": ("HashiCorp Vault token", lambda r: "hvs." + drawn(r, URL_SAFE, 90)),
    "telegram": ("Telegram bot token", lambda r: f"{r.randrange(10**9, 10**10)}:AA{drawn(r, URL_SAFE, 33)}"),
    "discord": (
        "Discord Bot Token",
        lambda r: f"M{drawn(r, URL_SAFE, 23)}.{drawn(r, URL_SAFE, 6)}.{drawn(r, URL_SAFE, 27)}",
    ),
    "twilio": ("Twilio API Key", lambda r: "SK" + drawn(r, HEX, 32)),
    "mailchimp": ("Mailchimp Access Key", lambda r: f"{drawn(r, HEX, 32)}-us{r.randrange(1, 20)}"),
    "square": ("Square OAuth Secret", lambda r: "sq0csp-" + drawn(r, URL_SAFE, 43)),
    "azure": ("Azure Storage Account access key", lambda r: "AccountKey=" + drawn(r, ALPHANUMERIC + "+/", 86) + "=="),
    "jwt": ("JSON web token", web_token),
    "rsa": ("private key", lambda r: private_key(r, "RSA ")),
    "pkcs8": ("private key", lambda r: private_key(r, "")),
    "openssh": ("private key", lambda r: private_key(r, "OPENSSH ")),
    "escaped key": ("private key", lambda r: private_key(r, "").replace("\n", "\\n")),
    "added key": ("private key", lambda r: private_key(r, "EC ").replace("\n", "\n+")),
    "database url": (
        "credentials in a URL",
        lambda r: f"postgresql://app:{drawn(r, ALPHANUMERIC, 20)}@db.internal:5432/app",
    ),
    "basic": (
        "authorization header",
        lambda r: "Authorization: Basic " + base64.b64encode(f"user:{drawn(r, ALPHANUMERIC, 24)}".encode()).decode(),
    ),
    "bearer": ("authorization header", lambda r: "Authorization: Bearer " + drawn(r, ALPHANUMERIC, 40)),
}
AROUND = ("{}", 'TOKEN = "{}"', "  key: {}", "curl -H 'X-Key: {}' host", "x={}&y=1", "// was {}, then", "+{}", "`{}`")
ASSIGNED = (
    'password = "{}"',
    "self.api_key='{}'",
    '"client_secret": "{}",',
    "DB_PASSWORD={}",
    "export SESSION_TOKEN={}",
    "secret: {}",
    'auth_token: str = "{}"',
    'os.environ["ACCESS_KEY"] = "{}"',
    'os.environ.setdefault("PRIVATE_KEY", "{}")',
    "const apiKey = `{}`;",
    'passphrase => "{}"',
    'let token := "{}"',
    "aws_secret_access_key = {}",
    "aws_secret_access_key = {}  # prod",
    "api_key = {} ; old",
    "api_key: {} // old",
)


@pytest.mark.parametrize("name", PROVIDERS)
def test_provider_secrets_are_found_in_any_surrounding_text(name: str) -> None:
    kind, make = PROVIDERS[name]
    rng = random.Random(name)
    for number, around in enumerate(AROUND):
        text = "first line\n" * number + around.format(make(rng))
        assert kind in {finding.kind for finding in find_secrets(text) if finding.line == number + 1}, around


@pytest.mark.parametrize("name", PROVIDERS)
def test_masking_leaves_no_part_of_a_provider_secret(name: str) -> None:
    secret = PROVIDERS[name][1](random.Random(name))
    masked = mask_secrets(f"before `{secret}` after")
    assert MASK in masked
    assert secret[-12:-1] not in masked.replace("@db.internal:5432/app", "")
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    assert mask_secrets(masked) == masked


def test_number_of_test_secrets_is_as_documented() -> None:
    assert len(PROVIDERS) * len(AROUND) >= 300


def test_random_values_assigned_to_secret_names_are_found() -> None:
    rng = random.Random(11)
    cases = [
        around.format(drawn(rng, alphabet, length))
        for around in ASSIGNED
        for alphabet in (ALPHANUMERIC, HEX, URL_SAFE)
        for length in (20, 32, 40, 64)
    ]
    missed = [case for case in cases if not find_secrets(case)]
    assert len(missed) <= len(cases) // 100, missed


@pytest.mark.parametrize(
    "text",
    [
        'password = "correct-horse-battery"',
        'password = "example123456"',
        'api_key = "your-api-key-goes-here-1"',
        'API_KEY = "xxxxxxxxxxxxxxxxxxxxxxxx"',
        'token = "${GITHUB_TOKEN}"',
        "token: ${{ secrets.GITHUB_TOKEN }}",
        'secret = os.environ["APP_SECRET_V2_2024"]',
        'password: "{{ vault_password_2024 }}"',
        'token_url = "https://example.org/oauth2/token/v1"',
        'SECRET_PATH = "/run/secrets/db_password_01"',
        'key = "550e8400-e29b-41d4-a716-446655440000"',
        'clientToken = "550e8400-e29b-41d4-a716-446655440000"',
        'const tokenType = "application/vnd.api+json2"',
        'access_token = response.json()["access_token"]',
        "private_key = rsa.generate_private_key(65537, 2048)",
        "password_hash = hash_password(value, rounds12)",
        'if line.startswith("-----BEGIN RSA PRIVATE' + ' KEY-----"):',
        'HEADER = "-----BEGIN PRIVATE' + ' KEY-----"\n\ndef load():',
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        '"integrity": "sha512-' + "Zm9vYmFy" * 10 + '=="',
        "commit 3b18e512dba79e4c8300dd08aeb37f8e728b8dad",
        "AKIAIOSFODNN7EXAMPLE",
        "sk-test-dummy-key-for-the-test-suite-000000",
        "ghp_" + "x" * 36,
        "postgres://user:password@localhost/db",
        "postgres://user:$DB_PASSWORD_1@localhost/db",
        "git clone https://x-access-token:${TOKEN}@host/r",
        "Authorization: Bearer <token>",
        'headers = {"Authorization": f"Bearer {access_token}"}',
        "class OAuth2PasswordBearerWithCookie2(OAuth2):",
        "token = MLKEM768X25519PrivateKey.from_bytes",
    ],
)
def test_lookalikes_are_not_reported(text: str) -> None:
    assert find_secrets(text) == ()


def test_ordinary_code_has_almost_no_findings() -> None:
    root = Path(sysconfig.get_path("stdlib"))
    files = [*sorted(root.glob("*.py")), *sorted(root.glob("*/*.py"))][:400]
    chunks = []
    for file in files:
        lines = file.read_text("utf-8", "replace").split("\n")
        chunks += ["\n".join(lines[start : start + 60]) for start in range(0, min(len(lines), 600), 60)]
    flagged = [chunk for chunk in chunks if find_secrets(chunk)]
    assert len(chunks) > 500
    assert len(flagged) <= len(chunks) // 100


def test_findings_name_kind_and_line_but_not_the_value() -> None:
    rng = random.Random(3)
    first, second = "AKIA" + drawn(rng, BASE32, 16), "ghp_" + drawn(rng, ALPHANUMERIC, 36)
    text = f"one\n{first} {second}\nthree\n{second}\n"
    assert find_secrets(text) == (
        SecretMatch("AWS Access Key", 2),
        SecretMatch("GitHub Token", 2),
        SecretMatch("GitHub Token", 4),
    )
    assert second[4:12] not in repr(find_secrets(text))


REPEATED = {
    "names": "password=" * 20_000,
    "one name": "token" * 50_000,
    "web tokens": "eyJ" * 80_000,
    "colons": "a:" * 100_000,
    "schemes": "://" * 80_000,
    "headers of a key": "-----BEGIN PRIVATE" + " KEY-----" + "Comment: a\n" * 20_000,
    "headers of a key in one line": "-----BEGIN PRIVATE" + " KEY-----" + "Comment: " * 20_000,
    "a value and spaces": "token=" + "A1b2" * 60 + " " * 100_000 + "!",
}


@pytest.mark.parametrize("name", REPEATED)
@pytest.mark.timeout(20)
def test_search_of_hostile_repetition_terminates(name: str) -> None:
    assert len(find_secrets(REPEATED[name])) <= 1


FRAGMENTS = (
    *("-----BEGIN ", "-----BEGIN PRIVATE" + " KEY-----", "PRIVATE KEY", "Comment: a\n", "Proc-Type:", "\n", " ", "+"),
    *("\\n", "A", "a.", "a-", "://", ":", "@", "=", "eyJ", "ghs_", "sk-", "xoxb-", "Bearer ", "token", "pwd: "),
)


@pytest.mark.timeout(60)
def test_search_of_all_pairs_of_repeated_fragments_terminates() -> None:
    for first, repeated in itertools.product(FRAGMENTS, repeat=2):
        find_secrets(first + repeated * (2_000 // len(repeated)) + "!")
