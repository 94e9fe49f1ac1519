"""The authors of tests: short conversations of their own that read the code and change nothing.

The first author writes the specification tests from the issue, before the work begins. The second one sees a submitted
change, and writes tests that it might fail.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from time import monotonic

from app.agent.actions import (
    AUTHOR_ACTIONS,
    MalformedError,
    ParsedCall,
    SearchAction,
    Specify,
    ViewAction,
    parse_calls,
    read_object,
    specs,
)
from app.agent.base import ModelPort
from app.agent.history import ConversationHistory
from app.agent.observation import LIMIT
from app.agent.prompts import render
from app.agent.step import Observation, Step, StoredAnswer, StoredTurn
from app.agent.tools import AgentTools, ToolLimits
from app.core.examples import SourceText
from app.core.job import Progress
from app.core.model_usage import MicroUSD
from app.core.text import head_and_tail, one_line
from app.core.verification import Settlement, Specification, SpecificationResult
from app.llm.base import Message, ModelAnswer, ModelRequest
from app.llm.errors import BudgetError, DayBudgetError, ModelError
from app.sandbox.base import Sandbox

MAX_TURNS = 10
MAX_SECOND_TURNS = 4
LOOKUP_SECONDS = 60.0
"""Timeout of one look at the files."""
_MAX_LOOKUP_CHARACTERS = 16_000
"""Characters of the results of one turn's looks together."""
_DECISION_TOKENS = 1_024
"""The longest answer, in tokens."""
_MAX_PART_LENGTH = 20_000

Freeze = Callable[[Sequence[SourceText], Sequence[str], Sequence[str]], Awaitable[tuple[Specification, str]]]
"""(files, ids of tests, ids of outdated tests) → what is frozen of them, and what their author is told."""


