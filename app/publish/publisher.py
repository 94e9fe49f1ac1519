"""The publisher's loop: claim an effect, check it, carry it out, record the receipt. It may crash at any point."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from app.core.errors import AgentFixError
from app.core.failpoints import failpoint
from app.core.task import IssueRef
from app.github.base import ForgeEffects
from app.github.errors import WorkflowsMoved
from app.publish.carry_out import carry_out, from_newest_base
from app.publish.effects import Effect, Receipt, SendNotification
from app.publish.notifications import Notifier
from app.publish.outbox import EffectClaim, Outbox

F = TypeVar("F", bound=ForgeEffects)
OpenForge = Callable[[IssueRef], Awaitable[F]]
Grant = Callable[[EffectClaim, F], Awaitable[Effect]]
"""The effect as it may be carried out. Raises if it may not (`app.publish.policy`)."""


class Publisher(Generic[F]):
    """Carries out effects, in parallel for several installations, one at a time for each.

    `owner` is unique to the process.
    """

    def __init__(
        self, outbox: Outbox, open_forge: OpenForge[F], grant: Grant[F], owner: str, notifier: Notifier | None = None
    ) -> None:
        self._outbox = outbox
        self._open_forge = open_forge
        self._grant = grant
        self._owner = owner
        self._notifier = notifier
        self._busy: set[int] = set()
        self._claiming = asyncio.Lock()

    async def publish_next(self) -> EffectClaim | None:
        """Carry out the next due effect; None if there is none. Failures are recorded, not raised.

        Concurrent calls take effects of different installations.
        """
        async with self._claiming:
            claim = await asyncio.to_thread(self._outbox.claim, self._owner, frozenset(self._busy))
            if claim is None:
                return None
            self._busy.add(claim.issue_ref.installation)
        try:
            await self._carry_out(claim)
        finally:
            self._busy.discard(claim.issue_ref.installation)
        return claim

    async def _carry_out(self, claim: EffectClaim) -> None:
        try:
            if isinstance(claim.effect, SendNotification):
                receipt = await self._notify(claim, claim.effect)
            else:
                forge = await self._open_forge(claim.issue_ref)
                receipt = await self._try_to_carry_out(claim, forge, await self._grant(claim, forge))
        except AgentFixError as error:
            await asyncio.to_thread(self._outbox.failed, claim, error)
            return
        if receipt is None:
            return
        failpoint("effect.made")
        await asyncio.to_thread(self._outbox.done, claim, receipt)
        failpoint("receipt.written")

    async def _notify(self, claim: EffectClaim, effect: SendNotification) -> Receipt | None:
        if self._notifier is None:
            raise AgentFixError("Notifications have been turned off.")
        return await self._notifier.deliver(claim.job, claim.key, effect)

    async def _try_to_carry_out(self, claim: EffectClaim, forge: F, granted: Effect) -> Receipt | None:
        """None if the effect was changed in the outbox instead, and is due again at once."""
        try:
            return await carry_out(forge, claim.job, granted)
        except WorkflowsMoved:
            other = await from_newest_base(forge, claim.effect, granted)
            if other is None:
                raise
            await asyncio.to_thread(self._outbox.amend, claim, other)
            failpoint("effect.amended")
            return None
