"""Finds out which kinds of sandbox work here, by opening an empty one of each."""

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from app.config.settings import Settings
from app.core.errors import AgentFixError
from app.core.sandbox_names import SANDBOXES
from app.pipeline.wiring.sandboxes import make_provider
from app.sandbox.base import SandboxProvider, SandboxSpec

SECONDS = 60.0
"""Seconds an engine has to answer."""
PAID = {"e2b": ("E2B_API_KEY", "a key is set; test it with agent-fix doctor --sandbox e2b")}
"""Paid kinds that are not opened for this check: the variable they need, and the text if it is set."""


@dataclass(frozen=True, slots=True)
class SandboxAvailability:
    """`detail` says what it is, or why it cannot be used here; `repair` what to do about it."""

    name: str
    usable: bool
    detail: str
    repair: str = ""

    def as_json(self) -> dict[str, object]:
        return {"name": self.name, "usable": self.usable, "detail": self.detail, "repair": self.repair}


async def sandbox_availability(settings: Settings) -> list[SandboxAvailability]:
    """One for each kind, in the usual order."""
    return await asyncio.gather(*(_usability(name, settings) for name in SANDBOXES))


async def _usability(name: str, settings: Settings) -> SandboxAvailability:
    if name in PAID:
        return paid(name, settings.environment)
    try:
        async with asyncio.timeout(SECONDS):
            return await try_provider(make_provider(name, settings))
    except AgentFixError as error:
        return SandboxAvailability(name, usable=False, detail=error.message, repair=error.hint)
    except TimeoutError:
        return SandboxAvailability(name, usable=False, detail=f"no answer for {SECONDS:.0f} seconds")


async def try_provider(provider: SandboxProvider) -> SandboxAvailability:
    """Whether a sandbox opens; if not, the first failing check has the repair."""
    words = SANDBOXES[provider.name]
    try:
        sandbox = await provider.open(SandboxSpec(f"usable-{secrets.token_hex(6)}", fill=lambda _: None))
        await sandbox.destroy()
    except AgentFixError as error:
        failed = next((check for check in await provider.check() if not check.ok), None)
        if failed is None:
            return SandboxAvailability(provider.name, usable=False, detail=error.message, repair=error.hint)
        return SandboxAvailability(provider.name, usable=False, detail=failed.detail, repair=failed.repair)
    return SandboxAvailability(provider.name, usable=True, detail=words)


def paid(name: str, environment: Mapping[str, str]) -> SandboxAvailability:
    variable, detail = PAID[name]
    if find_spec(name) is None:
        return SandboxAvailability(
            name, usable=False, detail="not installed", repair=f"pip install 'agent-fix[{name}]'"
        )
    if environment.get(variable):
        return SandboxAvailability(name, usable=True, detail=detail)
    return SandboxAvailability(name, usable=False, detail=f"{variable} is not set", repair=f"Set {variable}.")
