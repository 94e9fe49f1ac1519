"""The reviewer: a short conversation of its own that sees a submitted change and writes counter-examples against it."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from time import monotonic

from app.agent.actions import REVIEWER_ACTIONS, CounterAction, ParsedCall, parse_calls, specs
from app.agent.base import ModelPort
from app.agent.history import ConversationHistory
from app.agent.observation import LIMIT
from app.agent.prompts import render
from app.agent.step import Observation, Step, StoredAnswer, StoredTurn
from app.agent.tools import AgentTools, ToolLimits
from app.core.examples import Example, Review
from app.core.job import Progress
from app.core.model_usage import MicroUSD
from app.core.text import one_line
from app.llm.base import Message
from app.llm.errors import BudgetError, DayBudgetError, ModelError
from app.sandbox.base import Sandbox

MAX_TURNS = 5
LOOK_SECONDS = 60.0
_LOOK_CHARACTERS = 16_000
"""Characters of the results of one turn's looks together."""
_NOTHING_HAPPENS = "Nothing happens without a tool call: view, search, or counter to end."
_LAST = "This is your last turn: call counter with what you have."

RunExamples = Callable[[Sequence[Example]], Awaitable[Review]]
"""Counter-examples → the same as they ran on base and change."""


@dataclass(frozen=True, slots=True)
class Reviewer:
    """Asks for counter-examples within a share of the job's money. All of it is the work of one durable step.

    After a crash it begins again, and each answer that was bought before is the same: the ledger has it.
    """

    budgeted_model: ModelPort
    progress: Progress
    open_sandbox: Callable[[], AbstractAsyncContextManager[Sandbox]]
    """A sandbox with the change, to look at."""
    run: RunExamples
    share: MicroUSD

    async def review(self, key: str, brief: str) -> Review:
        """The counter-examples, or why there are none; a job never fails for want of a reviewer.

        Raises ModelError if the provider may answer later, and DayBudgetError.
        """
        started, steps = monotonic(), list[Step]()
        try:
            async with AsyncExitStack() as stack:
                found = await self._converse(key, brief, stack, steps)
        except (ModelError, BudgetError) as error:
            if isinstance(error, DayBudgetError) or (isinstance(error, ModelError) and error.kind in ("retry", "wait")):
                raise
            found = Review(
                absent=f"it could not be asked: {error.message}", short_of_money=isinstance(error, BudgetError)
            )
        usages = [step.answer.usage for step in steps]
        update = {
            "model": steps[-1].answer.model if steps else "",
            "turns": len(steps),
            "tokens": sum(usage.prompt_tokens + usage.completion_tokens for usage in usages),
            "cost": sum(usage.cost for usage in usages),
            "seconds": round(monotonic() - started, 3),
        }
        return found.model_copy(update=update)

    async def _converse(self, key: str, brief: str, stack: AsyncExitStack, steps: list[Step]) -> Review:
        opening = (Message(role="system", content=render("reviewer")), Message(role="user", content=brief))
        history = ConversationHistory(opening, specs(REVIEWER_ACTIONS), self.budgeted_model.info)
        toolbox: AgentTools | None = None
        for number in range(1, MAX_TURNS + 1):
            if sum(step.answer.usage.cost for step in steps) >= self.share:
                return Review(absent="its share of the budget was used up.")
            if history.full() and not history.compact():
                return Review(absent="the change does not fit its model.")
            answer = await self.budgeted_model.ask(f"{key}.{number}", history.request())
            calls = parse_calls(answer.tool_calls, number, REVIEWER_ACTIONS)
            handed_in = next((call.action for call in calls if isinstance(call.action, CounterAction)), None)
            if toolbox is None and handed_in is None and any(call.action for call in calls):
                toolbox = AgentTools(await stack.enter_async_context(self.open_sandbox()), self.progress)
            observations = tuple([await self._look(call, toolbox, len(calls)) for call in calls])
            notes = (*(() if calls else (_NOTHING_HAPPENS,)), *((_LAST,) if number == MAX_TURNS - 1 else ()))
            turn = StoredTurn(
                number=number, calls=tuple(call.call for call in calls), observations=observations, notes=notes
            )
            steps.append(Step(StoredAnswer(answer=answer), turn))
            history.add(steps[-1])
            if handed_in is not None:
                return await self._counter(handed_in)
        return Review(absent=f"it did not answer within {MAX_TURNS} turns.")

    async def _counter(self, action: CounterAction) -> Review:
        if not action.examples:
            return Review(nothing=one_line(action.reason) or "It gave no reason.")
        self.progress.report("note", f"reviewer: {len(action.examples)} counter-examples")
        return await self.run([one.example for one in action.examples])

    async def _look(self, parsed: ParsedCall, toolbox: AgentTools | None, calls: int) -> Observation:
        call, action = parsed.call, parsed.action
        if action is None or toolbox is None or isinstance(action, CounterAction):
            text = parsed.problem or "Taken."
            return Observation(
                call_id=call.id, tool=call.name, outcome="refused" if parsed.problem else "ok", text=text
            )
        limits = ToolLimits(min(LIMIT, _LOOK_CHARACTERS // calls), LOOK_SECONDS, "reviewer")
        result = await toolbox.execute(action, limits)
        return Observation(call_id=call.id, tool=call.name, outcome=result.outcome, text=result.text)
