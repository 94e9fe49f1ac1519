"""How another agent reaches its model: a gateway on a socket in the sandbox, open while the agent works."""

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from app.agent.external.gateway.call_budget import CallBudget
from app.agent.external.gateway.exchange import Exchange
from app.agent.external.gateway.gateway import Gateway
from app.agent.external.gateway.server import serving
from app.agent.external.recipe import AgentRecipe
from app.core.money import MicroUSD
from app.llm.ledger import Ledger
from app.llm.raw_call import RawProxyCall


@dataclass(frozen=True, slots=True)
class ModelSocket:
    """`socket` is the path that the sandbox specification names; it exists only while an agent works.

    `until` is the job's spending at which the agent's share is used; 0 if only the job's limit counts.
    """

    socket: Path
    raw_call: RawProxyCall
    ledger: Ledger
    until: MicroUSD = 0

    def new_token(self) -> str:
        """A new random token, valid for one start of one agent."""
        return f"agent-fix-{secrets.token_urlsafe(24)}"

    @asynccontextmanager
    async def open(
        self, name: str, token: str, recipe: AgentRecipe, turns: int, on_exchange: Callable[[Exchange], None]
    ) -> AsyncIterator[Gateway]:
        """`name` is the start's name, the same if it is repeated."""
        account = CallBudget(self.ledger, self.raw_call.info, name, self.until)
        await account.begin()
        names = frozenset({recipe.model, recipe.model.rpartition("/")[2]})
        gateway = Gateway(
            self.raw_call, account, token, names, recipe.leaves_out, on_exchange=on_exchange, most_calls=turns
        )
        async with serving(gateway, self.socket):
            yield gateway
