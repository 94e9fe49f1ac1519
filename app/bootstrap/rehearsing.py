"""A runner's rehearsal on this machine: its programs installed, a sandbox of its own, and no key anywhere."""

import secrets
from contextlib import closing
from dataclasses import replace

from app.bootstrap.outsider import Outsider
from app.bootstrap.sandboxes import make_provider
from app.errors import AgentFixError
from app.runners.recipe import Recipe
from app.runners.rehearsal.stage import Play, Rehearsed, in_short, rehearse
from app.sandbox.base import Spec
from app.sandbox.hosts import asked_once
from app.settings import Settings, python_interpreter

SANDBOX = "bubblewrap"


async def rehearsed(recipe: Recipe, settings: Settings) -> Rehearsed:
    """Install it as a job would, and see how far it comes; what cannot be installed or opened is a result as well."""
    python, play = python_interpreter(), Play()
    provider = make_provider(SANDBOX, settings)
    with closing(Outsider(recipe, "", settings)) as guest:
        try:
            tools = await guest.tools(python, asked_once(settings.environment, python))
            spec = Spec(f"rehearsal.{recipe.name}.{secrets.token_hex(4)}", play.fill)
            sandbox = await provider.open(replace(spec, tools=tools, way_out=guest.socket))
        except AgentFixError as error:
            return Rehearsed(stopped_at="was installed", reason=in_short(error.message))
        try:
            return await rehearse(recipe, sandbox, guest.socket, play)
        finally:
            await sandbox.destroy()
