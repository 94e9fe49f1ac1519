"""Calls models through LiteLLM, for our own requests and for those of another coding agent.

LiteLLM is imported late and in the background.
"""

import asyncio
import base64
import gc
import json
import logging
import os
import sys
import threading
import urllib.request
import warnings
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from http.client import HTTPException
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit

from app.core.model_usage import DOLLAR, Reasoning
from app.core.tracing import span
from app.llm.base import (
    FIELDS,
    Body,
    Message,
    ModelAnswer,
    ModelInfo,
    ModelRequest,
    OnText,
    StreamEvent,
    Usage,
    WireProtocol,
)
from app.llm.chat_format import ChatDialect, StreamAssembly, may_think, request_body, usage_of
from app.llm.errors import ModelError, classify, read
from app.llm.prices import Price, cost_of, dollars
from app.llm.providers import (
    OLLAMA,
    PROVIDERS,
    Route,
    check_environment,
    check_name,
    model_properties,
    route,
    unknown_provider,
)
from app.llm.tokens import count_text, count_tokens

T = TypeVar("T")


def background(work: Callable[[], T], name: str) -> Future[T]:
    """Start `work` now. Unlike the threads of `asyncio.to_thread`, this one is not joined when the loop ends.

    An error in `work` is printed with its traceback, and is a RuntimeError to those who wait for the result.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # a waiter that gives up must not cancel it for the others

    def finish() -> None:
        try:
            future.set_result(work())
        finally:
            if not future.done():
                failure = RuntimeError(f"{name} failed")
                failure.__cause__ = sys.exc_info()[1]  # the process may end before this thread prints
                future.set_exception(failure)

    threading.Thread(target=finish, name=name, daemon=True).start()
    return future


class LiteLLMModules(NamedTuple):
    """LiteLLM and the exception types of its HTTP clients."""

    litellm: Any
    openai: Any
    httpx: Any


@cache
def load() -> Future[LiteLLMModules]:
    """The import of the library, started by the first caller."""
    return background(_import_modules, "import-litellm")


def _import_modules() -> LiteLLMModules:
    """Import LiteLLM without a price list from the network, downloads, a stray .env or log output."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    os.environ["LITELLM_MODE"] = "PRODUCTION"
    os.environ["MAX_IMAGE_URL_DOWNLOAD_SIZE_MB"] = "0"  # LiteLLM fetches no URL of a message
    gc.disable()  # an import creates no garbage, and looking for it takes a quarter of the time
    try:
        import httpx  # noqa: PLC0415
        import litellm as module  # noqa: PLC0415 (takes seconds, and two hundred megabytes)
        import openai  # noqa: PLC0415
    finally:
        gc.freeze()
        gc.enable()

    bound_decoders(httpx._decoders.SUPPORTED_DECODERS)
    for noise in ("Pydantic serializer warnings", "Item '.*' on TypedDict class"):  # of its own types
        warnings.filterwarnings("ignore", noise, UserWarning)
    litellm: Any = module
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.disable_aiohttp_transport = True
    litellm.use_chat_completions_url_for_anthropic_messages = True
    for callbacks in (litellm.callbacks, litellm.success_callback, litellm.failure_callback, litellm.input_callback):
        callbacks.clear()
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return LiteLLMModules(litellm, openai, httpx)


MAX_UNPACKED = 128 * 1024**2
"""Bytes to which one compressed answer may unpack: an endpoint may send a few megabytes that unpack to gigabytes."""


def bound_decoders(decoders: dict[str, Any]) -> None:
    """Replace the decoders of httpx, which has no limit of its own, by ones that stop at MAX_UNPACKED."""
    from httpx import DecodingError  # noqa: PLC0415  # as above

    def bounded(decoder: Any) -> Any:
        class Bounded(decoder):  # type: ignore[misc]  # a class of httpx by its name
            unpacked = 0

            def decode(self, data: bytes) -> bytes:
                content: bytes = super().decode(data)
                self.unpacked += len(content)
                if self.unpacked > MAX_UNPACKED:
                    raise DecodingError(f"The answer unpacks to more than {MAX_UNPACKED // 1024**2} MiB.")
                return content

        return Bounded

    for name in decoders.keys() - {"identity"}:
        decoders[name] = bounded(decoders[name])


