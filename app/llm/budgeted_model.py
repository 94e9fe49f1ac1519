"""The one way to ask a model: what fits is checked and money reserved before a call, and usage booked after.

ask ─► model ─► its fallbacks, one after the other, while all that fails is an outage ─► the first failure
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from app.core.failpoints import failpoint
from app.core.job import Progress, waiting_for
from app.core.model_names import ModelNames, WorkKind
from app.core.money import Totals
from app.llm.background import run_or_undo
from app.llm.base import AnswerOrigin, Model, ModelAnswer, ModelInfo, ModelRequest, Usage
from app.llm.circuit_breaker import MAX_REST_LENGTH, CircuitBreakers
from app.llm.errors import ModelError
from app.llm.ledger import NOTHING, Ledger, is_outage, usd
from app.llm.prices import affordable, cost_of, worst_case
from app.llm.tokens import count_text

MAX_ATTEMPTS = 5
WAITS = 10
FIRST_DELAY = 1.0
MAX_DELAY_LENGTH = 30.0
MAX_WAIT_LENGTH = 300.0
TOTAL_WAIT = 900.0


@dataclass(slots=True)
class RetryBackoff:
    """The time allowed for one answer. `delay` counts what it grants; `jitter` draws from 0 to 1."""

    jitter: Callable[[], float] = random.random
    tries: int = field(default=1, init=False)
    waits: int = field(default=0, init=False)
    waited: float = field(default=0.0, init=False)

    def delay(self, error: ModelError) -> float | None:
        """Seconds until the next try, or None for no further try.

        If a provider asks for a longer wait than is left, there is none: an earlier retry would fail.
        """
        if error.kind == "retry":
            self.tries += 1
            wanted = self._backoff(self.tries - 1) if self.tries <= MAX_ATTEMPTS else None
        elif error.kind == "wait":
            self.waits += 1
            wanted = self._until(error) if self.waits <= WAITS else None
        else:
            return None
        return None if wanted is None or not self.grant(wanted) else wanted

    def grant(self, seconds: float) -> bool:
        """Subtract a wait from the total; False if that is used up."""
        if self.waited + seconds > TOTAL_WAIT:
            return False
        self.waited += seconds
        return True

    def _until(self, error: ModelError) -> float | None:
        if error.retry_after is None:
            return self._backoff(self.waits + 2)
        return error.retry_after + self.jitter() if error.retry_after <= MAX_WAIT_LENGTH else None

    def _backoff(self, repetition: int) -> float:
        longest = min(FIRST_DELAY * 2.0 ** (repetition - 1), MAX_DELAY_LENGTH)
        return float(longest * (0.5 + self.jitter()))


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
        pace: Callable[[], RetryBackoff] = RetryBackoff,
        deadline: float = ASK_SECONDS,
        unpriced: set[str] | None = None,
    ) -> None:
        self._kind = kind
        self._models = (model, *fallbacks)
        self._ledger = ledger
        self._progress = progress
        self._breakers = breakers or CircuitBreakers()
        self._sleep = sleep
        self._pace = pace
        self._deadline = deadline
        self._unpriced = set() if unpriced is None else unpriced

    @property
    def info(self) -> ModelInfo:
        """Properties of the model that is asked first."""
        return self._models[0].info

    def warm(self) -> None:
        for model in self._models:
            model.warm()

    async def check(self) -> None:
        """Refuse a model that cannot work; for a fallback that cannot, only warn."""
        await self._models[0].check()
        for model in self._models[1:]:
            try:
                await model.check()
            except ModelError as error:
                self._progress.report("warning", f"The fallback cannot be used: {error.message}")

    def count(self, request: ModelRequest) -> int:
        """Prompt tokens of a request, by the first model's count."""
        return self._models[0].count(request)

    def totals(self) -> Totals:
        return self._ledger.totals()

    async def ask(self, key: str, request: ModelRequest) -> ModelAnswer:
        """One answer to `request`; `key` is the name of the durable step.

        Raises ModelError if no model answers (`does_not_fit` before anything is sent), BudgetError if the next call
        could exceed the cap. If a process died after it booked an answer but before it could return it, that answer is
        used and not bought again.
        """
        if bought := await asyncio.to_thread(self._ledger.stored_answer, key):
            answer = ModelAnswer.model_validate_json(bought)
            self._warn(await asyncio.to_thread(self._ledger.nearing, answer.usage.cost))  # maybe not yet warned
            return answer
        until = asyncio.get_running_loop().time() + self._deadline
        origin, first = AnswerOrigin(kind=self._kind), None
        models = self._able(request)
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
        raise first or AssertionError("there is always a model")

    def _able(self, request: ModelRequest) -> tuple[Model, ...]:
        """The model and its usable fallbacks: for images, a model without vision would make up what it sees."""
        first, *others = self._models
        return (first, *(each for each in others if each.info.vision or not request.images))

    async def _in_time(
        self, model: Model, key: str, request: ModelRequest, origin: AnswerOrigin, until: float, *, last: bool
    ) -> ModelAnswer:
        left = until - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(left if last else left / 2):
                return await self._insist(model, key, request, origin, wait=last)
        except TimeoutError as error:
            await asyncio.to_thread(self._breakers.of(model.info).failed, "deadline", MAX_REST_LENGTH)
            message = f"{model.info.name} did not answer in time."
            raise ModelError(message, kind="retry", reason="deadline") from error

    async def _insist(
        self, model: Model, key: str, request: ModelRequest, origin: AnswerOrigin, *, wait: bool
    ) -> ModelAnswer:
        """Ask one model, with retries. `wait` for an open breaker only if there is no other model."""
        pace, breaker = self._pace(), self._breakers.of(model.info)
        while True:
            pause = await asyncio.to_thread(breaker.delay)
            if pause and not (wait and pace.grant(pause)):
                reason = breaker.why or "unavailable"
                raise ModelError(f"{model.info.name} is not used for a while.", kind="retry", reason=reason)
            if pause:
                self._progress.report("warning", f"{model.info.name} is not used for {pause:.0f} s.")
                await self._sleep(pause)
                continue
            try:
                answer = await self._once(model, key, request, origin)
            except ModelError as error:
                if error.kind not in ("retry", "wait"):
                    if is_outage(error) and not wait:
                        # so the next answers skip it
                        await asyncio.to_thread(breaker.failed, error.reason, MAX_REST_LENGTH)
                    raise
                await asyncio.to_thread(breaker.failed, error.reason, error.retry_after)
                delay = pace.delay(error)
                if delay is None:
                    raise
                self._progress.report("warning", f"{error.message} Trying again in {delay:.0f} s.")
                await self._sleep(delay)
            else:
                breaker.succeeded()
                return answer

    async def _once(self, model: Model, key: str, request: ModelRequest, origin: AnswerOrigin) -> ModelAnswer:
        """One call, with money reserved before and booked after, however it ends."""
        self._report_price(model.info)
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
            tokens = count_text(model.info.name, streamed.text)
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

    def _report_price(self, info: ModelInfo) -> None:
        if not info.priced and info.name not in self._unpriced:
            self._unpriced.add(info.name)
            text = (
                f"The price of {info.name} is unknown, so the budget in dollars does not limit this job; turns and "
                "minutes do. Put the price into a file and name it in AGENT_FIX_PRICES."
            )
            self._progress.report("warning", text)

    def _set_aside(self, model: Model, key: str, request: ModelRequest) -> tuple[ModelRequest, int]:
        """Reserve the worst case of the request; returns the request as sent and its prompt tokens. Blocking."""
        prompt = model.count(request)
        fitting = self._fit(model.info, key, request, prompt)
        worst = worst_case(model.info, prompt, fitting.max_tokens)
        self._ledger.reserve(key, worst, if_lost=_usage(model.info, prompt))
        return fitting, prompt

    def _keep(self, key: str, answer: ModelAnswer) -> tuple[int, Sequence[str]]:
        """Book an answer with its text; returns the total spent so far, and warnings. Blocking."""
        self._ledger.book(key, answer.usage, answer.model_dump_json())
        return self._ledger.spent(), self._ledger.nearing(answer.usage.cost)

    def _fit(self, info: ModelInfo, key: str, request: ModelRequest, prompt: int) -> ModelRequest:
        """The request with its answer limited to window and budget; refused if that is too short."""
        enough = min(MIN_ANSWER, request.max_tokens)
        wanted = request.max_tokens + info.thinking
        max_tokens = min(wanted, info.max_output, info.context_window - prompt)
        if max_tokens < enough:
            message = f"{prompt:,} tokens exceed the context window of {info.name}, {info.context_window:,} tokens."
            raise ModelError(message, kind="shrink", reason="does_not_fit")
        max_tokens = min(max_tokens, affordable(info, prompt, self._ledger.remaining(key), max_tokens))
        if max_tokens < enough:
            raise self._ledger.refusal(key, worst_case(info, prompt, enough))
        return request if max_tokens == request.max_tokens else request.model_copy(update={"max_tokens": max_tokens})


@dataclass(slots=True)
class _StreamedText:
    """Passes the streamed text on and keeps it, to estimate the cost of a cancelled call.

    An answer in JSON, such as a plan, is not passed on: it is for the program, which shows what it reads from it.
    """

    progress: Progress
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def add(self, piece: str) -> None:
        self.pieces.append(piece)
        if not self.text.lstrip().startswith(("{", "```")):
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

    def totals(self) -> Totals:
        return self.ledger.totals()

    def _model(self, name: str) -> Model:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]
