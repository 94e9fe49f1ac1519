"""The one way to ask a model: what fits is checked and money reserved before a call, and usage booked after.

ask ─► model ─► its fallbacks, one after the other, while all that fails is an outage ─► the first failure
"""

import asyncio
import hashlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

from pydantic import ValidationError
from sqlalchemy import Engine, insert, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from app.core.failpoints import failpoint
from app.core.job import Progress, waiting_for
from app.core.model_usage import ModelNames, Totals, WorkKind
from app.llm.base import AnswerOrigin, Model, ModelAnswer, ModelInfo, ModelRequest, Usage
from app.llm.errors import ModelError
from app.llm.ledger import NOTHING, Ledger, is_outage, run_or_undo, usd
from app.llm.prices import affordable, cost_of, worst_case
from app.llm.sql_ledger import pauses
from app.llm.tokens import count_text

logger = logging.getLogger(__name__)

FAILURES = 5
OPEN_SECONDS = 30.0
MAX_REST_LENGTH = 300.0
"""The longest pause in seconds, whatever the provider asks for; then one call tries it again."""


@dataclass(frozen=True, slots=True)
class SharedPause:
    """A provider's pause that all processes with one database keep. A database that cannot be used stops no call."""

    engine: Engine
    provider: str
    now: Callable[[], float]
    """Seconds since 1970."""

    def read(self) -> tuple[float, str]:
        """The seconds left, and why; 0 if there is no pause. Blocking."""
        try:
            with self.engine.connect() as db:
                found = db.execute(select(pauses).where(pauses.c.provider == self.provider)).mappings().first()
        except SQLAlchemyError as error:
            logger.warning("pauses of providers cannot be read: %s", type(error).__name__)
            return 0.0, ""
        return (max(0.0, found["until"] - self.now()), found["why"]) if found else (0.0, "")

    def extend(self, seconds: float, why: str) -> None:
        """Pause the provider for at least that long: the longer of two pauses counts. Blocking."""
        until = self.now() + seconds
        values = {"until": until, "why": why[:80]}
        here = pauses.c.provider == self.provider
        try:
            with self.engine.begin() as db:
                known = db.execute(update(pauses).where(here, pauses.c.until < until).values(values)).rowcount
                if not known and db.execute(select(pauses.c.until).where(here)).first() is None:
                    db.execute(insert(pauses).values(provider=self.provider, **values))
        except IntegrityError:  # another process was faster with a pause of about the same length
            return
        except SQLAlchemyError as error:
            logger.warning("a pause of a provider cannot be stored: %s", type(error).__name__)


class CircuitBreaker:
    """Closed until `FAILURES` calls in a row failed; then open, and one call may try every `OPEN_SECONDS`.

    If a provider tells one caller to come back later, all callers wait until then; with `shared`, in all processes.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, shared: SharedPause | None = None) -> None:
        self._clock = clock
        self._shared = shared
        self._failures = 0
        self._until = 0.0
        self._resting = 0.0
        self.why = ""
        """The reason of the last failure (`app.llm.errors`)."""

    def delay(self) -> float:
        """Seconds until a call may be made; 0 lets this caller try. Blocking."""
        left, why = self._shared.read() if self._shared else (0.0, "")
        if left:
            self.why = why
            return left
        if left := self._remaining():
            return left
        self._until = self._clock() + OPEN_SECONDS
        return 0.0

    def _remaining(self) -> float:
        until = max(self._resting, self._until if self._failures >= FAILURES else 0.0)
        return max(until - self._clock(), 0.0)

    def succeeded(self) -> None:
        self._failures = 0

    def failed(self, why: str = "", retry_after: float | None = None) -> None:
        """Count a failure. Blocking."""
        self._failures += 1
        self.why = why
        if self._failures >= FAILURES:
            self._until = self._clock() + OPEN_SECONDS
        if retry_after is not None:
            self._resting = self._clock() + min(retry_after, MAX_REST_LENGTH)
        if self._shared and (left := self._remaining()):
            self._shared.extend(left, why)


class CircuitBreakers:
    """One breaker for each provider and endpoint, shared by all users of this object.

    With an `engine`, pauses are shared by all processes with that database; `now` is in seconds since 1970.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        engine: Engine | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._engine = engine
        self._now = now
        self._breakers: dict[tuple[str, str], CircuitBreaker] = {}

    def of(self, info: ModelInfo) -> CircuitBreaker:
        """The breaker of a model's provider: the part of its name before the first slash, and its endpoint."""
        provider = info.name.partition("/")[0]
        key = provider, info.endpoint
        if key not in self._breakers:
            shared = None
            if self._engine is not None:
                endpoint = hashlib.sha256(info.endpoint.encode()).hexdigest()[:16] if info.endpoint else ""
                shared = SharedPause(self._engine, f"{provider[:100]} {endpoint}".strip(), self._now)
            self._breakers[key] = CircuitBreaker(self._clock, shared)
        return self._breakers[key]


@cache
def process_breakers() -> CircuitBreakers:
    """The breakers that all models of this process share."""
    return CircuitBreakers()


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
            if self.waits > WAITS or (error.retry_after or 0.0) > MAX_WAIT_LENGTH:
                wanted = None
            elif error.retry_after is None:
                wanted = self._backoff(self.waits + 2)
            else:
                wanted = error.retry_after + self.jitter()
        else:
            return None
        return None if wanted is None or not self.grant(wanted) else wanted

    def grant(self, seconds: float) -> bool:
        """Subtract a wait from the total; False if that is used up."""
        if self.waited + seconds > TOTAL_WAIT:
            return False
        self.waited += seconds
        return True

    def _backoff(self, repetition: int) -> float:
        longest = min(FIRST_DELAY * 2.0 ** (repetition - 1), MAX_DELAY_LENGTH)
        return float(longest * (0.5 + self.jitter()))


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

    def totals(self) -> Totals:
        return self._ledger.totals()

    async def ask(self, key: str, request: ModelRequest) -> ModelAnswer:
        """One answer to `request`; `key` is the name of the durable step.

        Raises ModelError if no model answers (`does_not_fit` before anything is sent), BudgetError if the next call
        could exceed the cap. If a process died after it booked an answer but before it could return it, that answer is
        used and not bought again.
        """
        if bought := await asyncio.to_thread(self._ledger.stored_answer, key):
            try:
                answer = ModelAnswer.model_validate_json(bought)
            except ValidationError:
                text = f"The stored answer of {key} is of another version of agent-fix; the model is asked again."
                self._progress.report("warning", text)
            else:
                self._warn(await asyncio.to_thread(self._ledger.nearing, answer.usage.cost))  # maybe not yet warned
                return answer
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
        raise first or AssertionError("there is always a model")

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

    def totals(self) -> Totals:
        return self.ledger.totals()

    def _model(self, name: str) -> Model:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]
