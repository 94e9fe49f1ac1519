"""The one way to ask a model: what fits is checked and money reserved before a call, and usage booked after.

ask ─► model ─► its fallbacks, one after the other, while all that fails is an outage ─► the first failure

Not litellm.Router: it retries and falls back inside one call, where money cannot be reserved before each try.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from pydantic import ValidationError

from app.core.failpoints import failpoint
from app.core.job import Progress, waiting_for
from app.core.model_usage import ModelNames, WorkKind, usd
from app.llm.base import AnswerOrigin, Model, ModelAnswer, ModelInfo, ModelRequest, Usage
from app.llm.circuit_breaker import MAX_REST_SECONDS, CircuitBreakers, RetryBackoff
from app.llm.errors import BudgetError, ModelError, is_outage
from app.llm.ledger import NOTHING, Ledger, run_or_undo
from app.llm.prices import affordable, cost_of, worst_case
from app.llm.tokens import count_text

logger = logging.getLogger(__name__)

_FENCE = "```"
MIN_ANSWER = 1_024
"""Output tokens below which an answer is not worth asking for."""
ASK_SECONDS = 3_600.0
"""For one answer, with all repetitions and waits; a model that has a fallback gets half of what is left."""

Sleep = Callable[[float], Awaitable[None]]


class BudgetedModel:
    """Asks a model, or its fallbacks, within a budget.

    Stores nothing itself: `ask` is the work of one durable step of the caller, and may be executed again after a crash.
    `unpriced` are the models for which a missing price was already reported; the BudgetedModels of one job share it.
    """

    def __init__(
        self,
        model: Model,
        ledger: Ledger,
        progress: Progress,
        *,
        kind: WorkKind = "code",
        fallbacks: Sequence[Model] = (),
        breakers: CircuitBreakers | None = None,
        sleep: Sleep = asyncio.sleep,
        backoff: Callable[[], RetryBackoff] = RetryBackoff,
        deadline: float = ASK_SECONDS,
        unpriced: set[str] | None = None,
    ) -> None:
        self._kind = kind
        self._models = (model, *fallbacks)
        self._ledger = ledger
        self._progress = progress
        self._breakers = breakers or CircuitBreakers()
        self._sleep = sleep
        self._backoff = backoff
        self._deadline = deadline
        self._unpriced = set() if unpriced is None else unpriced

    @property
    def info(self) -> ModelInfo:
        """Properties of the model that is asked first."""
        return self._models[0].info

    async def ask(self, key: str, request: ModelRequest) -> ModelAnswer:
        """One answer to `request`; `key` is the name of the durable step.

        Raises ModelError if no model answers (`does_not_fit` before anything is sent), BudgetError if the next call
        could exceed the cap. If a process died after it booked an answer but before it could return it, that answer is
        used and not bought again.
        """
        if bought := await self._bought(key):
            return bought
        until = asyncio.get_running_loop().time() + self._deadline
        origin, first = AnswerOrigin(kind=self._kind), None
        # for images, a model without vision would make up what it sees
        models = [self._models[0], *(each for each in self._models[1:] if each.info.vision or not request.images)]
        for model, following in zip(models, (*models[1:], None), strict=True):
            try:
                return await self._in_time(model, key, request, origin, until, last=following is None)
            except ModelError as error:
                if first is None and not is_outage(error):
                    raise
                first = first or error  # a fallback's failure is only logged
                origin = AnswerOrigin(kind=self._kind, instead_of=self.info.name, because=first.reason)
                if following is not None:
                    self._progress.report("warning", f"{error.message} Asking {following.info.name} instead.")
                elif error is not first:
                    self._progress.report("warning", error.message)
            except BudgetError as error:
                if first is None:
                    raise
                self._progress.report("warning", f"{model.info.name} is not asked instead: {error.message}")
        raise first or AssertionError("there is always a model")

    async def _bought(self, key: str) -> ModelAnswer | None:
        """The answer that an earlier process bought, if there is one that this version can read."""
        bought = await asyncio.to_thread(self._ledger.stored_answer, key)
        if not bought:
            return None
        try:
            answer = ModelAnswer.model_validate_json(bought)
        except ValidationError:
            text = f"The stored answer of {key} is of another version of agent-fix; the model is asked again."
            self._progress.report("warning", text)
            return None
        self._warn(await asyncio.to_thread(self._ledger.nearing, answer.usage.cost))  # maybe not yet warned
        return answer

    async def _in_time(
        self, model: Model, key: str, request: ModelRequest, origin: AnswerOrigin, until: float, *, last: bool
    ) -> ModelAnswer:
        left = until - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(left if last else left / 2):
                return await self._insist(model, key, request, origin, wait=last)
        except TimeoutError as error:
            await asyncio.to_thread(self._breakers.of(model.info).failed, "deadline", MAX_REST_SECONDS)
            message = f"{model.info.name} did not answer in time."
            raise ModelError(message, kind="retry", reason="deadline") from error

    async def _insist(
        self, model: Model, key: str, request: ModelRequest, origin: AnswerOrigin, *, wait: bool
    ) -> ModelAnswer:
        """Ask one model, with retries. `wait` for an open breaker only if there is no other model."""
        backoff, breaker = self._backoff(), self._breakers.of(model.info)
        while True:
            pause = await asyncio.to_thread(breaker.delay)
            if pause and not (wait and backoff.grant(pause)):
                reason = breaker.why or "unavailable"
                raise ModelError(f"{model.info.name} is not used for a while.", kind="retry", reason=reason)
            if pause:
                await self._rest(model, pause)
                continue
            try:
                answer = await self._once(model, key, request, origin)
            except ModelError as error:
                if error.kind not in ("retry", "wait"):
                    if is_outage(error) and not wait:
                        await asyncio.to_thread(breaker.failed, error.reason, MAX_REST_SECONDS)
                    raise
                await asyncio.to_thread(breaker.failed, error.reason, error.retry_after)
                delay = backoff.delay(error)
                if delay is None:
                    if not wait:  # so the next answers skip it for a while
                        await asyncio.to_thread(breaker.failed, error.reason, MAX_REST_SECONDS)
                    raise
                self._progress.report("warning", f"{error.message} Trying again in {delay:.0f} s.")
                await self._sleep(delay)
            else:
                breaker.succeeded()
                return answer

    async def _rest(self, model: Model, pause: float) -> None:
        if pause >= 1:  # shorter ones follow each other while several calls wait for one trial
            self._progress.report("warning", f"{model.info.name} is not used for {pause:.0f} s.")
        await self._sleep(pause)

    async def _once(self, model: Model, key: str, request: ModelRequest, origin: AnswerOrigin) -> ModelAnswer:
        """One call, with money reserved before and booked after, however it ends."""
        if not model.info.priced and model.info.name not in self._unpriced:
            self._unpriced.add(model.info.name)
            text = (
                f"The price of {model.info.name} is unknown, so the budget in dollars does not limit this job; turns "
                "and minutes do. Put the price into a file and name it in AGENT_FIX_PRICES."
            )
            self._progress.report("warning", text)
        reserve = partial(self._set_aside, model, key, request)
        fitting, prompt = await run_or_undo(reserve, lambda _: self._ledger.book(key, NOTHING))
        streamed = _StreamedText(self._progress)
        try:
            with waiting_for(self._progress, f"{model.info.name} ({key})"):
                answer = await model.complete(fitting, key=key, on_text=streamed.add)
            answer = answer.model_copy(update={"origin": origin})
        except ModelError as error:
            await asyncio.to_thread(self._ledger.book, key, error.usage or NOTHING)
            raise
        except asyncio.CancelledError:
            # no await here: the cancelled task may be cancelled again before the money is booked
            tokens = count_text(model.info.name, "".join(streamed.pieces))
            self._ledger.book(key, _usage(model.info, prompt, tokens))
            raise
        spent, nearing = await asyncio.to_thread(self._keep, key, answer)
        failpoint(f"{key}.booked")
        self._progress.report("cost", _bill(key, answer.usage, spent))
        self._warn(nearing)
        return answer

    def _warn(self, sentences: Sequence[str]) -> None:
        for sentence in sentences:
            self._progress.report("warning", sentence)

    def _set_aside(self, model: Model, key: str, request: ModelRequest) -> tuple[ModelRequest, int]:
        """Limit the answer to window and budget, and reserve its worst case; returns the request as sent and its prompt
        tokens. Refused if only a useless answer would fit. Blocking."""
        info, prompt = model.info, model.count(request)
        enough = min(MIN_ANSWER, request.max_tokens)
        max_tokens = min(request.max_tokens + info.thinking, info.max_output, info.context_window - prompt)
        if max_tokens < enough:
            message = f"{prompt:,} tokens exceed the context window of {info.name}, {info.context_window:,} tokens."
            raise ModelError(message, kind="shrink", reason="does_not_fit")
        max_tokens = min(max_tokens, affordable(info, prompt, self._ledger.remaining(key), max_tokens))
        if max_tokens < enough:
            raise self._ledger.refusal(key, worst_case(info, prompt, enough))
        self._ledger.reserve(key, worst_case(info, prompt, max_tokens), if_lost=_usage(info, prompt))
        if max_tokens != request.max_tokens:
            request = request.model_copy(update={"max_tokens": max_tokens})
        return request, prompt

    def _keep(self, key: str, answer: ModelAnswer) -> tuple[int, Sequence[str]]:
        """Book an answer with its text; returns the total spent so far, and warnings. Blocking."""
        self._ledger.book(key, answer.usage, answer.model_dump_json())
        return self._ledger.spent(), self._ledger.nearing(answer.usage.cost)


@dataclass(slots=True)
class _StreamedText:
    """Reports an answer's text as it arrives, unless it is JSON, such as a plan, which the program reads and shows."""

    progress: Progress
    pieces: list[str] = field(default_factory=list)
    _is_json: bool | None = None
    """None until that is certain."""

    def add(self, piece: str) -> None:
        self.pieces.append(piece)
        if self._is_json is None:
            piece = "".join(self.pieces)
            beginning = piece.lstrip()[:3]
            if not beginning or (beginning != _FENCE and _FENCE.startswith(beginning)):
                return
            self._is_json = beginning.startswith(("{", _FENCE))
        if not self._is_json:
            self.progress.report("text", piece)


