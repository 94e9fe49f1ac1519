"""Set-ups as they are planned from the manifests of a commit, with the same tools and clients on every machine."""

import json
from collections.abc import Sequence
from pathlib import Path

from app.sandbox.base import SetupPlan
from app.sandbox.setup.ecosystems.base import SetupChoice
from app.sandbox.setup.package_clients import PackageClients
from app.sandbox.setup.plan import DETECTED, plan_setup
from tests.support.memory_tree import MemoryTree

PYTHON = Path("/usr/bin/python3")
TOOLS = {"node": "/bin/true", "npm": "/bin/true", "mvn": "/bin/true", "cargo": "/bin/true", "go": "/bin/true"}
UV = "/tmp/uv/bin/uv pip install --python /env/bin/python "
GET_UV = "/env/bin/python -I -m pip install --quiet --target /tmp/uv uv || echo 'uv cannot be had here: pip is used'"
PIP = "/env/bin/python -I -m pip install --use-pep517 "
BUILD = '[build-system]\nrequires = ["x"]\nbuild-backend = "x"\n[project]\nname = "a"\n'
PACKAGE = json.dumps({"name": "a", "devDependencies": {"b": "1"}})


class Clients:
    """Package clients that say the same each time, and count how often they are asked."""

    def __init__(self, said: PackageClients | None = None) -> None:
        self.said = said or PackageClients(
            hosts=("https://index.test",), environment=(("PIP_INDEX_URL", "https://index.test/"),)
        )
        self.asked = 0

    async def __call__(self) -> PackageClients:
        self.asked += 1
        return self.said


async def plan(
    files: dict[str, str],
    *,
    commands: Sequence[str] | None = None,
    hosts: Sequence[str] = (),
    clients: Clients | None = None,
    tools: dict[str, str] = TOOLS,
    scope: str = "",
    submodules: dict[str, str] | None = None,
    choice: SetupChoice = DETECTED,
) -> SetupPlan:
    tree = MemoryTree({path: text.encode() for path, text in files.items()}, submodules=submodules or {})
    return await plan_setup(
        tree,
        commands=commands,
        extra_hosts=hosts,
        clients=clients or Clients(),
        python=PYTHON,
        scope=scope,
        find_tool=tools.get,
        choice=choice,
    )


def install_of(commands: Sequence[str]) -> str:
    return next(command for command in commands if command.startswith(UV))
