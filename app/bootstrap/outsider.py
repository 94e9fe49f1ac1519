"""Another coding agent's place in a job: its programs, its socket, and the model behind it."""

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from app.errors import AgentFixError, ExitCode
from app.job import Job
from app.model.base import MicroUSD
from app.model.budget import Ledger
from app.model.passing import LiteLLMPassage
from app.model.pricefile import read_prices
from app.model.replay import PREFIX
from app.runners.recipe import Recipe
from app.runners.registry import find_recipe
from app.runners.way_out import WayOut
from app.sandbox.base import Setup
from app.sandbox.clients.base import PackageClients
from app.sandbox.setup import FindTool, find_visible, plan_tools
from app.sandbox.toolchains import newer_pythons
from app.scratch import scratch
from app.settings import Settings

SOCKET = "model.sock"


class Outsider:
    """One for a job that asks `model`; `close` when the job is put down."""

    def __init__(self, recipe: Recipe, model: str, settings: Settings) -> None:
        self.recipe = recipe
        self._model = model
        self._settings = settings
        self._opened = contextlib.ExitStack()
        # short, because the name of a socket has at most 107 bytes, and for nobody else
        self._directory = self._opened.enter_context(scratch("way"))

    @property
    def socket(self) -> Path:
        return self._directory / SOCKET

    def close(self) -> None:
        self._opened.close()

    def way_out(self, ledger: Ledger, until: MicroUSD) -> WayOut:
        """For one attempt, which has its share of the ledger's money."""
        name, settings = self._model, self._settings
        price = read_prices(settings.prices).get(name)
        return WayOut(self.socket, LiteLLMPassage(name, settings.model_environment, price), ledger, until)

    async def tools(
        self, python: Path, clients: Callable[[], Awaitable[PackageClients]], find_tool: FindTool = find_visible
    ) -> Setup:
        """What installs the agent. Raises AgentFixError where the sandbox lacks what it is installed with."""
        if self.recipe.client == "npm":
            programs = {tool: self._tool(tool, find_tool) for tool in ("node", "npm")}
        else:
            programs = {"python": str(await asyncio.to_thread(self._python, python))}
        install = self.recipe.install(programs.get("python", ""))
        return await plan_tools(install, client=self.recipe.client, programs=programs, clients=clients)

    def _tool(self, name: str, find_tool: FindTool) -> str:
        found = find_tool(name)
        if found is None:
            raise self._lacking(name)
        return found

    def _python(self, ours: Path) -> Path:
        """Of a machine elsewhere only a name is known; pip says there whether it is new enough."""
        found = find_python(self.recipe, self._settings, ours) if ours.is_absolute() else ours
        if found is None:
            raise self._lacking(f"Python {self.recipe.least_python} or newer")
        return found

    def _lacking(self, what: str) -> AgentFixError:
        message = f"{self.recipe.title} needs {what}, and this machine has none that a sandbox shows."
        return AgentFixError(message, code=ExitCode.CONFIG, hint="Install it, or choose another runner.")


def find_python(recipe: Recipe, settings: Settings, ours: Path) -> Path | None:
    """An interpreter that is new enough: ours, or else the oldest of the newer ones that a sandbox shows."""
    least = int(recipe.least_python.partition(".")[2])
    if sys.version_info.minor >= least:
        return ours
    newer = newer_pythons(settings.environment)
    return next((newer[minor] for minor in sorted(newer) if minor >= least), None)


def outsider(job: Job, settings: Settings) -> Outsider | None:
    """None where our own runner does the job, as it answers every question: others know no task but a change.

    Raises AgentFixError for what another agent cannot work with.
    """
    recipe = find_recipe(job.runner, settings.runners)
    if recipe is None or job.aim == "ask":
        return None
    if job.sandbox == "none":
        message = f"{recipe.title} executes whatever it likes, so it needs a sandbox."
        raise AgentFixError(message, code=ExitCode.CONFIG, hint="Leave out --sandbox none, or take the native runner.")
    if job.sandbox == "srt":
        message = f"{recipe.title} cannot work behind srt: it has no way to the model from there."
        raise AgentFixError(message, code=ExitCode.CONFIG, hint="Take --sandbox docker, or the native runner.")
    if job.model.startswith(PREFIX):
        message = f"{recipe.title} asks a model of its own accord, and {job.model} is a recording."
        raise AgentFixError(message, code=ExitCode.CONFIG, hint="Take the native runner, or a real model.")
    return Outsider(recipe, job.model, settings)