PROBE_SECONDS = 5.0


def probe(url: str, headers: Mapping[str, str]) -> Literal["there", "bad_key", "unreachable"]:
    """One GET to an endpoint's list of models. Anything but a refused key or no answer counts as `there`, because not
    every endpoint has a list."""
    if urlsplit(url).scheme not in ("http", "https"):
        return "unreachable"
    request = urllib.request.Request(  # noqa: S310 (the scheme was looked at)
        f"{url.rstrip('/')}/models", headers={"user-agent": "agent-fix", **headers}
    )
    try:
        with urllib.request.urlopen(request, timeout=PROBE_SECONDS):  # noqa: S310
            return "there"
    except HTTPError as error:
        error.close()
        return "bad_key" if error.code == 401 else "there"
    except (OSError, ValueError, HTTPException):
        return "unreachable"


async def preflight(route: Route, environment: Mapping[str, str], *, any_name: bool = False) -> None:
    """Raise `give_up` if the model cannot work; `any_name` if the user states the price of an unlisted model.

    A provider that cannot be checked from here (offline, behind a proxy) is accepted; a custom endpoint that does not
    answer is not.
    """
    check_environment(route, environment)
    if not any_name:
        check_name(route)
    base = route.base or route.known.home
    if not base or route.provider.startswith("azure"):
        return
    headers: dict[str, str] = {}
    if route.key and route.provider == "anthropic":
        headers = {"x-api-key": route.key, "anthropic-version": "2023-06-01"}
    elif route.key:
        headers = {"authorization": f"Bearer {route.key}"}
    base, password = _without_password(base)
    headers |= password
    finding = await asyncio.wrap_future(background(lambda: probe(base, headers), "probe-endpoint"))
    local = bool(route.base) or not route.known.keys
    if finding == "unreachable" and local:
        raise ModelError(
            f"Nothing answers for {route.name} at {base}.",
            kind="give_up",
            reason="unreachable",
            hint=f"Start it, or correct {' or '.join(route.known.bases)}.",
        )
    if finding == "bad_key" and not (route.known.tokens and not route.key):
        keys = " or ".join(route.known.keys) or "its key"
        raise ModelError(
            f"The endpoint of {route.name} rejects the API key.",
            kind="give_up",
            reason="bad_key" if route.key else "no_key",
            hint=f"Check {keys} in the environment." if route.key else f"Set {keys} in the environment.",
        )


def _without_password(url: str) -> tuple[str, dict[str, str]]:
    """A URL without its user name and password, and the header that they become."""
    userinfo, at, _ = urlsplit(url).netloc.rpartition("@")
    if not at:
        return url, {}
    credentials = base64.b64encode(unquote(userinfo).encode()).decode()
    return url.replace(f"{userinfo}@", "", 1), {"authorization": f"Basic {credentials}"}


UNUSUAL_BODIES = (OSError, ValueError, LookupError, TypeError, AttributeError)
"""What LiteLLM and the clients below it let through when an endpoint answers nonsense."""
THINKING: Mapping[Reasoning, int] = {"": 0, "low": 2_048, "medium": 4_096, "high": 8_192}
"""Tokens for thinking, besides the answer's: more than LiteLLM grants providers that want a number."""
AS_OPENAI = frozenset({"openai", "hosted_vllm", "lm_studio", "litellm_proxy", "azure", "azure_ai"})
"""Who takes parameters as OpenAI calls them, also for models that LiteLLM does not know."""
PARAMETER_REFUSED = frozenset({400, 422, 501})
LOST = frozenset({"timeout", "connection_lost"})
"""Reasons of failures that the provider may charge for all the same."""


def _cache_points(messages: Sequence[Message]) -> list[dict[str, str | int]]:
    """Where Claude's cache is asked for: the fixed text, the end, and where the request before this one ended.

    Without the last, a turn of ten calls would not find what is cached: the provider looks back over twenty blocks.
    """
    newest = max((at for at, message in enumerate(messages) if message.role == "assistant"), default=0)
    ends = dict.fromkeys([newest - 1, len(messages) - 1] if newest > 1 else [len(messages) - 1])
    points: list[dict[str, str | int]] = [{"location": "message", "role": "system"}]
    return points + [{"location": "message", "index": at} for at in ends]


