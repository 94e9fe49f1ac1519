"""Reads environment variables one by one and collects all problems."""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from ipaddress import ip_network
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from app.config.operator_defaults import (
    DEFAULTS,
    FALLBACKS,
    NO_DEFAULTS,
    RUNNER,
    OperatorDefaults,
    parse_defaults,
    with_variables,
)
from app.core.errors import AgentFixError, ConfigError
from app.core.money import DOLLAR

T = TypeVar("T")
MAX_SECRETS = 2
MIN_SECRET_LENGTH = 16
_LOGIN = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")
_MONEY = re.compile(r"\$?[0-9]{1,6}(?:\.[0-9]{1,6})?")
_PEM = re.compile(r"-----BEGIN (?:RSA )?PRIVATE KEY-----\n([A-Za-z0-9+/=\s]+)-----END (?:RSA )?PRIVATE KEY-----\n?")


@dataclass(frozen=True, slots=True)
class SettingProblem:
    """A missing or invalid variable and its repair. Never contains a secret's value."""

    name: str
    message: str
    hint: str

    def __str__(self) -> str:
        return f"{self.name} {self.message} {self.hint}"


class SettingsError(AgentFixError):
    """The environment is unusable; the hint has one line for each problem."""

    def __init__(self, problems: Iterable[SettingProblem]) -> None:
        found = tuple(problems)
        many = "1 setting is" if len(found) == 1 else f"{len(found)} settings are"
        super().__init__(f"{many} missing or invalid.", hint="\n".join(f"- {problem}" for problem in found))
        self.problems = tuple(str(problem) for problem in found)


class VariableReader:
    """Values of environment variables by name. An invalid value adds a problem and gives the default."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.problems: list[SettingProblem] = []

    def text(self, name: str, default: str = "") -> str:
        return self._environment.get(name, "").strip() or default

    def number(self, name: str, default: int, *, least: int, most: int) -> int:
        value = self.text(name)
        if not value:
            return default
        if value.isascii() and value.isdigit() and least <= int(value[:9]) <= most:
            return int(value)
        return self._wrong(name, default, f"is {value[:40]!r}.", f"Set it to a number from {least:,} to {most:,}.")

    def choice(self, name: str, *options: str) -> str:
        """One of the options, or the first if the variable is not set."""
        value = self.text(name, options[0])
        if value in options:
            return value
        return self._wrong(name, options[0], f"is {value[:40]!r}.", f"Set it to {' or '.join(options)}.")

    def money(self, name: str, default: int) -> int:
        """Dollars as people write them, returned as micro-dollars."""
        value = self.text(name)
        if not value:
            return default
        if _MONEY.fullmatch(value) and (amount := int(Decimal(value.removeprefix("$")) * DOLLAR)):
            return amount
        return self._wrong(
            name,
            default,
            f"is {value[:40]!r}, which is not an amount in dollars.",
            "Set it to an amount such as 5 or 0.50.",
        )

    def address(self, name: str, default: str, *, path: bool = True) -> str:
        """An http or https URL without a trailing slash."""
        value = self.text(name)
        if not value:
            return default
        found = urlsplit(value)
        plain = not (found.query or found.fragment or found.username or (found.path.strip("/") and not path))
        if found.scheme in {"http", "https"} and found.hostname and plain:
            return value.rstrip("/")
        like = "https://host/api/v3" if path else "https://agent-fix.example.org"
        return self._wrong(name, default, "is not a usable URL.", f"Set it to a URL such as {like}.")

    def path(self, name: str) -> Path | None:
        """A file's absolute path, also if the file is missing: its reader reports that."""
        value = self.text(name)
        if not value:
            return None
        path = Path(value).expanduser().absolute()
        if path.is_file():
            return path
        return self._wrong(name, path, f"is {value[:200]!r}, but there is no such file.", "Set it to a file's path.")

    def lessons(self, name: str) -> str:
        """How lessons of earlier jobs are searched: `fts`, `embedding:MODEL`, `chroma:PATH`, or `off`."""
        value = self.text(name, "fts")
        how, _, what = value.partition(":")
        if value in {"fts", "off"} or (how == "embedding" and what.strip()):
            return value
        if how == "chroma" and what.strip():
            return f"chroma:{Path(what.strip()).expanduser().absolute()}"
        hint = "Set it to fts, embedding:MODEL, chroma:PATH or off."
        return self._wrong(name, "fts", f"is {value[:60]!r}.", hint)

    def checked(self, name: str, rule: Callable[[str], str]) -> str:
        """A text that a rule of the repository's file accepts too."""
        value = self.text(name)
        try:
            return rule(value) if value else ""
        except ValueError as error:
            return self._wrong(name, "", f"is {value[:60]!r}.", f"It {error}.")

    def defaults(self) -> OperatorDefaults:
        """The operator's defaults for repositories."""
        try:
            found = parse_defaults(self.text(DEFAULTS)) if self.text(DEFAULTS) else NO_DEFAULTS
        except ConfigError as error:
            return self._wrong(DEFAULTS, NO_DEFAULTS, f"cannot be used: {error.message}.", "Correct that.")
        try:
            return with_variables(found, self.text(RUNNER), self.text(FALLBACKS))
        except ConfigError as error:
            return self._wrong(RUNNER, found, f"or {FALLBACKS} cannot be used: {error.message}.", "Correct that.")

    def ids(self, name: str) -> frozenset[int]:
        """The comma-separated numbers of a variable; a wildcard is refused."""
        found = [part.strip() for part in self.text(name).split(",") if part.strip()]
        if all(part.isascii() and part.isdigit() and len(part) < 16 for part in found):
            return frozenset(map(int, found))
        hint = "List the numeric ids of Apps, separated by commas. Wildcards are not supported."
        return self._wrong(name, frozenset(), "contains something that is not an App id.", hint)

    def logins(self, name: str) -> frozenset[str]:
        """Comma-separated GitHub logins, in lower case, or numeric ids; no wildcard."""
        found = [part.strip().removeprefix("@").lower() for part in self.text(name).split(",") if part.strip()]
        if all(_LOGIN.fullmatch(part) for part in found):
            return frozenset(found)
        hint = "List GitHub logins or numeric ids, separated by commas. Wildcards are not supported."
        return self._wrong(name, frozenset(), "contains an entry that is not a GitHub login.", hint)

    def networks(self, name: str, default: str) -> tuple[str, ...]:
        """Comma-separated IP addresses and networks; no wildcard."""
        found = [part.strip() for part in self.text(name, default).split(",") if part.strip()]
        try:
            whole = [part for part in found if ip_network(part).prefixlen == 0]
        except ValueError:
            whole = found
        if not whole:
            return tuple(found)
        hint = "List addresses like 10.0.0.7 and networks like 10.0.0.0/8, separated by commas."
        return self._wrong(name, (), "contains something that is not an address or network, or all of them.", hint)

    def secret(self, name: str) -> str:
        """A password of sufficient length without blanks."""
        value = self.text(name)
        if not value or (len(value) >= MIN_SECRET_LENGTH and not re.search(r"\s", value)):
            return value
        return self._wrong(name, "", f"is shorter than {MIN_SECRET_LENGTH} characters or contains blanks.", MAKE_ONE)

    def words(self, name: str) -> tuple[str, ...]:
        """The comma-separated values of a variable."""
        return tuple(word for each in self.text(name).split(",") if (word := each.strip()))

    def signing_key(self, name: str, *, needed_by: str) -> bytes:
        """The bytes of a Standard Webhooks secret: `whsec_` and 24 to 64 bytes in base64."""
        value = self.text(name)
        if not value and not self.text(needed_by):
            return b""
        try:
            key = base64.b64decode(value.removeprefix("whsec_"), validate=True)
        except binascii.Error:
            key = b""
        if value.startswith("whsec_") and 24 <= len(key) <= 64:
            return key
        hint = f"`{MAKE_KEY}` generates one."
        message = f"must be `whsec_` followed by 24 to 64 bytes in base64 (required by {needed_by})."
        return self._wrong(name, b"", message, hint)

    def _wrong(self, name: str, default: T, message: str, hint: str) -> T:
        self.problems.append(SettingProblem(name, message, hint))
        return default


