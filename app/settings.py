"""The environment, read once at the door; the only reader of `os.environ`."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from app.errors import AgentFixError

MODEL_PREFIXES = ("AGENT_FIX_", "GITHUB_", "E2B_", "ACTIONS_", "RUNNER_")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the process was started with. `environment` is handed to rooms that ask their own clients by it."""

    state: Path
    model: str = ""
    sandbox: str = "bubblewrap"
    failpoint: str = ""
    editor: str = "vi"
    host: str = "127.0.0.1"
    port: int = 8080
    webhook_secret: str = field(default="", repr=False)
    """One secret, or two with a comma between them while they are being changed."""
    database_url: str = field(default="", repr=False)
    """Empty for SQLite in the state directory."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def model_environment(self) -> dict[str, str]:
        """The environment without our own and GitHub's variables: what a model library may see."""
        return {k: v for k, v in self.environment.items() if not k.startswith(MODEL_PREFIXES)}


def read_settings(state: Path | None = None) -> Settings:
    """Settings from the environment; `state` (from `--state`) wins over `AGENT_FIX_STATE_DIR`."""
    environment = dict(os.environ)
    return Settings(
        state=(state or state_directory(environment)).expanduser().resolve(),
        model=environment.get("AGENT_FIX_MODEL", ""),
        sandbox=environment.get("AGENT_FIX_SANDBOX", "bubblewrap"),
        failpoint=environment.get("AGENT_FIX_FAILPOINT", ""),
        editor=environment.get("VISUAL") or environment.get("EDITOR") or "vi",
        host=environment.get("AGENT_FIX_HOST") or "127.0.0.1",
        port=port(environment.get("AGENT_FIX_PORT") or "8080"),
        webhook_secret=environment.get("AGENT_FIX_WEBHOOK_SECRET", ""),
        database_url=environment.get("AGENT_FIX_DATABASE_URL", ""),
        environment=environment,
    )


def state_directory(environment: Mapping[str, str]) -> Path:
    """`AGENT_FIX_STATE_DIR`, else the XDG state directory."""
    if own := environment.get("AGENT_FIX_STATE_DIR"):
        return Path(own)
    if xdg := environment.get("XDG_STATE_HOME"):
        return Path(xdg) / "agent-fix"
    if home := environment.get("HOME"):
        return Path(home) / ".local" / "state" / "agent-fix"
    raise AgentFixError("No state directory: HOME is not set.", hint="Pass --state DIR or set AGENT_FIX_STATE_DIR.")


def port(value: str) -> int:
    """A TCP port from its text; 0 lets the system choose."""
    if not (value.isascii() and value.isdigit()) or int(value) > 65_535:
        raise AgentFixError(f"AGENT_FIX_PORT is {value!r}, not a port.", hint="Set it to a number up to 65535.")
    return int(value)


def python_interpreter() -> Path:
    """The interpreter behind our own virtual environment: the one that a sandbox shows at the same path."""
    return Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
