"""Converts texts to vectors with an embedding model from LiteLLM, paid from the job's budget."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.core.money import MicroUSD
from app.llm.base import Usage
from app.llm.error_classification import classify, read
from app.llm.errors import ModelError
from app.llm.ledger import Ledger
from app.llm.litellm import NO_KEY, UNUSUAL_BODIES, load
from app.llm.prices import dollars
from app.llm.providers import check_environment, route

SECONDS: Final = 30.0
"""A job waits no longer for it: it can do without."""
CALL: Final = "lessons.embedding"
_BYTES_PER_TOKEN = 3


class Embedding:
    """One model by its LiteLLM name; keys and endpoints by the names LiteLLM knows. Raises only ModelError."""

    def __init__(self, name: str, *, environment: Mapping[str, str], ledger: Ledger) -> None:
        self._route = route(name, environment)
        self._environment = environment
        self._ledger = ledger

    async def __call__(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """A vector for each text, in one request. Raises BudgetError if the job's money does not suffice."""
        check_environment(self._route, self._environment)
        library = await asyncio.wrap_future(load())
        tokens = sum(len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN + 1 for text in texts)
        worst = self._price(library.litellm, tokens)
        if_lost = Usage(prompt_tokens=tokens, cost=worst, estimated=True)
        await asyncio.to_thread(self._ledger.reserve, CALL, worst, if_lost=if_lost)
        try:
            async with asyncio.timeout(SECONDS):
                answer = await library.litellm.aembedding(input=list(texts), **self._arguments())
            vectors = [
                list(map(float, each["embedding"])) for each in sorted(answer.data, key=lambda each: each["index"])
            ]
        except (TimeoutError, library.openai.OpenAIError, library.httpx.HTTPError, *UNUSUAL_BODIES) as error:
            await asyncio.to_thread(self._ledger.book, CALL, Usage())
            raise self._failed(error) from error
        used = getattr(answer.usage, "prompt_tokens", 0) or tokens
        usage = Usage(prompt_tokens=used, cost=self._price(library.litellm, used))
        await asyncio.to_thread(self._ledger.book, CALL, usage)
        if len(vectors) != len(texts):
            raise ModelError(
                f"{self._route.name} returned {len(vectors)} vectors for {len(texts)} texts.",
                kind="give_up",
                reason="bad_response",
            )
        return vectors

    def _arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {"model": self._route.name, "timeout": SECONDS, "max_retries": 0}
        if self._route.base:
            arguments["api_base"] = self._route.base
        if self._route.key or self._route.base:
            arguments["api_key"] = self._route.key or NO_KEY
        return arguments

    def _price(self, litellm: Any, tokens: int) -> MicroUSD:
        """The price from LiteLLM's list; 0 for a model that is not in it."""
        try:
            cost = litellm.cost_per_token(model=self._route.name, prompt_tokens=tokens, call_type="aembedding")
        except (litellm.exceptions.ModelNotMappedError, *UNUSUAL_BODIES):
            return 0
        return dollars(sum(cost))

    def _failed(self, error: BaseException) -> ModelError:
        known = self._route.known
        secrets = [self._environment.get(name, "") for name in known.keys + known.tokens]
        return classify(read(error), name=self._route.name, where=self._route.where, secrets=secrets)
