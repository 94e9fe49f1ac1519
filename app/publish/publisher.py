"""The publisher's turn: take one intent, make it so, write the receipt. It may die between any two of these."""

import asyncio
from collections.abc import Awaitable, Callable

from app.errors import AgentFixError
from app.failpoints import failpoint
from app.forge.base import Conversation
from app.publish.effects import carry_out
from app.publish.intent import Place
from app.publish.intents import Claim, Intents

OpenForge = Callable[[Place], Awaitable[Conversation]]


class Publisher:
    """Carries intents out, one at a time. `owner` is unique to the process."""

    def __init__(self, intents: Intents, open_forge: OpenForge, owner: str) -> None:
        self._intents = intents
        self._open_forge = open_forge
        self._owner = owner

    async def publish_next(self) -> Claim | None:
        """Carry out the next intent that is due; None where there is none. A failure is recorded, not raised."""
        claim = await asyncio.to_thread(self._intents.claim, self._owner)
        if claim is None:
            return None
        try:
            forge = await self._open_forge(claim.place)
            receipt = await carry_out(forge, claim.job, claim.intent)
        except AgentFixError as error:
            await asyncio.to_thread(self._intents.failed, claim, error)
            return claim
        failpoint("effect.made")
        await asyncio.to_thread(self._intents.done, claim, receipt)
        failpoint("receipt.written")
        return claim
