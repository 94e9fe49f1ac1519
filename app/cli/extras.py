"""Names the extra of this package that a missing library belongs to."""

import io
import os
import sys

from app.core.errors import AgentFixError, ExitCode


def make_streams_safe() -> None:
    """Open closed streams on the null device, and escape characters that the terminal's encoding lacks.

    Otherwise the next opened file would take a closed stream's number, and output would go into it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


EXTRAS = {
    "apprise": "notify",
    "e2b": "e2b",
    "cryptography": "server",
    "fastapi": "server",
    "githubkit": "github",
    "hishel": "github",
    "httptools": "server",
    "jwt": "github",
    "prometheus_client": "server",
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
        f"This command needs agent-fix[{extra}], which is not installed.",
        hint=f"In a checkout: pipx install --force '.[{extra}]', or pip install '.[{extra}]' into its environment.",
        code=ExitCode.USAGE,
    )
