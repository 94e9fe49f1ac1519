"""Sandbox providers by their names."""

from app.errors import AgentFixError, ExitCode
from app.sandbox.base import SandboxProvider
from app.sandbox.bubblewrap import BubblewrapProvider
from app.sandbox.unsandboxed import UnsandboxedProvider
from app.settings import Settings


def make_provider(name: str, settings: Settings) -> SandboxProvider:
    """A sandbox provider by its name. There is no fall-back from one to another."""
    root = settings.state / "sandboxes"
    match name:
        case "bubblewrap":
            return BubblewrapProvider(root, caches=settings.state / "caches", environment=settings.environment)
        case "none":
            return UnsandboxedProvider(root)
        case _:
            raise AgentFixError(
                f"There is no sandbox {name!r}.", code=ExitCode.SANDBOX, hint="Sandboxes are: bubblewrap, none."
            )