MAKE_KEY = "echo whsec_$(openssl rand -base64 32)"
MAKE_ONE = "`python3 -c 'import secrets; print(secrets.token_urlsafe(32))'` generates one."


def webhook_secrets(value: str) -> tuple[str, ...]:
    """The secrets in `AGENT_FIX_WEBHOOK_SECRET`: one, or two during rotation. Raises AgentFixError."""
    secrets = tuple(secret.strip() for secret in value.split(","))
    if not all(secrets) or len(secrets) > MAX_SECRETS:
        raise AgentFixError(
            "AGENT_FIX_WEBHOOK_SECRET must hold one secret, or two separated by a comma during rotation.",
            hint="Set it to the webhook secret of the GitHub App.",
        )
    if min(map(len, secrets)) < MIN_SECRET_LENGTH:
        raise AgentFixError(
            f"A secret in AGENT_FIX_WEBHOOK_SECRET is shorter than {MIN_SECRET_LENGTH} characters.",
            hint=f"Set a longer one on the App's page on GitHub. {MAKE_ONE}",
        )
    return secrets


def private_key(value: str) -> str:
    r"""The App's key as PEM text, from the text itself (also with `\n` as line ends) or from the file it names. Raises
    AgentFixError."""
    text = value.replace("\\n", "\n") if "-----BEGIN" in value else _key_file(Path(value))
    found = _PEM.fullmatch(text.replace("\r\n", "\n").strip() + "\n")
    if found is None or not _is_base64(found[1]):
        what = "an encrypted key" if "ENCRYPTED" in text else "something other than a private key in PEM form"
        raise AgentFixError(
            f"AGENT_FIX_PRIVATE_KEY holds {what}.",
            hint="Use the .pem file from the App's page on GitHub, unchanged.",
        )
    return found[0]


def key_warning(value: str) -> str:
    """A warning if other users can read the App's key file; empty otherwise."""
    if "-----BEGIN" in value:
        return ""
    try:
        mode = Path(value).expanduser().stat().st_mode
    except (OSError, ValueError):
        return ""
    others = "everybody" if mode & 0o007 else "its group"
    return f"AGENT_FIX_PRIVATE_KEY: {value} is readable by {others}; run `chmod 600` on it." if mode & 0o077 else ""


def _key_file(path: Path) -> str:
    try:
        return path.expanduser().read_text("ascii")
    except OSError as error:
        reason = f"names a file that cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        reason = "names a file that contains no PEM text"
    except ValueError:
        reason = "is neither PEM text nor a file's path"
    raise AgentFixError(
        f"AGENT_FIX_PRIVATE_KEY {reason}.", hint="Set it to the path of the App's .pem file, or to its text."
    )


def _is_base64(text: str) -> bool:
    try:
        return len(base64.b64decode("".join(text.split()), validate=True)) > 64
    except binascii.Error:
        return False
