"""Which kinds of sandbox could be used here, each found out by opening one that holds nothing."""

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from app.bootstrap.sandboxes import make_provider
from app.errors import AgentFixError
from app.sandbox.base import SandboxProvider, Spec
from app.sandbox.names import SANDBOXES
from app.settings import Settings

SECONDS = 60.0
"""What an engine may take to answer before it is said that it does not."""
PAID = {"e2b": ("E2B_API_KEY", "a key is set; agent-fix doctor --sandbox e2b makes a machine and tries it")}
"""Kinds that nobody wants to be opened unasked: the variable that they need, and what is said where it is there."""


@dataclass(frozen=True, slots=True)
class Usability:
    """`detail` says what it is, or why it is not usable here; `repair` what to do about that."""

    name: str
    usable: bool
    detail: str
    repair: str = ""

    def as_json(self) -> dict[str, object]:
        return {"name": self.name, "usable": self.usable, "detail": self.detail, "repair": self.repair}


async def usabilities(settings: Settings) -> list[Usability]:
    """One for each kind, in the order in which they are named everywhere."""
    return await asyncio.gather(*(_usability(name, settings) for name in SANDBOXES))


async def _usability(name: str, settings: Settings) -> Usability:
    if name in PAID:
        return paid(name, settings.environment)
    try:
        async with asyncio.timeout(SECONDS):
            return await tried(make_provider(name, settings))
    except AgentFixError as error:
        return Usability(name, usable=False, detail=error.message, repair=error.hint)
    except TimeoutError:
        return Usability(name, usable=False, detail=f"nothing was said for {SECONDS:.0f} seconds")


async def tried(provider: SandboxProvider) -> Usability:
    """Whether one opens; where it does not, the check that fails first knows the repair."""
    words = SANDBOXES[provider.name]
    try:
        sandbox = await provider.open(Spec(f"usable-{secrets.token_hex(6)}", fill=lambda _: None))
        await sandbox.destroy()
    except AgentFixError as error:
        failed = next((check for check in await provider.check() if not check.ok), None)
        if failed is None:
            return Usability(provider.name, usable=False, detail=error.message, repair=error.hint)
        return Usability(provider.name, usable=False, detail=failed.detail, repair=failed.repair)
    return Usability(provider.name, usable=True, detail=words)


def paid(name: str, environment: Mapping[str, str]) -> Usability:
    variable, said = PAID[name]
    if environment.get(variable):
        return Usability(name, usable=True, detail=said)
    return Usability(name, usable=False, detail=f"{variable} is not set", repair=f"Set {variable}.")
