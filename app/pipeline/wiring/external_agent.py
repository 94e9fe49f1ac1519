"""Sets up another coding agent for a job: its programs, its socket, and the model behind it."""

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from app.agent.external.gateway import ModelSocket
from app.agent.external.recipe import AgentRecipe, find_recipe
from app.config.settings import Settings
from app.core.errors import AgentFixError, ExitCode
from app.core.job import Job
from app.core.model_usage import MicroUSD
from app.core.scratch import scratch
from app.llm.ledger import Ledger
from app.llm.litellm import LiteLLMRawCall
from app.llm.prices import read_prices
from app.llm.providers import operator_price
from app.llm.replay import PREFIX
from app.sandbox.base import SetupPlan
from app.sandbox.bubblewrap.toolchains import installed_pythons, newer_pythons
from app.sandbox.setup.package_clients import PackageClients, locate
from app.sandbox.setup.plan import FindTool, find_tool_for_sandbox, plan_tools

SOCKET = "model.sock"
MIRROR = "UV_PYTHON_INSTALL_MIRROR"
DOWNLOADS = (
    "https://releases.astral.sh",
    "https://github.com",
    "https://release-assets.githubusercontent.com",
    "https://objects.githubusercontent.com",
)
"""Where uv gets interpreters from."""


class ExternalAgent:
    """For one job with `model`; `close` it when the job stops."""

    def __init__(self, recipe: AgentRecipe, model: str, settings: Settings) -> None:
        self.recipe = recipe
        self._model = model
        self._settings = settings
        self._opened = contextlib.ExitStack()
        # short, because a socket's path has at most 107 bytes, and readable by nobody else
        self._directory = self._opened.enter_context(scratch("socket"))

    @property
    def socket(self) -> Path:
        return self._directory / SOCKET

    def close(self) -> None:
        self._opened.close()

    def model_socket(self, ledger: Ledger, until: MicroUSD) -> ModelSocket:
        """For one attempt, with its share of the ledger's money."""
        name, environment = self._model, self._settings.model_environment
        price = operator_price(name, environment, read_prices(self._settings.prices))
        return ModelSocket(self.socket, LiteLLMRawCall(name, environment, price), ledger, until)

    async def tools(
        self,
        python: Path,
        clients: Callable[[], Awaitable[PackageClients]],
        find_tool: FindTool = find_tool_for_sandbox,
    ) -> SetupPlan:
        """The set-up that installs the agent. Raises AgentFixError if the sandbox lacks what that needs."""
        more = None
        if self.recipe.client == "npm":
            programs = {tool: self._tool(tool, find_tool) for tool in ("node", "npm")}
        else:
            programs = {"python": str(await asyncio.to_thread(self._python, python))}
            if self.recipe.needs_newer_python:
                more = python_downloads(self._settings.environment)
        install = self.recipe.install(programs.get("python", ""))
        return await plan_tools(install, client=self.recipe.client, programs=programs, clients=clients, more=more)

    def _tool(self, name: str, find_tool: FindTool) -> str:
        found = find_tool(name)
        if found is None:
            raise self._lacking(name)
        return found

    def _python(self, ours: Path) -> Path:
        """On another machine only the name is known; the installation checks the version there."""
        found = find_python(self.recipe, self._settings, ours) if ours.is_absolute() else ours
        if found is None and python_downloads(self._settings.environment) is not None:
            return ours  # uv is installed with it, and downloads a newer one
        if found is None:
            raise self._lacking(f"Python {self.recipe.least_python} or newer")
        return found

    def _lacking(self, what: str) -> AgentFixError:
        message = f"{self.recipe.title} needs {what}, which no sandbox on this machine has."
        return AgentFixError(message, code=ExitCode.CONFIG, hint="Install it, or choose another runner.")


def find_python(recipe: AgentRecipe, settings: Settings, ours: Path) -> Path | None:
    """An interpreter that is new enough: ours, or the oldest suitable one that a sandbox has."""
    least = int(recipe.least_python.partition(".")[2])
    if sys.version_info.minor >= least:
        return ours
    installed = {int(version[2:]): path for version, path in installed_pythons(settings.environment).items()}
    newer = installed | newer_pythons(settings.environment)
    return next((newer[minor] for minor in sorted(newer) if minor >= least), None)


def python_downloads(environment: Mapping[str, str]) -> PackageClients | None:
    """What uv needs to download an interpreter; None if this machine's settings forbid that."""
    if environment.get("UV_PYTHON_DOWNLOADS", "").lower() in {"never", "false"}:
        return None
    mirror = environment.get(MIRROR, "")
    origin = locate(mirror).origin if mirror else ""
    return PackageClients((origin,), ((MIRROR, mirror),)) if origin else PackageClients(DOWNLOADS)


def external_agent(job: Job, settings: Settings) -> ExternalAgent | None:
    """None if our own runner does the job, as it does for every question: other agents can only make changes.

    Raises AgentFixError if another agent cannot work with these settings.
    """
    recipe = find_recipe(job.runner, settings.runners)
    if recipe is None or job.aim != "fix":
        return None
    if job.sandbox == "none":
        message = f"{recipe.title} runs any command, so it needs a sandbox."
        raise AgentFixError(message, code=ExitCode.CONFIG, hint="Remove --sandbox none, or use the native runner.")
    if job.model.startswith(PREFIX):
        message = f"{recipe.title} calls its model directly, and {job.model} is a recording."
        raise AgentFixError(message, code=ExitCode.CONFIG, hint="Use the native runner, or a real model.")
    return ExternalAgent(recipe, job.model, settings)
