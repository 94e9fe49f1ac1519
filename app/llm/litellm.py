"""Calls real models through LiteLLM, which is imported late and in the background."""

import asyncio
import gc
import logging
import os
import urllib.request
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from app.core.model_names import Reasoning
from app.core.money import DOLLAR, MicroUSD
from app.core.tracing import Value, span
from app.llm.background import background
from app.llm.base import ModelAnswer, ModelInfo, ModelRequest, OnText, Usage
from app.llm.chat_format import ChatDialect, StreamAssembly, may_think, only_json, request_body, usage_of
from app.llm.errors import ModelError, classify, read
from app.llm.ledger import Ledger
from app.llm.prices import DEFAULT_WINDOW, OLLAMA_WINDOW, Price, cost_of, dollars, model_info, price_list
from app.llm.providers import PROVIDERS, Route, check_environment, check_name, route, unknown_provider
from app.llm.tokens import count_text, count_tokens

if TYPE_CHECKING:
    from concurrent.futures import Future


SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """`url` is the endpoint's base; `key` is sent in the way that the provider expects."""

    url: str
    key: str = ""
    style: Literal["bearer", "anthropic"] = "bearer"


Finding = Literal["there", "bad_key", "unreachable"]


async def probe(target: ProbeTarget, *, seconds: float = SECONDS) -> Finding:
    """One GET; anything but a refused key or no answer counts as `there`, because not every endpoint has a list."""
    return await asyncio.wrap_future(background(lambda: _get(target, seconds), "probe-endpoint"))


def _get(target: ProbeTarget, seconds: float) -> Finding:
    if urlsplit(target.url).scheme not in ("http", "https"):
        return "unreachable"
    headers = {"user-agent": "agent-fix"}
    if target.key and target.style == "bearer":
        headers["authorization"] = f"Bearer {target.key}"
    elif target.key:
        headers |= {"x-api-key": target.key, "anthropic-version": "2023-06-01"}
    request = urllib.request.Request(f"{target.url.rstrip('/')}/models", headers=headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=seconds):  # noqa: S310 (the scheme was looked at)
            return "there"
    except HTTPError as error:
        error.close()
        return "bad_key" if error.code == 401 else "there"
    except (URLError, OSError, ValueError):
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
    style: Literal["anthropic", "bearer"] = "anthropic" if route.provider == "anthropic" else "bearer"
    finding = await probe(ProbeTarget(base, route.key, style))
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


NO_KEY = "no-key"
"""Endpoints of one's own often need none, and the client wants one."""
UNUSUAL_BODIES = (OSError, ValueError, LookupError, TypeError, AttributeError)
"""What LiteLLM and the clients below it let through when an endpoint answers nonsense."""
CACHE_POINTS = ({"location": "message", "role": "system"}, {"location": "message", "index": -1})
THINKING: Mapping[Reasoning, int] = {"": 0, "low": 2_048, "medium": 4_096, "high": 8_192}
"""Tokens for thinking, besides the answer's: more than LiteLLM grants providers that want a number."""
AS_OPENAI = frozenset({"openai", "hosted_vllm", "lm_studio", "litellm_proxy", "azure", "azure_ai"})
"""Who takes parameters as OpenAI calls them, also for models that LiteLLM does not know."""
OLLAMA = frozenset({"ollama", "ollama_chat"})
PARAMETER_REFUSED = frozenset({400, 422, 501})


