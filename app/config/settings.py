"""Reads the environment, as the only module that uses `os.environ`, and `app.env` in the state directory.

All problems with variables are collected, so that they can be fixed in one go. Not pydantic-settings: it takes 370 ms
more to import, and each role may read only its own variables.
"""

import base64
import binascii
import logging
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from ipaddress import ip_network
from pathlib import Path
from typing import Literal, TypeVar, cast
from urllib.parse import unquote, unquote_plus, urlsplit

from app.config import value_rules
from app.config.repository import (
    DEFAULTS,
    FALLBACKS,
    NO_DEFAULTS,
    RUNNER,
    OperatorDefaults,
    parse_defaults,
    with_value,
)
from app.config.roles import (
    ALLOWED_VARIABLES,
    API_TOKEN,
    CLIENT_SECRET,
    LESSONS,
    MODEL,
    MODELS,
    NOTIFY,
    PRIVATE_KEY,
    REQUIRED_VARIABLES,
    ROLES,
    STATE_DIR,
    WEB_TOKEN,
    WEBHOOK_SECRET,
    WEBHOOK_SIGNING_KEY,
    WEBHOOK_URL,
    Role,
    environment_for,
)
from app.core.errors import AgentFixError, ConfigError, OutputError
from app.core.model_usage import DOLLAR, ModelNames
from app.core.redaction import looks_random
from app.core.sandbox_names import SANDBOXES

logger = logging.getLogger(__name__)

T = TypeVar("T")
MAX_DIGITS = 19
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
        if value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS and least <= int(value) <= most:
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
        if _is_plain_url(value, path=path):
            return value.rstrip("/")
        like = "https://host/api/v3" if path else "https://agent-fix.example.org"
        return self._wrong(name, default, "is not a usable URL.", f"Set it to a URL such as {like}.")

    def path(self, name: str, kind: Literal["file", "directory"] = "file") -> Path | None:
        """An absolute path, also if nothing is there: its reader reports that."""
        value = self.text(name)
        if not value:
            return None
        path = Path(value)
        try:
            path = path.expanduser().absolute()
            if path.is_file() if kind == "file" else path.is_dir():
                return path
            message = f"is {value[:200]!r}, but there is no such {kind}."
        except (OSError, RuntimeError) as error:  # the latter for an unknown user's home directory
            message = f"is {value[:200]!r}, which is not a usable path: {_reason(error)}."
        return self._wrong(name, path, message, f"Set it to a {kind}'s path.")

    def lessons(self, name: str) -> str:
        """How lessons of earlier jobs are searched: `fts`, `chroma:PATH`, or `off`."""
        value = self.text(name, "fts")
        how, _, what = value.partition(":")
        if value in {"fts", "off"}:
            return value
        if how == "embedding" and what.strip():  # until 0.2
            logger.warning("%s: embedding models are no longer used; lessons are searched by their words.", name)
            return "fts"
        if how == "chroma" and what.strip():
            try:
                return f"chroma:{Path(what.strip()).expanduser().absolute()}"
            except RuntimeError:  # for an unknown user's home directory
                pass
        hint = "Set it to fts, chroma:PATH or off."
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
        for name, key, value in (RUNNER, "runner", self.text(RUNNER)), (FALLBACKS, "fallbacks", self.words(FALLBACKS)):
            try:
                found = with_value(found, key, value) if value else found
            except ConfigError as error:
                self._wrong(name, None, f"cannot be used: {error.message}.", "Correct that.")
        return found

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


def _is_plain_url(value: str, *, path: bool) -> bool:
    try:
        found = urlsplit(value)
        is_server = found.scheme in {"http", "https"} and bool(found.hostname) and found.port != 0
    except ValueError:  # for a port that is no number, too
        return False
    return is_server and not (found.query or found.fragment or found.username or (found.path.strip("/") and not path))


def _reason(error: OSError | RuntimeError) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or str(error)


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
    except (OSError, ValueError, RuntimeError):
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
    except (ValueError, RuntimeError):
        reason = "is neither PEM text nor a file's path"
    raise AgentFixError(
        f"AGENT_FIX_PRIVATE_KEY {reason}.", hint="Set it to the path of the App's .pem file, or to its text."
    )


def _is_base64(text: str) -> bool:
    try:
        return len(base64.b64decode("".join(text.split()), validate=True)) > 64
    except binascii.Error:
        return False


NAME = "app.env"
_MAX_BYTES = 64 * 1024


