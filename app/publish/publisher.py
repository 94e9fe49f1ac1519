"""The publisher's turn: take one intent, ask whether it may be, make it so, write the receipt. It may die between."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from app.errors import AgentFixError
from app.failpoints import failpoint
from app.forge.base import Conversation
from app.publish.effects import carry_out
from app.publish.intent import Intent, Place
from app.publish.intents import Claim, Intents

F = TypeVar("F", bound=Conversation)
OpenForge = Callable[[Place], Awaitable[F]]
Grant = Callable[[Claim, F], Awaitable[Intent]]
"""The intent as it may be carried out; raises what speaks against it (`app.publish.granting`)."""


class Publisher(Generic[F]):
    """Carries intents out, side by side for several installations, one at a time for each.

    `owner` is unique to the process.
    """

    def __init__(self, intents: Intents, open_forge: OpenForge[F], grant: Grant[F], owner: str) -> None:
        self._intents = intents
        self._open_forge = open_forge
        self._grant = grant
        self._owner = owner
        self._busy: set[int] = set()
        self._claiming = asyncio.Lock()

    async def publish_next(self) -> Claim | None:
        """Carry out the next intent that is due; None where there is none. A failure is recorded, not raised.

        Said several times at once, each takes the intent of another installation.
        """
        async with self._claiming:
            claim = await asyncio.to_thread(self._intents.claim, self._owner, frozenset(self._busy))
            if claim is None:
                return None
            self._busy.add(claim.place.installation)
        try:
            await self._carry_out(claim)
        finally:
            self._busy.discard(claim.place.installation)
        return claim

    async def _carry_out(self, claim: Claim) -> None:
        try:
            forge = await self._open_forge(claim.place)
            receipt = await carry_out(forge, claim.job, await self._grant(claim, forge))
        except AgentFixError as error:
            await asyncio.to_thread(self._intents.failed, claim, error)
            return
        failpoint("effect.made")
        await asyncio.to_thread(self._intents.done, claim, receipt)
        failpoint("receipt.written")