@dataclass(slots=True)
class Author:
    """Writes one job's specification, within a share of its money. All of it is the work of one durable step.

    After a crash it begins again, and each answer that was bought before is the same: the ledger has it.
    With `sees_change` it is the second author, whose brief has the change: a job never waits for it.
    """

    budgeted_model: ModelPort
    progress: Progress
    open_sandbox: Callable[[], AbstractAsyncContextManager[Sandbox]]
    """A sandbox with the code to look at; opened when there is something to look at."""
    freeze: Freeze
    share: MicroUSD
    sees_change: bool = False
    steps: list[Step] = field(default_factory=list)
    _toolbox: AgentTools | None = None
    _best: Specification = field(default_factory=Specification)
    _executed: int = 0

    async def write(self, key: str, brief: str) -> Specification:
        """The specification; without tests it says why. `key` names the calls (`specification.1`, …).

        Raises ModelError if the provider may answer later, and DayBudgetError.
        """
        started = monotonic()
        try:
            async with AsyncExitStack() as stack:
                absent = await self._converse(key, brief, stack)
        except (ModelError, BudgetError) as error:
            may_answer_later = isinstance(error, ModelError) and error.kind in ("retry", "wait")
            if not self.sees_change and (may_answer_later or isinstance(error, DayBudgetError)):
                raise
            absent = f"the test author could not be asked: {error.message}"
        specification = self._best if self._best.tests else self._best.model_copy(update={"absent": absent})
        usages = [step.answer.usage for step in self.steps]
        update = {
            "model": self.steps[-1].answer.model if self.steps else "",
            "turns": len(self.steps),
            "tokens": sum(usage.prompt_tokens + usage.completion_tokens for usage in usages),
            "cost": self._spent,
            "seconds": round(monotonic() - started, 3),
        }
        return specification.model_copy(update=update)

    @property
    def _spent(self) -> MicroUSD:
        return sum(step.answer.usage.cost for step in self.steps)

    async def _converse(self, key: str, brief: str, stack: AsyncExitStack) -> str:
        """Turn after turn until something is frozen; else why nothing was, as the end of a sentence."""
        system = render("second_author" if self.sees_change else "author")
        head = (Message(role="system", content=system), Message(role="user", content=brief))
        history = ConversationHistory(head, specs(AUTHOR_ACTIONS), self.budgeted_model.info)
        for number in range(1, self._max_turns + 1):
            if self._spent >= self.share:
                return "the test author's share of the budget was used up before it had written them."
            if history.full() and not history.compact():
                return "the issue and the files that it leads to do not fit the test author's model."
            answer = await self.budgeted_model.ask(f"{key}.{number}", history.request())
            calls = parse_calls(answer.tool_calls, number, AUTHOR_ACTIONS)
            toolbox = await self._open_toolbox(calls, stack)
            observations = [await self._observe(call, toolbox, len(calls)) for call in calls]
            self._remember(history, answer, calls, observations, number)
            if self._executed > 1 or self._is_complete():
                return self._best.absent or "none of the tests could be used."
            if reason := next(filter(None, map(_declined_because, calls)), "") or self._stopped_without_tests():
                return reason
        return f"the test author did not hand any in within {self._max_turns} turns."

    @property
    def _max_turns(self) -> int:
        return MAX_SECOND_TURNS if self.sees_change else MAX_TURNS

    def _is_complete(self) -> bool:
        """Nothing has to be corrected; the first author's tests fail on the base for values that the issue lacks."""
        if self.sees_change:
            return self._executed > 0 and not self._best.dropped
        return (
            not self._best.dropped
            and _failing_test_count(self._best) > 1
            and any(test.varies for test in self._best.held_back)
        )

    async def _open_toolbox(self, calls: Sequence[ParsedCall], stack: AsyncExitStack) -> AgentTools | None:
        """The tools to look with, from the first time that there is something to look at."""
        if self._toolbox is None and any(isinstance(call.action, ViewAction | SearchAction) for call in calls):
            self._toolbox = AgentTools(await stack.enter_async_context(self.open_sandbox()), self.progress)
        return self._toolbox

    def _stopped_without_tests(self) -> str:
        silent = [not step.turn.calls for step in self.steps[-2:]]
        return "the test author stopped without handing any in." if silent == [True, True] else ""

    def _remember(
        self,
        history: ConversationHistory,
        answer: ModelAnswer,
        calls: Sequence[ParsedCall],
        observations: Sequence[Observation],
        number: int,
    ) -> None:
        notes = [] if calls else ["Nothing happens without a tool call: view, search, or specify to end."]
        if number == self._max_turns - 2:
            notes.append("You have two turns left: call specify with what you have.")
        tool_calls = tuple(call.call for call in calls)
        step = Step(
            StoredAnswer(answer=answer),
            StoredTurn(number=number, calls=tool_calls, observations=tuple(observations), notes=tuple(notes)),
        )
        self.steps.append(step)
        history.add(step)

    async def _observe(self, parsed: ParsedCall, toolbox: AgentTools | None, calls: int) -> Observation:
        call, action = parsed.call, parsed.action
        if isinstance(action, Specify):
            name = "second tests" if self.sees_change else "specification"
            self.progress.report("note", f"{name}: {len(action.tests)} tests are written")
            return Observation(call_id=call.id, tool=call.name, outcome="ok", text=await self._specify(action))
        if action is None or toolbox is None:
            return Observation(call_id=call.id, tool=call.name, outcome="refused", text=parsed.problem)
        limits = ToolLimits(min(LIMIT, _MAX_LOOKUP_CHARACTERS // calls), LOOKUP_SECONDS, "author")
        result = await toolbox.execute(action, limits)
        return Observation(call_id=call.id, tool=call.name, outcome=result.outcome, text=result.text)

    async def _specify(self, action: Specify) -> str:
        """Have the tests executed and keep the better of two; what their author is told."""
        if not action.tests:
            return "No tests were handed in."
        files = [SourceText(path=file.path.removeprefix("/workspace/"), text=file.content) for file in action.files]
        specification, feedback = await self.freeze(files, action.tests, action.outdated)
        self._executed += specification.runs > 0
        count = len(specification.tests) if self.sees_change else _failing_test_count(specification)
        if count >= (len(self._best.tests) if self.sees_change else _failing_test_count(self._best)):
            self._best = specification
        return f"{feedback}\nCorrect them once, with all files and ids again."


def _declined_because(parsed: ParsedCall) -> str:
    action = parsed.action
    if not isinstance(action, Specify) or action.tests or not action.reason.strip():
        return ""
    return f"the test author says that no test can show this: {one_line(action.reason)}"


def _failing_test_count(specification: Specification) -> int:
    return sum(test.role == "shows" for test in specification.tests)


async def decide_objection(
    ask: Callable[[ModelRequest], Awaitable[ModelAnswer]], issue: str, found: SpecificationResult, objection: str
) -> Settlement:
    """Decide between the fixer and the failing tests; what cannot be decided withdraws nothing.

    Raises ModelError if the provider may answer later, and BudgetError.
    """
    failing = [test.id for test in found.failing]
    output = "\n\n".join(f"{test.id}\n{test.head_text}" for test in found.failing)
    tests = "\n\n".join(f"{file.path}:\n{file.text}" for file in found.files)
    parts = (
        ("The issue", issue),
        ("The tests", tests),
        ("The tests that fail on the changed code, and how", output),
        ("The objection", objection),
    )
    text = "\n\n".join(f"# {title}\n\n{head_and_tail(part, _MAX_PART_LENGTH)}" for title, part in parts)
    messages = (Message(role="system", content=render("objection")), Message(role="user", content=text))
    schema = {
        "type": "object",
        "properties": {"withdrawn": {"type": "array", "items": {"type": "string"}}, "reason": {"type": "string"}},
        "required": ["withdrawn", "reason"],
        "additionalProperties": False,
    }
    request = ModelRequest(
        messages=messages, schema_name="settlement", response_schema=schema, max_tokens=_DECISION_TOKENS
    )
    try:
        decided = read_object((await ask(request)).content)[0]
    except MalformedError:
        decided = {}
    except ModelError as error:
        if error.kind in ("retry", "wait"):
            raise
        decided = {"reason": f"Nobody could be asked: {error.message}"}
    named = decided.get("withdrawn")
    withdrawn = tuple(name for name in failing if isinstance(named, list) and name in named)
    reason = decided.get("reason")
    return Settlement(
        objection=objection,
        kept=tuple(name for name in failing if name not in withdrawn),
        withdrawn=withdrawn,
        reason=one_line(reason)[:1_000] if isinstance(reason, str) else "The answer could not be read as a decision.",
    )