def read_app_file(state: Path, names: Collection[str]) -> dict[str, str]:
    """The values of these names, empty if there is no such file. Raises OutputError if it cannot be read."""
    try:
        with (state / NAME).open("r", encoding="utf-8") as file:
            lines = file.read(_MAX_BYTES).splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise OutputError(f"{state / NAME} cannot be read: {reason}.") from error
    pairs = (line.partition("=") for line in lines if "=" in line and not line.lstrip().startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip() in names}


def write_app_file(state: Path, values: Mapping[str, str]) -> Path:
    """Write the file atomically, readable by this user only; returns its path. Raises OutputError if that fails."""
    path = state / NAME
    draft = path.with_suffix(".new")
    text = "# The GitHub App's credentials. Keep this file secret, like a password.\n"
    for name, value in values.items():
        one_line = value.strip().replace("\n", "\\n").replace("\r", "")
        text += f"{name}={one_line}\n"
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}.") from error
    return path


MAX_JOBS = 100_000
MODEL_PREFIXES = ("AGENT_FIX_", "GITHUB_", "GH_", "E2B_", "ACTIONS_", "RUNNER_")
E2B_KEY = "E2B_API_KEY"
GITHUB = "https://github.com"
GITHUB_API = "https://api.github.com"
"""GitHub's public addresses, which no other module repeats."""
_ENTERPRISE_API = "/api/v3"
_DATA_RESIDENCY = ".ghe.com"
"""Enterprise Cloud with data residency is at TENANT.ghe.com, with its API at api.TENANT.ghe.com and no path."""
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWD|PASS|CREDENTIALS?)(?:_|$)|APIKEY|PASSWORD|_PAT$", re.IGNORECASE
)
_PASSWORD_IN_QUERY = re.compile(r"[?&](?:ssl)?password=([^\s&#]+)", re.IGNORECASE)
_HEADERS = re.compile(r"OTEL_EXPORTER_OTLP_(?:TRACES_)?HEADERS|[A-Z]+_CUSTOM_HEADERS")
_PARTS = re.compile(r"[/@:?&=,\s]+")
MIN_PART = 8
"""Characters of a secret that is part of a notification's address or of a header."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of this process. `environment` is for packages that look up their own clients' variables."""

    state: Path
    model: str = ""
    models: ModelNames = field(default_factory=ModelNames)
    """By kind of work; `model` is the one for code."""
    prices: Path | None = None
    """The operator's price file (`app.llm.prices`)."""
    runners: Path | None = None
    """A directory with the operator's recipes for other coding agents (`app.agent.external.recipe`)."""
    sandbox: str = "bubblewrap"
    container_image: str = ""
    """The base image of container sandboxes; empty for the default (`app.sandbox.container.provider`)."""
    e2b_template: str = ""
    """What E2B's machines are made of; empty for E2B's own template."""
    lessons: str = "fts"
    """How lessons of earlier jobs are searched: `fts`, `chroma:PATH`, or `off`."""
    defaults: OperatorDefaults = NO_DEFAULTS
    """For keys that repositories do not set, and for those that they cannot (`app.config.repository`)."""
    failpoint: str = ""
    editor: str = "vi"
    host: str = "127.0.0.1"
    port: int = 8080
    webhook_secret: str = field(default="", repr=False)
    """One secret, or two separated by a comma during rotation."""
    database_url: str = field(default="", repr=False)
    """Empty for SQLite in the state directory."""
    app_id: int = 0
    app_key: str = field(default="", repr=False)
    """As it was set: PEM text or a file's path. `private_key` returns the key itself."""
    github_url: str = GITHUB
    github_api_url: str = GITHUB_API
    jobs: int = 2
    """Maximum number of jobs that all workers together run at once."""
    jobs_per_repository: int = 1
    jobs_per_worker: int = MAX_JOBS
    """Maximum number of jobs that one worker runs at once."""
    jobs_run_on: Literal["process", "kubernetes", "ecs"] = "process"
    jobs_template: Path | None = None
    """A Kubernetes Job manifest, or an ECS RunTask request, from which each job's is made (`app.server.launch`)."""
    budget: int = 5_000_000
    """The default budget of a job, in micro-dollars."""
    usd_per_day: int = 0
    """Maximum cost of all jobs of the server in a day, in micro-dollars; 0 for no limit."""
    usd_per_day_actor: int = 0
    """Maximum cost of one person's jobs in a day, over all repositories; 0 for no limit."""
    allowed_apps: frozenset[int] = frozenset()
    """Ids of other Apps that may start jobs."""
    web_token: str = field(default="", repr=False)
    """The password of API and metrics, and of a dashboard on this machine alone; they are off without it."""
    client_id: str = ""
    """The App's client, with which people sign in to the dashboard; empty if they do not."""
    client_secret: str = field(default="", repr=False)
    operators: frozenset[str] = frozenset()
    """Logins, in lower case, of people who see everything."""
    trusted_proxies: tuple[str, ...] = ("127.0.0.1", "::1")
    """Addresses and networks of reverse proxies, whose `X-Forwarded-For` is believed."""
    api_token: str = field(default="", repr=False)
    """For the API of another server (`agent-fix jobs --server`)."""
    public_url: str = ""
    """The dashboard's public address, for links in comments."""
    webhook_url: str = ""
    """Where to post that a job ended or waits, signed with `webhook_signing_key`."""
    webhook_signing_key: bytes = field(default=b"", repr=False)
    notify: tuple[str, ...] = field(default=(), repr=False)
    """Apprise URLs to notify when a job ends or is waiting."""
    log: Literal["human", "json"] = "human"
    problems: tuple[SettingProblem, ...] = ()
    """What could not be read: `check` refuses it."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def model_environment(self) -> dict[str, str]:
        """The environment for a model library, without our own and GitHub's variables."""
        return {k: v for k, v in self.environment.items() if not k.startswith(MODEL_PREFIXES)}

    @property
    def private_key(self) -> str:
        """The App's key as PEM text, read on each call, so that only processes that call this hold it."""
        return private_key(self.app_key)

    @property
    def webhook_secrets(self) -> tuple[str, ...]:
        return webhook_secrets(self.webhook_secret)

    @property
    def proxy(self) -> str | None:
        """The proxy for requests to GitHub, if the environment names one."""
        names = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
        return next((self.environment[name] for name in names if self.environment.get(name)), None)

    @property
    def no_proxy(self) -> str:
        """The hosts that are reached past it."""
        return self.environment.get("NO_PROXY") or self.environment.get("no_proxy", "")

    @property
    def git_certificates(self) -> dict[str, str]:
        """The variables by which git trusts the same certificates as this process."""
        names = {"GIT_SSL_CAINFO": "SSL_CERT_FILE", "GIT_SSL_CAPATH": "SSL_CERT_DIR"}
        return {git: self.environment[ours] for git, ours in names.items() if self.environment.get(ours)}

    @property
    def secrets(self) -> tuple[str, ...]:
        """All secrets in the environment, to be removed from logs."""
        named = {value for name, value in self.environment.items() if _SECRET_NAME.search(name)}
        with_password = {value for value in self.environment.values() if "://" in value and "@" in value}
        urls = (value for value in self.environment.values() if "://" in value)
        in_queries = {unquote_plus(part) for url in urls for part in _PASSWORD_IN_QUERY.findall(url)}
        ours = {value for values in self.own_secrets().values() for value in values}
        headers = (value for name, value in self.environment.items() if _HEADERS.fullmatch(name))
        parts = {part for value in (*self.notify, *headers) for part in _PARTS.split(unquote(value))}
        random = {part for part in parts if len(part) >= MIN_PART and looks_random(part)}
        ours |= {*self.notify, *random}
        return tuple(sorted(named - {self.app_key, self.webhook_secret} | with_password | in_queries | ours))

    def own_secrets(self) -> dict[str, tuple[str, ...]]:
        """The readable values of the variables that only one role may hold."""
        try:
            key = (self.private_key.strip(),) if self.app_key else ()
        except AgentFixError:
            key = ()
        hooks = tuple(part.strip() for part in self.webhook_secret.split(",") if part.strip())
        ours = {WEB_TOKEN: self.web_token, CLIENT_SECRET: self.client_secret}
        return {
            PRIVATE_KEY: key,
            WEBHOOK_SECRET: hooks,
            **{name: (value,) * bool(value) for name, value in ours.items()},
        }

    def for_role(self, role: Role) -> dict[str, str]:
        """The environment that a role's process may hold."""
        return environment_for(role, self.environment, self.own_secrets())

    def check(self, *roles: Role) -> tuple[str, ...]:
        """Raise SettingsError with everything that these roles lack and what is wrong with their variables; without a
        role, with every wrong variable. Returns warnings otherwise."""
        names = set().union(*(ALLOWED_VARIABLES[role] for role in roles))
        needs = {name: hint for role in roles for name, hint in REQUIRED_VARIABLES[role].items()}
        given = {name for name in needs if self.environment.get(name, "").strip()}
        problems = [SettingProblem(name, "is not set.", hint) for name, hint in needs.items() if name not in given]
        problems += [problem for problem in self.problems if not roles or problem.name in names]
        problems += self._unreadable(names & given)
        if "worker" in roles and self.sandbox == "e2b" and not self.environment.get(E2B_KEY, "").strip():
            problems.append(SettingProblem(E2B_KEY, "is not set, and AGENT_FIX_SANDBOX is e2b.", "Set it to a key."))
        problems += self._cluster_problems() if "worker" in roles else []
        problems += self._sign_in_problems() if "receiver" in roles else []
        if problems:
            raise SettingsError(problems)
        warnings = [key_warning(self.app_key) if PRIVATE_KEY in names else ""]
        if "worker" in roles and self.sandbox != "e2b" and self.environment.get(E2B_KEY, "").strip():
            warnings.append(f"{E2B_KEY} is set, but jobs use {self.sandbox}: AGENT_FIX_SANDBOX=e2b would use it.")
        return tuple(filter(None, warnings))

    def _cluster_problems(self) -> list[SettingProblem]:
        """What jobs in a cluster lack: a template, and a database that they reach from there."""
        if self.jobs_run_on == "process":
            return []
        needs = {
            "AGENT_FIX_JOBS_TEMPLATE": (self.jobs_template, "Set it to the file from which each job's is made."),
            "AGENT_FIX_DATABASE_URL": (self.database_url.startswith("postgres"), "Set it to a Postgres server's URL."),
        }
        where = f"is needed for jobs on {self.jobs_run_on}."
        return [SettingProblem(name, where, hint) for name, (given, hint) in needs.items() if not given]

    def _sign_in_problems(self) -> list[SettingProblem]:
        """One half of the App's client is useless without the other."""
        halves = {"AGENT_FIX_CLIENT_ID": self.client_id, CLIENT_SECRET: self.client_secret}
        if all(halves.values()) or not any(halves.values()):
            return []
        hint = "Take it from the App's settings on GitHub, under Client secrets."
        return [
            SettingProblem(name, "is required for signing in with GitHub.", hint)
            for name, given in halves.items()
            if not given
        ]

    def _unreadable(self, names: set[str]) -> list[SettingProblem]:
        """Secrets that are set but unusable. They are read only if a role needs them."""
        problems = []
        for name, read in ((WEBHOOK_SECRET, lambda: self.webhook_secrets), (PRIVATE_KEY, lambda: self.private_key)):
            try:
                if name in names:
                    read()
            except AgentFixError as error:
                problems.append(
                    SettingProblem(name, error.message.partition(f"{name} ")[2] or error.message, error.hint)
                )
        return problems


