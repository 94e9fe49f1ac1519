"""Runs an agent's self-test on this machine: its programs installed, its own sandbox, and no key."""

import secrets
from contextlib import closing
from dataclasses import replace

from app.agent.external.recipe import AgentRecipe
from app.agent.external.selftest.selftest import SelftestResult, SelftestScript, run_selftest, shortened
from app.config.settings import Settings, python_interpreter
from app.core.errors import AgentFixError
from app.pipeline.wiring.external_agent import ExternalAgent
from app.pipeline.wiring.sandboxes import make_provider
from app.sandbox.base import SandboxSpec
from app.sandbox.setup.package_hosts import asked_once

SANDBOX = "bubblewrap"


async def selftest_runner(recipe: AgentRecipe, settings: Settings) -> SelftestResult:
    """Install the agent as a job would, and run the test; a failed installation or sandbox is a result too."""
    python, script = python_interpreter(), SelftestScript()
    provider = make_provider(SANDBOX, settings)
    with closing(ExternalAgent(recipe, "", settings)) as external:
        try:
            tools = await external.tools(python, asked_once(settings.environment, python))
            spec = SandboxSpec(f"rehearsal.{recipe.name}.{secrets.token_hex(4)}", script.fill)
            sandbox = await provider.open(replace(spec, tools=tools, model_socket=external.socket))
        except AgentFixError as error:
            return SelftestResult(stopped_at="was installed", reason=shortened(error.message))
        try:
            return await run_selftest(recipe, sandbox, external.socket, script)
        finally:
            await sandbox.destroy()
