"""Builds sandbox providers by name, and finds what their set-ups are planned with."""

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from app.config.settings import Settings, python_interpreter
from app.core.errors import AgentFixError, ExitCode
from app.core.sandbox_names import SANDBOXES
from app.sandbox.base import SandboxProvider
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from app.sandbox.container.indexes import ask_for_containers
from app.sandbox.container.provider import ContainerProvider
from app.sandbox.e2b.indexes import PYTHON, ask_reachable, find_in_template
from app.sandbox.setup.package_hosts import PackageClients, asked_once
from app.sandbox.setup.plan import FindTool, find_tool_for_sandbox
from app.sandbox.setup.toolchains import installed_pythons
from app.sandbox.unsandboxed import UnsandboxedProvider

if TYPE_CHECKING:
    from app.sandbox.e2b.provider import E2BProvider


def make_provider(name: str, settings: Settings, *, e2b_template: str | None = None) -> SandboxProvider:
    """A sandbox provider by its name. There is no fallback from one to another.

    `e2b_template` is the repository's; without one, the operator's.
    """
    root = settings.state / "sandboxes"
    match name:
        case "bubblewrap":
            return BubblewrapProvider(root, caches=settings.state / "caches", environment=settings.environment)
        case "e2b":
            return make_e2b(settings, e2b_template)
        case "docker" | "podman":
            return make_containers(name, settings)
        case "none":
            return UnsandboxedProvider(root)
        case _:
            raise AgentFixError(
                f"There is no sandbox {name!r}.",
                code=ExitCode.SANDBOX,
                hint=f"Sandboxes are: {', '.join(SANDBOXES)}.",
            )


def make_e2b(settings: Settings, template: str | None = None) -> "E2BProvider":
    """Workers with the same database share their sandboxes too."""
    from app.sandbox.e2b.cloud import E2BAccount  # noqa: PLC0415  # its library is slow to import, and rarely used
    from app.sandbox.e2b.provider import E2BProvider  # noqa: PLC0415

    scope = settings.database_url or str(settings.state)
    return E2BProvider(
        E2BAccount.from_environment(settings.environment),
        scope=scope,
        caches=settings.state / "caches",
        template=template or settings.e2b_template,
    )


def make_containers(engine: str, settings: Settings) -> ContainerProvider:
    """For `docker` or `podman`; containers of one installation share its database, or its state directory."""
    return ContainerProvider(
        engine,
        scope=settings.database_url or str(settings.state),
        caches=settings.state / "caches",
        environment=settings.environment,
        image=settings.container_image,
    )


class SetupTools(NamedTuple):
    """What a sandbox has for a set-up: an interpreter, the package clients' indexes, and other tools by name."""

    python: Path
    clients: Callable[[], Awaitable[PackageClients]]
    find_tool: FindTool
    pythons: Mapping[str, str] = MappingProxyType({})
    """Interpreters that a project can be given, by version (`3.8`), oldest first; none where only `python` is there."""

    @property
    def version(self) -> str:
        """Of `python`."""
        found = re.search(r"3\.\d+", self.python.name)
        return found[0] if found else f"{sys.version_info.major}.{sys.version_info.minor}"


async def setup_tools(name: str, settings: Settings) -> SetupTools:
    """Raises SandboxError if a container engine cannot be asked for it."""
    python = python_interpreter()
    if name == "e2b":
        return SetupTools(PYTHON, asked_once(settings.environment, python, ask_reachable), find_in_template)
    if name in {"docker", "podman"}:
        tools = await make_containers(name, settings).tools()
        clients = asked_once(settings.environment, python, ask_for_containers)
        return SetupTools(PYTHON, clients, lambda tool: tool if tool in tools else None)
    found = await asyncio.to_thread(installed_pythons, settings.environment)
    pythons = {version: str(path) for version, path in found.items()}
    return SetupTools(python, asked_once(settings.environment, python), find_tool_for_sandbox, pythons)