def read_settings(state: Path | None = None) -> Settings:
    """Settings from the environment; `state` (from `--state`) wins over `AGENT_FIX_STATE_DIR`. Raises SettingsError."""
    settings = settings_from(dict(os.environ), state)
    settings.check()
    return settings


def read_server_settings(state: Path | None = None, *roles: Role) -> Settings:
    """As `read_settings`, with the App's missing variables taken from `app.env`; for these roles or all. Nothing is
    refused: `Settings.check` does that, with what a role lacks."""
    environment = dict(os.environ)
    place = state_directory(environment, state)
    names = set().union(*(ALLOWED_VARIABLES[role] for role in roles or ROLES))
    kept = read_app_file(place, names - {name for name in names if environment.get(name, "").strip()})
    return settings_from({**environment, **kept}, place)


def settings_from(environment: Mapping[str, str], state: Path | None = None) -> Settings:
    """Settings from an environment. Invalid values are listed in `problems`."""
    reading = VariableReader(environment)
    github_url, api_url = _github(reading)
    place = state_directory(environment, state)
    return Settings(
        state=place,
        model=reading.text(MODEL),
        models=ModelNames(**{kind: reading.text(name) for kind, name in MODELS.items()}),
        prices=reading.path("AGENT_FIX_PRICES"),
        runners=reading.path("AGENT_FIX_RUNNERS", "directory"),
        sandbox=reading.choice("AGENT_FIX_SANDBOX", *SANDBOXES),
        container_image=reading.text("AGENT_FIX_CONTAINER_IMAGE"),
        e2b_template=reading.checked("AGENT_FIX_E2B_TEMPLATE", value_rules.e2b_template),
        lessons=reading.lessons(LESSONS),
        defaults=reading.defaults(),
        failpoint=reading.text("AGENT_FIX_FAILPOINT"),
        editor=environment.get("VISUAL") or environment.get("EDITOR") or "vi",
        host=reading.text("AGENT_FIX_HOST", "127.0.0.1"),
        port=reading.number("AGENT_FIX_PORT", 8080, least=0, most=65_535),
        trusted_proxies=reading.networks("AGENT_FIX_TRUSTED_PROXIES", "127.0.0.1,::1"),
        webhook_secret=environment.get(WEBHOOK_SECRET, ""),
        database_url=reading.text("AGENT_FIX_DATABASE_URL"),
        app_id=reading.number("AGENT_FIX_APP_ID", 0, least=1, most=999_999_999),
        app_key=reading.text(PRIVATE_KEY),
        github_url=github_url,
        github_api_url=api_url,
        jobs=reading.number("AGENT_FIX_JOBS", 2, least=1, most=MAX_JOBS),
        jobs_per_repository=reading.number("AGENT_FIX_JOBS_PER_REPOSITORY", 1, least=1, most=256),
        jobs_per_worker=reading.number("AGENT_FIX_JOBS_PER_WORKER", MAX_JOBS, least=1, most=MAX_JOBS),
        jobs_run_on=cast(
            "Literal['process', 'kubernetes', 'ecs']",
            reading.choice("AGENT_FIX_JOBS_RUN_ON", "process", "kubernetes", "ecs"),
        ),
        jobs_template=reading.path("AGENT_FIX_JOBS_TEMPLATE"),
        budget=reading.money("AGENT_FIX_BUDGET", 5_000_000),
        usd_per_day=reading.money("AGENT_FIX_USD_PER_DAY", 0),
        usd_per_day_actor=reading.money("AGENT_FIX_ACTOR_USD_PER_DAY", 0),
        allowed_apps=reading.ids("AGENT_FIX_ALLOWED_APPS"),
        web_token=reading.secret(WEB_TOKEN),
        client_id=reading.text("AGENT_FIX_CLIENT_ID"),
        client_secret=reading.text(CLIENT_SECRET),
        operators=reading.logins("AGENT_FIX_OPERATORS"),
        api_token=reading.text(API_TOKEN),
        public_url=reading.address("AGENT_FIX_PUBLIC_URL", "", path=False),
        webhook_url=reading.address(WEBHOOK_URL, ""),
        webhook_signing_key=reading.signing_key(WEBHOOK_SIGNING_KEY, needed_by=WEBHOOK_URL),
        notify=reading.words(NOTIFY),
        log=cast("Literal['human', 'json']", reading.choice("AGENT_FIX_LOG", "human", "json")),
        problems=tuple(reading.problems),
        environment={**environment, STATE_DIR: str(place)},
    )