@dataclass(frozen=True, slots=True)
class ModelTimeouts:
    """Timeouts in seconds: for the connection, the first data, the next data, and the whole answer."""

    connect: float = 15.0
    first: float = 600.0
    between: float = 180.0
    total: float = 1_800.0


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
        listed = price_list().find(self._route.name) or price_list().find(self._route.listed_name)
        claude = "claude" in self._route.model
        self._dialect = ChatDialect(
            thinking=claude, schema="json_schema" if listed is None or listed.structured else "prompt"
        )
        self._reasoning = reasoning
        self._takes_reasoning = None if listed is None else listed.reasoning
        window = OLLAMA_WINDOW if self._route.provider in OLLAMA else DEFAULT_WINDOW
        info = model_info(self._route.name, listed.info if listed else None, price, window=window)
        self._info = replace(info, thinking=THINKING[reasoning], endpoint=self._route.base)

    @property
    def info(self) -> ModelInfo:
        return self._info

    def warm(self) -> None:
        _importing()

    async def check(self) -> None:
        if self._reasoning and self._takes_reasoning is False:
            message = f"{self._info.name} does not support reasoning, so `reasoning: {self._reasoning}` has no effect."
            hint = "Remove `reasoning`, or choose a model that supports it."
            raise ModelError(message, kind="give_up", reason="no_reasoning", hint=hint)
        await preflight(self._route, self._environment, any_name=self._price is not None)
        if self._route.provider not in PROVIDERS:
            library = await asyncio.wrap_future(_importing())
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
        library = await asyncio.wrap_future(_importing())
        name = self._route.model
        about = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": self._route.provider}
        about["gen_ai.request.model"] = name
        while True:
            try:
                with span(f"chat {name}", about, "client") as traced:
                    answer = await self._ask(library, request, StreamAssembly(on_text))
                    traced.add(_traced(answer))
                    return answer
            except _ParameterRefusedError as refused:
                self._dialect = refused.dialect

    async def _ask(self, library: "LiteLLMModules", request: ModelRequest, assembly: StreamAssembly) -> ModelAnswer:
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
        return self._answer(library, request, assembly, reported)

    def _arguments(self, library: "LiteLLMModules", request: ModelRequest) -> dict[str, Any]:
        arguments = request_body(request, self._dialect)
        if self._route.base:
            arguments["api_base"] = self._route.base
        if self._route.key or (self._route.base and not self._route.known.tokens):
            arguments["api_key"] = self._route.key or NO_KEY
        if "claude" in self._route.model:
            arguments["cache_control_injection_points"] = list(CACHE_POINTS)
        if self._route.provider in OLLAMA:
            arguments["num_ctx"] = self._info.context_window
        arguments |= self._thinking(request)
        limits = library.httpx.Timeout(self._timeouts.first, connect=self._timeouts.connect)
        return arguments | {
            "model": self._route.wire_name,
            "timeout": limits,
            "max_retries": 0,
            "num_retries": 0,
            "drop_params": True,
        }

    def _thinking(self, request: ModelRequest) -> dict[str, Any]:
        """The reasoning setting, if there are enough tokens for it; passed unchanged to models that no list knows."""
        if not self._reasoning or request.max_tokens <= self._info.thinking:
            return {}
        if self._dialect.thinking and not may_think(request):
            return {}
        unknown = self._takes_reasoning is None and self._route.provider in AS_OPENAI
        return {"reasoning_effort": self._reasoning} | (
            {"allowed_openai_params": ["reasoning_effort"]} if unknown else {}
        )

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

    def _answer(
        self, library: "LiteLLMModules", request: ModelRequest, assembly: StreamAssembly, reported: Any
    ) -> ModelAnswer:
        known = reported is not None
        usage = self._priced(library.litellm, reported) if known else self._estimate(request, assembly)
        content = assembly.content
        return ModelAnswer(
            content=only_json(content) if request.response_schema is not None else content,
            tool_calls=assembly.tool_calls,
            thinking=assembly.thinking,
            finish_reason=assembly.finish_reason,
            usage=usage,
            model=self._info.name,
        )

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
        secrets = [self._environment.get(name, "") for name in self._route.known.keys + self._route.known.tokens]
        found = classify(fault, name=self._info.name, where=self._route.where, secrets=secrets)
        started = not assembly.empty or "MidStreamFallbackError" in fault.names
        if found.kind == "retry" and started:
            return self._cut(request, assembly, "stream_cut")
        if found.reason in ("timeout", "connection_lost"):
            found.usage = self._estimate(request, assembly)
        return found


class _ParameterRefusedError(Exception):
    """The endpoint does not support a parameter that is not essential."""

    def __init__(self, dialect: ChatDialect) -> None:
        super().__init__(dialect)
        self.dialect = dialect


class LiteLLMModules(NamedTuple):
    """LiteLLM and the exception types of its HTTP clients."""

    litellm: Any
    openai: Any
    httpx: Any


def _traced(answer: ModelAnswer) -> dict[str, Value | None]:
    usage = answer.usage
    return {
        "gen_ai.response.model": answer.model,
        "gen_ai.response.finish_reasons": (answer.finish_reason,) if answer.finish_reason else None,
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "agent_fix.cost_usd": usage.cost / DOLLAR,
    }


def load() -> "Future[LiteLLMModules]":
    """Start the import now, before a model is needed."""
    return _importing()


@cache
def _importing() -> "Future[LiteLLMModules]":
    """The import of the library, started by the first caller."""
    return background(_load, "import-litellm")


def _load() -> LiteLLMModules:
    """Import LiteLLM without a price list from the network, a stray .env or log output."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    os.environ["LITELLM_MODE"] = "PRODUCTION"
    gc.disable()  # an import creates no garbage, and looking for it takes a quarter of the time
    try:
        import httpx  # noqa: PLC0415
        import litellm as module  # noqa: PLC0415 (takes seconds, and two hundred megabytes)
        import openai  # noqa: PLC0415
    finally:
        gc.freeze()
        gc.enable()

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


_EMBEDDING_SECONDS: Final = 30.0
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
            async with asyncio.timeout(_EMBEDDING_SECONDS):
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
        arguments: dict[str, Any] = {"model": self._route.name, "timeout": _EMBEDDING_SECONDS, "max_retries": 0}
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
