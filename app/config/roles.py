"""Defines each role's environment: which variables it may hold, and which it requires."""

import re
from collections.abc import Mapping
from typing import Literal, get_args

Role = Literal["receiver", "worker", "publisher"]
ROLES: tuple[Role, ...] = get_args(Role)

APP_ID = "AGENT_FIX_APP_ID"
PRIVATE_KEY = "AGENT_FIX_PRIVATE_KEY"
WEBHOOK_SECRET = "AGENT_FIX_WEBHOOK_SECRET"  # noqa: S105  # a name
WEB_TOKEN = "AGENT_FIX_WEB_TOKEN"  # noqa: S105
CLIENT_SECRET = "AGENT_FIX_CLIENT_SECRET"  # noqa: S105
API_TOKEN = "AGENT_FIX_API_TOKEN"  # noqa: S105
MODEL = "AGENT_FIX_MODEL"
MODELS: Mapping[str, str] = {
    "code": MODEL,
    "plan": f"{MODEL}_PLAN",
    "review": f"{MODEL}_REVIEW",
    "answer": f"{MODEL}_ANSWER",
    "cheap": f"{MODEL}_CHEAP",
}
"""The model variable of each kind of work."""
WEBHOOK_URL = "AGENT_FIX_WEBHOOK_URL"
WEBHOOK_SIGNING_KEY = "AGENT_FIX_WEBHOOK_SIGNING_KEY"
NOTIFY = "AGENT_FIX_NOTIFY"
SIGNING_KEY = "AGENT_FIX_SIGNING_KEY"
STATE_DIR = "AGENT_FIX_STATE_DIR"
LESSONS = "AGENT_FIX_LESSONS"

_NAMES = ("STATE_DIR", "DATABASE_URL", "GITHUB_URL", "PUBLIC_URL", "JOBS", "JOBS_PER_REPOSITORY", "LOG", "FAILPOINT")
_SHARED = frozenset(f"AGENT_FIX_{name}" for name in _NAMES)
_DEFAULTS = frozenset({*MODELS.values(), "AGENT_FIX_RUNNERS", LESSONS})
_PLACES = frozenset({"AGENT_FIX_JOBS_RUN_ON", "AGENT_FIX_JOBS_TEMPLATE", "AGENT_FIX_JOBS_PER_WORKER"})
_MONEY = frozenset({"AGENT_FIX_PRICES", "AGENT_FIX_USD_PER_DAY", "AGENT_FIX_ACTOR_USD_PER_DAY"})
_FOR_REPOSITORIES = frozenset({"AGENT_FIX_DEFAULTS", "AGENT_FIX_RUNNER", "AGENT_FIX_FALLBACKS"})
_SIGN_IN = frozenset({"AGENT_FIX_CLIENT_ID", CLIENT_SECRET, "AGENT_FIX_OPERATORS", "AGENT_FIX_GITHUB_API_URL"})
ALLOWED_VARIABLES: Mapping[Role, frozenset[str]] = {
    "receiver": _SHARED
    | _SIGN_IN
    | _FOR_REPOSITORIES
    | {WEBHOOK_SECRET, WEB_TOKEN, "AGENT_FIX_HOST", "AGENT_FIX_PORT", "AGENT_FIX_TRUSTED_PROXIES"},
    "worker": _SHARED
    | _DEFAULTS
    | _MONEY
    | _PLACES
    | {"AGENT_FIX_SANDBOX", "AGENT_FIX_CONTAINER_IMAGE", "AGENT_FIX_E2B_TEMPLATE"},
    "publisher": _SHARED
    | _DEFAULTS
    | _FOR_REPOSITORIES
    | {APP_ID, PRIVATE_KEY, "AGENT_FIX_BUDGET", "AGENT_FIX_GITHUB_API_URL", "AGENT_FIX_ALLOWED_APPS"}
    | {WEBHOOK_URL, WEBHOOK_SIGNING_KEY, NOTIFY, SIGNING_KEY, "GNUPGHOME", "AGENT_FIX_SANDBOX"},
}
"""Our own variables that each role may hold."""

REQUIRED_VARIABLES: Mapping[Role, Mapping[str, str]] = {
    "receiver": {WEBHOOK_SECRET: "Set it to the webhook secret of the GitHub App."},
    "worker": {},
    "publisher": {
        APP_ID: "Set it to the App's id, or create an App with `agent-fix serve --setup`.",
        PRIVATE_KEY: "Set it to the path of the App's .pem file, or to its text.",
        MODEL: "Set it to the default model, like anthropic/NAME or openai/NAME.",
    },
}

_ORDINARY = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|LANGUAGE|LC_[A-Z]+|TZ|TMPDIR|TERM|NO_COLOR|XDG_(?:STATE|CACHE|CONFIG|DATA)_HOME"
    r"|(?:https?|all|no|HTTPS?|ALL|NO)_(?:proxy|PROXY)|SSL_CERT_(?:FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
    r"|PG[A-Z]+|MALLOC_[A-Z_]+"
)
"""What any process needs: paths, locale, proxies and the database."""
_NOT_FOR_A_MODEL = re.compile(
    r"AGENT_FIX_.*|GITHUB_.*|GH_.*|ACTIONS_.*|RUNNER_.*|INPUT_.*|GIT_.*|GNUPG.*|SSH_.*|LISTEN_.*|NOTIFY_SOCKET"
    r"|CREDENTIALS_DIRECTORY|PYTHON(?:PATH|HOME|STARTUP|INSPECT)"
)
"""A worker gets everything else, because names of model keys and of package clients' settings cannot be listed."""


def environment_for(
    role: Role, environment: Mapping[str, str], secrets: Mapping[str, tuple[str, ...]]
) -> dict[str, str]:
    """The part of an environment that a role may hold.

    `secrets` are the values of each variable that belongs to one role: no other role's environment may contain such a
    value, under any name.
    """
    forbidden = {value for name, values in secrets.items() if name not in ALLOWED_VARIABLES[role] for value in values}
    return {
        name: value
        for name, value in environment.items()
        if _may_hold(role, name) and not any(secret in value.replace("\\n", "\n") for secret in forbidden)
    }


def is_for_a_model(name: str) -> bool:
    """True if a variable may be a model's key or endpoint: it is not ours, GitHub's or the process's own."""
    return not _NOT_FOR_A_MODEL.fullmatch(name) and not _ORDINARY.fullmatch(name) and not name.startswith("LD_")


def _may_hold(role: Role, name: str) -> bool:
    if name in ALLOWED_VARIABLES[role] or _ORDINARY.fullmatch(name):
        return True
    return role == "worker" and not _NOT_FOR_A_MODEL.fullmatch(name)