def _usage(info: ModelInfo, prompt: int, completion: int = 0) -> Usage:
    """The estimated cost of a call whose usage the provider never reported."""
    usage = Usage(prompt_tokens=prompt, completion_tokens=completion, estimated=True)
    return usage.model_copy(update={"cost": cost_of(info, usage)})


def _bill(key: str, usage: Usage, spent: int) -> str:
    cached = f" ({usage.cached_tokens * 100 // usage.prompt_tokens} % cached)" if usage.cached_tokens else ""
    about = "about " if usage.estimated else ""
    tokens = f"{usage.prompt_tokens:,} tokens{cached} in, {usage.completion_tokens:,} out"
    if not spent:
        return f"{key}: {tokens}"
    return f"{key}: {tokens}, {about}{usd(usage.cost)}; {usd(spent)} so far"


class JobModels:
    """`make` creates a model by its name, at no cost; each name is created once."""

    def __init__(
        self,
        models: ModelNames,
        make: Callable[[str], Model],
        ledger: Ledger,
        progress: Progress,
        *,
        fallbacks: Sequence[str] = (),
        breakers: CircuitBreakers | None = None,
    ) -> None:
        self._names = models
        self._make = make
        self.ledger = ledger
        self._progress = progress
        self._fallbacks = tuple(dict.fromkeys(fallbacks))
        self._breakers = breakers or CircuitBreakers()
        self._unpriced: set[str] = set()
        self._made: dict[str, Model] = {}
        self._job_models: dict[WorkKind, BudgetedModel] = {}

    def of(self, kind: WorkKind) -> BudgetedModel:
        """The model for this kind of work; always the same object."""
        if kind not in self._job_models:
            name = self._names.of(kind)
            self._job_models[kind] = BudgetedModel(
                self._model(name),
                self.ledger,
                self._progress,
                kind=kind,
                fallbacks=[self._model(each) for each in self._fallbacks if each != name],
                breakers=self._breakers,
                unpriced=self._unpriced,
            )
        return self._job_models[kind]

    def warm(self) -> None:
        self._model(self._names.code).warm()

    async def check(self, *kinds: WorkKind) -> None:
        """Refuse models that cannot work for any of these kinds; for a fallback that cannot, only warn."""
        names = dict.fromkeys(self._names.of(kind) for kind in kinds)
        await asyncio.gather(*(self._model(name).check() for name in names))
        for name in self._fallbacks:
            try:
                if name not in names:
                    await self._model(name).check()
            except ModelError as error:
                self._progress.report("warning", f"The fallback cannot be used: {error.message}")

    def _model(self, name: str) -> Model:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]
