"""Examines the image that containers are made from: its existence, required programs, and tools."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.core.errors import SandboxError
from app.sandbox.base import ENV, HOME, SandboxLimits
from app.sandbox.bubblewrap.profile import SYSTEM_PATH
from app.sandbox.container.engine import ContainerEngine, discard
from app.sandbox.container.profile import ContainerSpec
from app.sandbox.setup.package_tools import SYSTEM_TOOLS

DEFAULT = "python:3.12-bookworm"
NEEDED = (
    *("python3", "git", "grep", "gzip", "sleep", "mv", "rm", "chmod", "rmdir", "realpath", "install", "base64"),
    *("/bin/sh", "/bin/bash", "/usr/bin/env", "/usr/bin/find", "/usr/bin/setpriv", "/usr/bin/sha1sum"),
    *("/usr/bin/tar", "/usr/bin/xargs"),
)
"""Programs without which no sandbox or job can run."""
MIN_PYTHON = (3, 9)
QUESTION_SECONDS = 120
"""After this time a container for a question is gone, even if its caller has died."""
_FIND_TOOLS = """
for name in "$@"; do command -v "$name" > /dev/null 2>&1 && echo "$name"; done
echo "interpreter:$(command -v python3)"
find / -maxdepth 0 -printf 'gnu-find\n' 2> /dev/null
python3 -I -c 'import asyncio, ctypes, selectors, sys; print("python-%d.%d" % sys.version_info[:2])' 2> /dev/null
exit 0
"""
_OUR_VARIABLES = ("HOME", "HOSTNAME", "TMPDIR", "LANG")


@dataclass(frozen=True, slots=True)
class ContainerImage:
    """`id` is the engine's digest; `environment` are the variables that it sets."""

    name: str
    id: str
    environment: tuple[tuple[str, str], ...]

    @classmethod
    def from_inspect(cls, name: str, facts: Mapping[str, Any]) -> "ContainerImage":
        pairs = (str(entry).partition("=") for entry in facts.get("Config", {}).get("Env") or ())
        return cls(name, str(facts["Id"]), tuple((key, value) for key, _, value in pairs if key not in _OUR_VARIABLES))

    def variables(self) -> dict[str, str]:
        """Every variable of a command, without those of the set-up and the single command."""
        variables = dict(self.environment)
        path = variables.pop("PATH", "") or ":".join(SYSTEM_PATH)
        return {**variables, "PATH": f"{ENV}/bin:{path}", "HOME": HOME, "TMPDIR": "/tmp", "LANG": "C.UTF-8"}  # noqa: S108


async def find_image(engine: ContainerEngine, name: str) -> ContainerImage:
    """Raises SandboxError if it does not exist: nothing is downloaded while a job waits."""
    facts = await engine.image(name)
    if facts is None:
        raise SandboxError(f"{engine.title} does not have the image {name}.", hint=missing_image_hint(engine, name))
    return ContainerImage.from_inspect(name, facts)


def missing_image_hint(engine: ContainerEngine, name: str) -> str:
    return f"Fetch it with `{engine.name} pull {name}`, or set AGENT_FIX_CONTAINER_IMAGE to another one."


async def ask_image(engine: ContainerEngine, image: str) -> frozenset[str]:
    """Which of NEEDED and SYSTEM_TOOLS the image has, and `gnu-find`, `python-MAJOR.MINOR`, `interpreter:PATH`. Raises
    SandboxError if that cannot be found out, for example without `sh` or `sleep`."""
    name = f"agent-fix-question-{secrets.token_hex(8)}"
    try:
        *words, _ = ContainerSpec(name, scope="", key="", image=image, limits=SandboxLimits()).arguments()
        await engine.create(["--rm", *words, str(QUESTION_SECONDS)])
        await engine.start(name)
        output = await engine.run(
            "exec", name, "sh", "-c", _FIND_TOOLS, "sh", *NEEDED, *SYSTEM_TOOLS, action="asking the image"
        )
    finally:
        await discard(engine, name)
    return frozenset(output.split())


def missing_tools(tools: frozenset[str]) -> Sequence[str]:
    """What an image lacks, according to `ask_image`."""
    lacks = [name for name in NEEDED if name not in tools]
    if "/usr/bin/find" in tools and "gnu-find" not in tools:
        lacks.append("GNU find (findutils)")
    versions = [tuple(map(int, word[7:].split("."))) for word in tools if word.startswith("python-")]
    if "python3" in tools and (not versions or versions[0] < MIN_PYTHON):
        lacks.append("a complete Python 3.9 or newer")
    return lacks
