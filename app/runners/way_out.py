"""How another agent reaches its model: a gateway that is open while it works, on a socket that its sandbox shows."""

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from app.gateway.account import Account
from app.gateway.exchange import Exchange
from app.gateway.gateway import Gateway
from app.gateway.server import serving
from app.model.base import MicroUSD
from app.model.budget import Ledger
from app.model.passage import Passage
from app.runners.recipe import Recipe


@dataclass(frozen=True, slots=True)
class WayOut:
    """`socket` is what `Spec.way_out` names: nothing is there but while an agent works.

    `until` is the job's money at which the agent's share of it is used; 0 where only the job's cap counts.
    """

    socket: Path
    passage: Passage
    ledger: Ledger
    until: MicroUSD = 0

    def new_token(self) -> str:
        """Good for one start of one agent, and known to nobody else."""
        return f"agent-fix-{secrets.token_urlsafe(24)}"

    @asynccontextmanager
    async def open(
        self, name: str, token: str, recipe: Recipe, turns: int, heard: Callable[[Exchange], None]
    ) -> AsyncIterator[Gateway]:
        """`name` is the start's, the same where it has to be made again."""
        account = Account(self.ledger, self.passage.info, name, self.until)
        await account.begin()
        names = frozenset({recipe.model, recipe.model.rpartition("/")[2]})
        gateway = Gateway(self.passage, account, token, names, recipe.leaves_out, on_exchange=heard, most_calls=turns)
        async with serving(gateway, self.socket):
            yield gateway