def _classified(error: BaseException, route: Route, environment: Mapping[str, str], name: str = "") -> ModelError:
    """What a failed call means, without the keys that its text may repeat."""
    secrets = [environment.get(variable, "") for variable in route.known.keys + route.known.tokens]
    return classify(read(error), name=name or route.name, where=route.where, secrets=secrets)


@dataclass(frozen=True, slots=True)
class ModelTimeouts:
    """Timeouts in seconds: for the connection, the first data, the next data, and the whole answer."""

    connect: float = 15.0
    first: float = 600.0
    between: float = 180.0
    total: float = 1_800.0


def _call_options(library: LiteLLMModules, route: Route, info: ModelInfo, timeouts: ModelTimeouts) -> dict[str, Any]:
    """LiteLLM's arguments that do not depend on the request: one call, without retries."""
    options: dict[str, Any] = {
        "model": route.wire_name,
        "timeout": library.httpx.Timeout(timeouts.first, connect=timeouts.connect),
        "max_retries": 0,
        "num_retries": 0,
        "drop_params": True,
    }
    if route.provider in OLLAMA:
        options["num_ctx"] = info.context_window
    return options | dict(route.connection)


class LiteLLMModel:
    """One model by its LiteLLM name; keys and endpoints come from `environment`, by the names LiteLLM knows."""

    def __init__(
        self,
        name: str,
        *,
        environment: Mapping[str, str],
        price: Price | None = None,
        timeouts: ModelTimeouts | None = None,
        reasoning: Reasoning = "",
    ) -> None:
        self._environment = environment
        self._route = route(name, environment)
        self._price = price
        self._timeouts = timeouts or ModelTimeouts()
        listed = self._route.listed
        claude = "claude" in self._route.model
        self._dialect = ChatDialect(
            thinking=claude, schema="json_schema" if listed is None or listed.structured else "prompt"
        )
        self._reasoning = reasoning
        self._takes_reasoning = None if listed is None else listed.reasoning
        self._info = replace(model_properties(self._route, price), thinking=THINKING[reasoning])

    @property
    def info(self) -> ModelInfo:
        return self._info

    def warm(self) -> None:
        load()

    async def check(self) -> None:
        if self._reasoning and self._takes_reasoning is False:
            message = f"{self._info.name} does not support reasoning, so `reasoning: {self._reasoning}` has no effect."
            hint = "Remove `reasoning`, or choose a model that supports it."
            raise ModelError(message, kind="give_up", reason="no_reasoning", hint=hint)
        await preflight(self._route, self._environment, any_name=self._price is not None)
        if self._route.provider not in PROVIDERS:
            library = await asyncio.wrap_future(load())
            try:
                library.litellm.get_llm_provider(self._route.name)
            except library.openai.BadRequestError:
                raise unknown_provider(self._route, map(str, library.litellm.provider_list)) from None
            missing = library.litellm.validate_environment(self._route.name)["missing_keys"]
            if missing:
                message = f"{self._info.name} needs {' and '.join(missing)} in the environment."
                raise ModelError(message, kind="give_up", reason="no_key")

    def count(self, request: ModelRequest) -> int:
        return count_tokens(self._info.name, request, small=self._info.context_window // 2)

    async def complete(self, request: ModelRequest, *, key: str = "", on_text: OnText | None = None) -> ModelAnswer:
        library = await asyncio.wrap_future(load())
        name = self._route.model
        about = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": self._route.provider}
        about["gen_ai.request.model"] = name
        while True:
            try:
                with span(f"chat {name}", about, "client") as traced:
                    answer = await self._ask(library, request, StreamAssembly(on_text))
                    traced.add(
                        {
                            "gen_ai.response.model": answer.model,
                            "gen_ai.response.finish_reasons": (answer.finish_reason,),
                            "gen_ai.usage.input_tokens": answer.usage.prompt_tokens,
                            "gen_ai.usage.cache_read.input_tokens": answer.usage.cached_tokens,
                            "gen_ai.usage.output_tokens": answer.usage.completion_tokens,
                            "agent_fix.cost_usd": answer.usage.cost / DOLLAR,
                        }
                    )
                    return answer
            except _ParameterRefusedError as refused:
                self._dialect = refused.dialect

    async def _ask(self, library: LiteLLMModules, request: ModelRequest, assembly: StreamAssembly) -> ModelAnswer:
        """Make one request; every failure is raised as a ModelError."""
        try:
            async with asyncio.timeout(self._timeouts.total):
                async with asyncio.timeout(self._timeouts.first):
                    stream = await library.litellm.acompletion(**self._arguments(library, request))
                reported = await self._collect(stream, assembly)
        except TimeoutError as error:
            raise self._cut(request, assembly, "timeout") from error
        except (library.openai.OpenAIError, library.httpx.HTTPError, *UNUSUAL_BODIES) as error:
            raise self._failed(request, assembly, error) from error
        if stream.received_finish_reason is None and assembly.empty:
            message = f"{self._info.name} answered with something other than an event stream."
            hint = f"Check {self._route.where}."
            raise ModelError(message, kind="retry", reason="bad_response", hint=hint)
        if stream.received_finish_reason is None or (assembly.is_cut_off() and reported is None):
            raise self._cut(request, assembly, "stream_cut")
        return ModelAnswer(
            content=assembly.content,
            tool_calls=assembly.tool_calls,
            thinking=assembly.thinking,
            finish_reason=assembly.finish_reason,
            usage=self._estimate(request, assembly) if reported is None else self._priced(library.litellm, reported),
            model=self._info.name,
        )

    def _arguments(self, library: LiteLLMModules, request: ModelRequest) -> dict[str, Any]:
        arguments = request_body(request, self._dialect)
        if "claude" in self._route.model:
            arguments["cache_control_injection_points"] = _cache_points(request.messages)
        if (
            self._reasoning
            and request.max_tokens > self._info.thinking
            and (may_think(request) or not self._dialect.thinking)
        ):
            arguments["reasoning_effort"] = self._reasoning
            if self._takes_reasoning is None and self._route.provider in AS_OPENAI:  # a model that no list knows
                arguments["allowed_openai_params"] = ["reasoning_effort"]
        return arguments | _call_options(library, self._route, self._info, self._timeouts)

    async def _collect(self, stream: Any, assembly: StreamAssembly) -> Any:
        """Read the stream to its end; return usage only if the provider reported it, because LiteLLM makes it up."""
        timeouts = self._timeouts.first
        try:
            while assembly.usage is None:  # LiteLLM yields the usage last
                async with asyncio.timeout(timeouts):
                    chunk = await anext(stream, None)
                if chunk is None:
                    break
                assembly.add(chunk)
                timeouts = self._timeouts.between
        finally:
            await stream.aclose()
        reported = [chunk.usage for chunk in stream.chunks if getattr(chunk, "usage", None) is not None]
        return (assembly.usage or reported[-1]) if reported else None

    def _priced(self, litellm: Any, reported: Any) -> Usage:
        """Usage with a price: the user's, or else the provider's, or else the one in LiteLLM's list."""
        usage = usage_of(reported)
        if self._price is not None or not self._info.priced:
            return usage.model_copy(update={"cost": cost_of(self._info, usage)})
        billed = getattr(reported, "cost", None)
        if isinstance(billed, int | float) and billed > 0:
            return usage.model_copy(update={"cost": dollars(billed)})
        try:
            cost = dollars(sum(litellm.cost_per_token(model=self._route.name, usage_object=reported)))
        except (litellm.exceptions.ModelNotMappedError, *UNUSUAL_BODIES):
            cost = cost_of(self._info, usage)
        return usage.model_copy(update={"cost": cost})

    def _estimate(self, request: ModelRequest, assembly: StreamAssembly) -> Usage:
        usage = Usage(
            prompt_tokens=count_tokens(self._info.name, request),
            completion_tokens=count_text(self._info.name, assembly.everything),
            estimated=True,
        )
        return usage.model_copy(update={"cost": cost_of(self._info, usage)})

    def _cut(self, request: ModelRequest, assembly: StreamAssembly, reason: str) -> ModelError:
        what = "took too long to answer" if reason == "timeout" else "broke off in the middle of an answer"
        usage = self._estimate(request, assembly)
        return ModelError(f"{self._info.name} {what}.", kind="retry", reason=reason, usage=usage)

    def _failed(self, request: ModelRequest, assembly: StreamAssembly, error: BaseException) -> ModelError:
        """Classify the failure; raises _ParameterRefusedError if another dialect may work."""
        fault = read(error)
        if fault.status in PARAMETER_REFUSED and assembly.empty:
            other = self._dialect.without(fault.text, request)
            if other is not None:
                raise _ParameterRefusedError(other) from error
        found = _classified(error, self._route, self._environment)
        started = not assembly.empty or "MidStreamFallbackError" in fault.names
        if found.kind == "retry" and started:
            return self._cut(request, assembly, "stream_cut")
        if found.reason in LOST:
            found.usage = self._estimate(request, assembly)
        return found


class _ParameterRefusedError(Exception):
    """The endpoint does not support a parameter that is not essential."""

    def __init__(self, dialect: ChatDialect) -> None:
        super().__init__(dialect)
        self.dialect = dialect


class LiteLLMRawCall:
    """Forwards another coding agent's calls, in the agent's protocol, to a model of any provider."""

    def __init__(
        self,
        name: str,
        environment: Mapping[str, str],
        price: Price | None = None,
        timeouts: ModelTimeouts | None = None,
    ) -> None:
        self._name = name
        self._environment = environment
        self._route = route(name, environment)
        self._timeouts = timeouts or ModelTimeouts()
        self._info = model_properties(self._route, price)

    @property
    def info(self) -> ModelInfo:
        return self._info

    async def stream(self, protocol: WireProtocol, body: Body, limit: int) -> AsyncGenerator[StreamEvent]:
        library = await asyncio.wrap_future(load())
        with self._as_model_errors(library):
            async with asyncio.timeout(self._timeouts.first):
                answer = await self._call(library, protocol, body, limit, stream=True)
            async with aclosing(_events(protocol, answer)) as events:
                while True:
                    async with asyncio.timeout(self._timeouts.between):
                        event = await anext(events, None)
                    if event is None:
                        return
                    yield event

    async def complete(self, protocol: WireProtocol, body: Body, limit: int) -> dict[str, Any]:
        library = await asyncio.wrap_future(load())
        with self._as_model_errors(library):
            async with asyncio.timeout(self._timeouts.first):
                return _plain(await self._call(library, protocol, body, limit, stream=False))

    @contextmanager
    def _as_model_errors(self, library: LiteLLMModules) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise ModelError(f"{self._name} took too long to answer.", kind="retry", reason="timeout") from error
        except (library.openai.OpenAIError, library.httpx.HTTPError, *UNUSUAL_BODIES) as error:
            raise _classified(error, self._route, self._environment, self._name) from error

    async def _call(
        self, library: LiteLLMModules, protocol: WireProtocol, body: Body, limit: int, *, stream: bool
    ) -> Any:
        arguments = arguments_of(protocol, body, limit) | {"stream": stream}
        arguments |= _call_options(library, self._route, self._info, self._timeouts)
        match protocol:
            case "chat":
                if stream:
                    arguments["stream_options"] = {"include_usage": True}
                return await library.litellm.acompletion(**arguments)
            case "responses":
                # a custom endpoint certainly supports the older protocol, but maybe not the newer one
                older = bool(self._route.base)
                return await library.litellm.aresponses(**arguments, store=False, use_chat_completions_api=older)
            case "messages":
                return await library.litellm.anthropic_messages(**arguments)


def arguments_of(protocol: WireProtocol, body: Body, limit: int) -> dict[str, Any]:
    """LiteLLM's arguments: the protocol's own fields, and a few others as plain fields of the request."""
    fields = FIELDS[protocol]
    given = {name: value for name, value in body.items() if value is not None}
    arguments = {name: value for name, value in given.items() if name in fields.passed}
    arguments[fields.limit] = limit
    if others := {name: value for name, value in given.items() if name in fields.passed_as_extra}:
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
            try:
                data = json.loads(b"\n".join(lines))
            except (ValueError, RecursionError):
                continue
            if isinstance(data, dict):
                yield StreamEvent(str(data.get("type", "")), data)


def _plain(part: Any) -> dict[str, Any]:
    """Convert LiteLLM's objects and dictionaries to JSON values."""
    if isinstance(part, dict):
        return part
    found: dict[str, Any] = part.model_dump(mode="json", exclude_none=True)
    return found
