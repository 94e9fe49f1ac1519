"""Forwards another coding agent's call through LiteLLM, from the agent's protocol to any provider."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from app.llm.base import EXTRAS, FIELDS, Body, ModelInfo, StreamEvent, WireProtocol
from app.llm.errors import ModelError, classify, read
from app.llm.litellm import NO_KEY, UNUSUAL_BODIES, LiteLLMModules, ModelTimeouts, load
from app.llm.prices import Price, model_info, price_list
from app.llm.providers import route

LIMIT: Mapping[WireProtocol, str] = {"chat": "max_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}


@dataclass(frozen=True, slots=True)
class LiteLLMRawCall:
    """One model by its LiteLLM name; keys and endpoints come from `environment`, by the names LiteLLM knows."""

    name: str
    environment: Mapping[str, str]
    price: Price | None = None
    timeouts: ModelTimeouts = field(default_factory=ModelTimeouts)

    @property
    def info(self) -> ModelInfo:
        found = route(self.name, self.environment)
        listed = price_list().find(found.name)
        return model_info(found.name, listed.info if listed else None, self.price)

    async def stream(self, protocol: WireProtocol, body: Body, limit: int) -> AsyncGenerator[StreamEvent]:
        library = await asyncio.wrap_future(load())
        try:
            async with asyncio.timeout(self.timeouts.first):
                answer = await self._call(library, protocol, body, limit, stream=True)
            async with aclosing(_events(protocol, answer)) as events:
                while True:
                    async with asyncio.timeout(self.timeouts.between):
                        event = await anext(events, None)
                    if event is None:
                        return
                    yield event
        except TimeoutError as error:
            raise ModelError(f"{self.name} took too long to answer.", kind="retry", reason="timeout") from error
        except (library.openai.OpenAIError, library.httpx.HTTPError, *UNUSUAL_BODIES) as error:
            raise self._fault(error) from error

    async def complete(self, protocol: WireProtocol, body: Body, limit: int) -> dict[str, Any]:
        library = await asyncio.wrap_future(load())
        try:
            async with asyncio.timeout(self.timeouts.first):
                return _plain(await self._call(library, protocol, body, limit, stream=False))
        except TimeoutError as error:
            raise ModelError(f"{self.name} took too long to answer.", kind="retry", reason="timeout") from error
        except (library.openai.OpenAIError, library.httpx.HTTPError, *UNUSUAL_BODIES) as error:
            raise self._fault(error) from error

    async def _call(
        self, library: LiteLLMModules, protocol: WireProtocol, body: Body, limit: int, *, stream: bool
    ) -> Any:
        arguments = arguments_of(protocol, body, limit)
        found = route(self.name, self.environment)
        arguments |= {
            "model": found.name,
            "stream": stream,
            "timeout": library.httpx.Timeout(self.timeouts.first, connect=self.timeouts.connect),
            "max_retries": 0,
            "num_retries": 0,
            "drop_params": True,
        }
        if found.base:
            arguments["api_base"] = found.base
        if found.key or found.base:
            arguments["api_key"] = found.key or NO_KEY
        match protocol:
            case "chat":
                if stream:
                    arguments["stream_options"] = {"include_usage": True}
                return await library.litellm.acompletion(**arguments)
            case "responses":
                # a custom endpoint certainly supports the older protocol, but maybe not the newer one
                return await library.litellm.aresponses(
                    **arguments, store=False, use_chat_completions_api=bool(found.base)
                )
            case "messages":
                return await library.litellm.anthropic_messages(**arguments)

    def _fault(self, error: BaseException) -> ModelError:
        found = route(self.name, self.environment)
        secrets = [self.environment.get(name, "") for name in found.known.keys + found.known.tokens]
        return classify(read(error), name=self.name, where=found.where, secrets=secrets)


def arguments_of(protocol: WireProtocol, body: Body, limit: int) -> dict[str, Any]:
    """LiteLLM's arguments: the protocol's own fields, and a few others as plain fields of the request."""
    given = {name: value for name, value in body.items() if value is not None}
    arguments = {name: value for name, value in given.items() if name in FIELDS[protocol]}
    arguments[LIMIT[protocol]] = limit
    others = {name: value for name, value in given.items() if name in EXTRAS[protocol]}
    if others and protocol != "messages":
        arguments["extra_body"] = others
    if "reasoning_effort" in arguments:
        arguments["allowed_openai_params"] = ["reasoning_effort"]
    return arguments


async def _events(protocol: WireProtocol, answer: Any) -> AsyncGenerator[StreamEvent]:
    if protocol == "messages":
        async for event in _from_frames(answer):
            yield event
        return
    async for part in answer:
        data = _plain(part)
        yield StreamEvent(str(data.get("type", "")) if protocol == "responses" else "", data)


async def _from_frames(answer: Any) -> AsyncGenerator[StreamEvent]:
    """Parse server-sent events from bytes that may be cut anywhere; anything but JSON objects is skipped."""
    rest = b""
    async for piece in answer:
        if isinstance(piece, dict):
            yield StreamEvent(str(piece.get("type", "")), piece)
            continue
        *frames, rest = (rest + piece).replace(b"\r\n", b"\n").split(b"\n\n")
        for frame in frames:
            lines = [line[5:].strip() for line in frame.split(b"\n") if line.startswith(b"data:")]
            data = _object(b"\n".join(lines))
            if data is not None:
                yield StreamEvent(str(data.get("type", "")), data)


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _plain(part: Any) -> dict[str, Any]:
    """Convert LiteLLM's objects and dictionaries to JSON values."""
    if isinstance(part, dict):
        return part
    found: dict[str, Any] = json.loads(part.model_dump_json(exclude_none=True))
    return found
