"""Names the extra of this package that a missing library belongs to."""

from app.core.errors import AgentFixError, ExitCode

EXTRAS = {
    "e2b": "e2b",
    "cryptography": "server",
    "fastapi": "server",
    "githubkit": "github",
    "hishel": "github",
    "httptools": "server",
    "jwt": "github",
    "uvloop": "server",
}
"""The import name of each library that a fix does not need, and the extra that brings it."""


def missing_extra(error: ModuleNotFoundError) -> AgentFixError | None:
    """What to install for a library that is not there; None if no extra has it."""
    library = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(library)
    if extra is None:
        return None
    return AgentFixError(
        f"This needs the extra `{extra}` of agent-fix, which is not installed.",
        hint=f"With pipx: pipx install --force 'agent-fix[{extra}]'. Elsewhere: pip install 'agent-fix[{extra}]'.",
        code=ExitCode.USAGE,
    )