def _github(reading: VariableReader) -> tuple[str, str]:
    """GitHub's URL and API URL; either address identifies an Enterprise Server or a tenant of GHE.com."""
    server = reading.address("AGENT_FIX_GITHUB_URL", "")
    api = reading.address("AGENT_FIX_GITHUB_API_URL", "")
    found = urlsplit(server or api)
    is_tenant = (found.hostname or "").endswith(_DATA_RESIDENCY)
    if not server:
        server = GITHUB
        if is_tenant or api.endswith(_ENTERPRISE_API):
            server = f"{found.scheme}://{found.netloc.removeprefix('api.') if is_tenant else found.netloc}"
    elif not api and server != GITHUB:
        api = f"{found.scheme}://api.{found.netloc}" if is_tenant else server + _ENTERPRISE_API
    return server, api or GITHUB_API


def process_environment() -> dict[str, str]:
    """A copy of this process's environment."""
    return dict(os.environ)


def state_directory(environment: Mapping[str, str], chosen: Path | None = None) -> Path:
    """The chosen one, `AGENT_FIX_STATE_DIR`, or the XDG state directory. Raises AgentFixError if none is known."""
    place = chosen or _default_state_directory(environment)
    try:
        return place.expanduser().resolve()
    except (OSError, RuntimeError) as error:
        message = f"The state directory {place} is not a usable path: {_reason(error)}."
        raise AgentFixError(message, hint="Pass --state DIR or set AGENT_FIX_STATE_DIR.") from error


def _default_state_directory(environment: Mapping[str, str]) -> Path:
    if own := environment.get(STATE_DIR):
        return Path(own)
    if xdg := environment.get("XDG_STATE_HOME"):
        return Path(xdg) / "agent-fix"
    if home := environment.get("HOME"):
        return Path(home) / ".local" / "state" / "agent-fix"
    raise AgentFixError(
        "There is no state directory, because HOME is not set.", hint="Pass --state DIR or set AGENT_FIX_STATE_DIR."
    )


def python_interpreter() -> Path:
    """The interpreter behind our own virtual environment; sandboxes have it at the same path."""
    return Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
