"""Builds sandbox providers by name, and finds what their set-ups are planned with."""

import asyncio
import logging
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from app.config.settings import Settings, python_interpreter
from app.core.errors import AgentFixError, ExitCode, SandboxError
from app.core.sandbox_names import SANDBOXES
from app.core.scratch import sweep_scratch
from app.jobs.store import JobRow, JobStore
from app.sandbox.base import DoctorCheck, SandboxProvider, SandboxSpec
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from app.sandbox.bubblewrap.toolchains import installed_nodes, installed_pythons
from app.sandbox.container.provider import ContainerProvider
from app.sandbox.host_directories import remove_tree
from app.sandbox.setup.package_clients import (
    PYTHON,
    PackageClients,
    ask,
    ask_for_containers,
    ask_reachable,
    asked_once,
    find_in_template,
)
from app.sandbox.setup.plan import FindTool, find_tool_for_sandbox
from app.sandbox.trials import TRIAL, is_over, trial_key
from app.sandbox.unsandboxed import UnsandboxedProvider

if TYPE_CHECKING:
    from app.sandbox.e2b.provider import E2BProvider

logger = logging.getLogger(__name__)


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
    """Interpreters that a project can be given, by version (`3.8`), oldest first; none if there is only `python`."""
    node: str = ""
    """The version of the sandbox's Node; empty if it is not known."""
    nodes: Mapping[str, str] = MappingProxyType({})
    """Other Nodes of this machine, by major version (`22`)."""

    @property
    def version(self) -> str:
        """The version of `python`, such as `3.12`."""
        found = re.search(r"3\.\d+", self.python.name)
        return found[0] if found else f"{sys.version_info.major}.{sys.version_info.minor}"


async def setup_tools(name: str, settings: Settings) -> SetupTools:
    """The tools for set-ups in sandboxes of this kind. Raises SandboxError if a container engine does not answer."""
    python = python_interpreter()
    if name == "e2b":
        return SetupTools(PYTHON, asked_once(settings.environment, python, ask_reachable), find_in_template)
    if name in {"docker", "podman"}:
        tools = await make_containers(name, settings).tools()
        clients = asked_once(settings.environment, python, ask_for_containers)
        return SetupTools(PYTHON, clients, lambda tool: tool if tool in tools else None)
    found = await asyncio.to_thread(installed_pythons, settings.environment)
    pythons = {version: str(path) for version, path in found.items()}
    nodes = {
        major: str(path) for major, path in (await asyncio.to_thread(installed_nodes, settings.environment)).items()
    }
    node = await ask(["node", "--version"], settings.environment) or ""
    return SetupTools(
        python, asked_once(settings.environment, python), find_tool_for_sandbox, pythons, node.strip(), nodes
    )


SECONDS = 60.0
"""How long a container engine may take to answer."""
PAID = {"e2b": ("E2B_API_KEY", "a key is set; test it with agent-fix doctor --sandbox e2b")}
"""Paid kinds that are not opened for this check: the variable they need, and the text if it is set."""


async def sandbox_availability(settings: Settings) -> list[DoctorCheck]:
    """One for each kind, in the usual order."""
    return await asyncio.gather(*(sandbox_usability(name, settings) for name in SANDBOXES))


async def sandbox_usability(name: str, settings: Settings) -> DoctorCheck:
    """Whether a sandbox of this kind opens; a paid kind is not opened."""
    if name in PAID:
        return cloud_sandbox_availability(name, settings.environment)
    try:
        async with asyncio.timeout(SECONDS):
            return await try_provider(make_provider(name, settings))
    except AgentFixError as error:
        return DoctorCheck(name, ok=False, detail=error.message, repair=error.hint)
    except TimeoutError:
        return DoctorCheck(name, ok=False, detail=f"no answer for {SECONDS:.0f} seconds")


async def try_provider(provider: SandboxProvider) -> DoctorCheck:
    """Whether a sandbox opens; if not, the first failing check has the repair."""
    words = SANDBOXES[provider.name]
    try:
        sandbox = await provider.open(SandboxSpec(trial_key(), fill=lambda _: None))
        await sandbox.destroy()
    except AgentFixError as error:
        failed = next((check for check in await provider.check() if not check.ok), None)
        if failed is None:
            return DoctorCheck(provider.name, ok=False, detail=error.message, repair=error.hint)
        return DoctorCheck(provider.name, ok=False, detail=failed.detail, repair=failed.repair)
    return DoctorCheck(provider.name, ok=True, detail=words)


def cloud_sandbox_availability(name: str, environment: Mapping[str, str]) -> DoctorCheck:
    variable, detail = PAID[name]
    if find_spec(name) is None:
        return DoctorCheck(name, ok=False, detail="not installed", repair=f"In a checkout: pip install '.[{name}]'")
    if environment.get(variable):
        return DoctorCheck(name, ok=True, detail=detail)
    return DoctorCheck(name, ok=False, detail=f"{variable} is not set", repair=f"Set {variable}.")


def has_no_owner(row: JobRow) -> bool:
    """True if no process works on the job, not even one of ours."""
    return row.live_owner is None


def sweep_everywhere(settings: Settings, store: JobStore, may_remove: Callable[[JobRow], bool] = has_no_owner) -> int:
    """Remove dead scratch directories, the sandboxes of ended jobs that `may_remove`, and those of trials that are
    over; returns the number of sandboxes: on this machine, in containers and in the cloud. Blocking; not for a thread
    with an event loop."""

    def ended(key: str) -> bool:
        if key.startswith(TRIAL):
            return is_over(key)
        row = store.get(key.partition(".")[0])
        return row is not None and row.final and may_remove(row)

    sweep_scratch()
    swept = _sweep_directories(settings, ended)
    for kind in ("e2b", "docker", "podman"):
        if settings.sandbox != kind and not (settings.state / "caches" / kind).exists():
            continue  # this installation has never used it
        provider = make_e2b(settings) if kind == "e2b" else make_containers(kind, settings)
        try:
            swept += asyncio.run(provider.sweep(ended))
        except SandboxError as error:  # the next sweep tries again
            logger.warning("sandboxes of %s cannot be listed: %s", kind, error.message)
    return swept


def sweep_trials(settings: Settings) -> int:
    """Remove what trials that are over left on this machine; returns the number of sandboxes. Blocking."""
    return _sweep_directories(settings, lambda key: key.startswith(TRIAL) and is_over(key))


def _sweep_directories(settings: Settings, ended: Callable[[str], bool]) -> int:
    swept = 0
    for directory in (settings.state / "sandboxes").glob("*"):
        if directory.name.startswith(".gone-") or ended(directory.name):
            try:
                remove_tree(directory)
            except (OSError, SandboxError) as error:  # the next sweep tries again
                logger.warning("the sandbox %s cannot be removed: %s", directory.name, error)
                continue
            swept += 1
    return swept
