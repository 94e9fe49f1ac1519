"""The image that containers are made from: whether it is there, has what we need, and which tools it brings."""

import asyncio
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.errors import SandboxError
from app.sandbox.base import ENV, HOME
from app.sandbox.container.engine import Engine
from app.sandbox.profile import SYSTEM_PATH

DEFAULT = "python:3.12-bookworm"
NEEDED = (
    *("python3", "sh", "bash", "git", "find", "tar", "gzip", "sleep", "env", "setpriv"),
    *("grep", "mv", "realpath", "install"),
)
"""Programs without which no sandbox can be made, or no job be done."""
TOOLS = ("node", "npm", "yarn", "pnpm", "cargo", "go")
"""Programs that set-ups use where an image has them."""
SECONDS = 60
LEAST_PYTHON = (3, 9)
_ASK = """
for name in "$@"; do command -v "$name" > /dev/null 2>&1 && echo "$name"; done
echo "interpreter:$(command -v python3)"
find / -maxdepth 0 -printf 'gnu-find\n' 2> /dev/null
python3 -I -c 'import asyncio, ctypes, selectors, sys; print("python-%d.%d" % sys.version_info[:2])' 2> /dev/null
exit 0
"""
_OUR_OWN = ("HOME", "HOSTNAME", "TMPDIR", "LANG")


@dataclass(frozen=True, slots=True)
class Image:
    """`id` is the engine's digest of it; `environment` what it sets for whatever is executed in it."""

    name: str
    id: str
    environment: tuple[tuple[str, str], ...]

    @classmethod
    def told(cls, name: str, facts: Mapping[str, Any]) -> "Image":
        pairs = (str(entry).partition("=") for entry in facts.get("Config", {}).get("Env") or ())
        return cls(name, str(facts["Id"]), tuple((key, value) for key, _, value in pairs if key not in _OUR_OWN))

    def variables(self) -> dict[str, str]:
        """Every variable of a command, before what the set-up and the single command add."""
        told = dict(self.environment)
        path = told.pop("PATH", "") or ":".join(SYSTEM_PATH)
        return {**told, "PATH": f"{ENV}/bin:{path}", "HOME": HOME, "TMPDIR": "/tmp", "LANG": "C.UTF-8"}  # noqa: S108


async def find_image(engine: Engine, name: str) -> Image:
    """SandboxError where it is not there: nothing is fetched while a job waits."""
    facts = await engine.image(name)
    if facts is None:
        raise SandboxError(f"{engine.title} does not have the image {name}.", hint=missing(engine, name))
    return Image.told(name, facts)


def missing(engine: Engine, name: str) -> str:
    return f"Fetch it with `{engine.name} pull {name}`, or name another with AGENT_FIX_CONTAINER_IMAGE."


def asked(engine: Engine, image: str) -> frozenset[str]:
    """Which of NEEDED and TOOLS the image has; `gnu-find` and `python-MAJOR.MINOR` too. Blocking. SandboxError where
    it cannot be asked."""
    argv = [
        *(engine.program, "run", "--rm", "--pull", "never", "--network", "none", "--cap-drop", "ALL"),
        *("--ulimit", "nproc=1024:1024", "--ulimit", "nofile=1024:1024", "--security-opt", "no-new-privileges"),
        *("--entrypoint", "sh", image, "-c", _ASK, "sh", *NEEDED, *TOOLS),
    ]
    try:
        done = subprocess.run(
            argv, env=dict(engine.environment), capture_output=True, check=False, timeout=SECONDS, text=True
        )
    except subprocess.TimeoutExpired as error:
        raise SandboxError(f"{engine.title} did not answer within {SECONDS} s (asking the image {image}).") from error
    if done.returncode:
        raise engine.failure(f"asking the image {image}", done.stderr)
    return frozenset(done.stdout.split())


def lacking(told: frozenset[str]) -> Sequence[str]:
    """What an image lacks, by what it was `asked`."""
    lacks = [name for name in NEEDED if name not in told]
    if "find" in told and "gnu-find" not in told:
        lacks.append("GNU find (findutils)")
    versions = [tuple(map(int, word[7:].split("."))) for word in told if word.startswith("python-")]
    if "python3" in told and (not versions or versions[0] < LEAST_PYTHON):
        lacks.append("a whole Python 3.9 or newer")
    return lacks


async def ask_image(engine: Engine, image: str) -> frozenset[str]:
    return await asyncio.to_thread(asked, engine, image)
