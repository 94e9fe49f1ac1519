"""The native runner: our own loop over any model, with the six tools.

Each turn asks the model, acts and stores the step. An outcome exception ends it.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from time import monotonic
from typing import Any, NamedTuple

from app.agent import stop_rules
from app.agent.actions import ParsedCall, SubmitAction, parse_calls, specs
from app.agent.base import Assignment, AssignmentAim, ModelPort, Reviewer, RunnerEnding, Submission
from app.agent.history import ConversationHistory
from app.agent.observation import LIMIT
from app.agent.prompts import head
from app.agent.step import (
    Checkpoint,
    Checkpoints,
    Observation,
    Step,
    StoredAnswer,
    StoredTurn,
    SubmissionFate,
    WorkTreePort,
    last_checkpoint,
    last_seen_message,
    unread,
)
from app.agent.stop_rules import AgentOutcome, FailedOutcome, SubmittedOutcome
from app.agent.tools import AgentTools, ToolLimits
from app.core.job import Blobs, Budget, Journal, NoUserMessages, Progress, UserMessage, UserMessages
from app.core.money import DOLLAR
from app.core.patch import Patch
from app.core.text import one_line
from app.llm.base import ModelAnswer
from app.llm.errors import ModelError
from app.sandbox.base import Sandbox
from app.sandbox.changes import Baseline, export, restore

_NOTHING_CHANGED = (
    "Not submitted: /workspace is as it was in the beginning (ignored files do not count). If nothing is to be "
    "changed, submit once more with a summary that says why; the job then ends without a pull request."
)
_NO_REPRODUCTION = (
    "Not submitted yet: there is no reproduction. Give a command that fails on the original code with your changed "
    "test files and passes now, best one that executes a test you added; add the test if there is none. If this change "
    "cannot be shown by a command, submit again without one: the pull request will then say that it is not proved."
)


_UNCHANGED = "Nothing has changed since this was rejected:"
_MESSAGES_FIRST = (
    "Not taken yet: people said something while you worked, which stands below. Take it into account, then submit "
    "again."
)


class SubmissionResult(NamedTuple):
    """A submission, its fate, and the message for the model."""

    submission: Submission
    fate: SubmissionFate
    text: str

    def interrupted(self) -> "SubmissionResult":
        """The result if there are messages that the agent has not read: its work does not end."""
        if self.fate not in {"accepted", "nothing_changed"}:
            return self
        return self._replace(fate="messages_first", text=_MESSAGES_FIRST)


async def handle_submission(
    action: SubmitAction, steps: Sequence[Step], review: Reviewer, aim: AssignmentAim
) -> SubmissionResult:
    """Send back what cannot be verified and review the rest, except for repetitions of a rejected one."""
    fates = [step.turn.fate for step in steps]
    was_requested = "asked_for_reproduction" in fates
    submission = _submission(action).model_copy(update={"reproduction_was_requested": was_requested})
    if aim == "answer":
        return await _reviewed(submission, review)
    tree = last_checkpoint(steps)
    if tree is None or tree.clean:
        return SubmissionResult(submission, "nothing_changed", _NOTHING_CHANGED)
    if not submission.reproduction and not was_requested and aim == "change":
        return SubmissionResult(submission, "asked_for_reproduction", _NO_REPRODUCTION)
    if earlier_rejection := _earlier_rejection(submission, steps):
        return SubmissionResult(
            submission, "rejected", f"{_UNCHANGED}\n{earlier_rejection.removeprefix(_UNCHANGED).strip()}"
        )
    return await _reviewed(submission, review)


def reject_until_messages_read(action: SubmitAction) -> SubmissionResult:
    """A submission that is not reviewed, because people had written before it was made."""
    return SubmissionResult(_submission(action), "messages_first", _MESSAGES_FIRST)


def _submission(action: SubmitAction) -> Submission:
    return Submission(
        summary=action.summary,
        reproduction=action.reproduction.strip(),
        objection=action.objection.strip(),
        lessons=action.lessons,
    )


async def _reviewed(submission: Submission, review: Reviewer) -> SubmissionResult:
    verdict = await review(submission)
    fate: SubmissionFate = "accepted" if verdict.accepted else "rejected" if verdict.broken else "returned"
    return SubmissionResult(submission, fate, verdict.text or f"The submission was {fate}.")


def _earlier_rejection(submission: Submission, steps: Sequence[Step]) -> str:
    """The result of the last submission, if it was rejected, was the same, and the tree has not changed since."""
    tree = last_checkpoint(steps)
    for index in range(len(steps) - 1, -1, -1):
        turn = steps[index].turn
        if turn.fate == "rejected" and turn.submission:
            earlier = turn.submission
            same = earlier.reproduction == submission.reproduction and last_checkpoint(steps[:index]) == tree
            same = same and (earlier.objection == submission.objection or not submission.objection)
            return turn.observations[0].text if same else ""
    return ""


_TURN_LIMIT = 4 * LIMIT
"""Characters of all observations of one turn together."""
_MIN_OBSERVATION = 2_500
_COMPACTIONS = 2
"""Compactions for lack of room without a successful tool call between them; one more would be a loop."""


@dataclass(slots=True)
class AgentLoop:
    """One agent on one assignment. After a crash it reads the same steps from the journal and continues.

    Raises errors that the agent cannot fix (provider, budget, sandbox); the job may be resumed later.
    """

    budgeted_model: ModelPort
    journal: Journal
    progress: Progress
    toolbox: AgentTools
    checkpoints: Checkpoints
    budget: Budget
    history: ConversationHistory
    review: Reviewer
    aim: AssignmentAim = "change"
    user_messages: UserMessages = field(default_factory=NoUserMessages)
    base_suite: Callable[[], str] = str
    """The suite's result before any change; empty until it is known; shown after the turn in progress then."""
    clock: Callable[[], float] = monotonic
    begun: ModelAnswer | None = None
    """The answer to be carried out as the first turn; `then` is said after it."""
    then: str = ""
    compactions: int = 0

    async def work(self) -> RunnerEnding:
        """Turn after turn until an outcome; bounded by `stop_rules` and the budget."""
        self.journal.on_resume(self._restore)
        try:
            for number in count(1):
                stop_rules.check_budget(self.steps, self.budget)
                answer = await self._ask(number)
                turn = await self._act(number, answer)
                self._remember(Step(answer, turn))
                if turn.fate == "accepted" and turn.submission:
                    raise SubmittedOutcome(turn.submission.summary)
                if not turn.user_messages:  # the agent gets another chance after a message
                    stop_rules.check_answers(self.steps)
        except AgentOutcome as outcome:
            return self._ending(outcome)
        raise AssertionError("the count of turns has no end")

    @property
    def steps(self) -> list[Step]:
        return self.history.steps

    def _remember(self, step: Step) -> None:
        self.history.add(step)
        if step.executed:
            self.compactions = 0

    def _ending(self, outcome: AgentOutcome) -> RunnerEnding:
        submissions = [step.turn.submission for step in self.steps if step.turn.submission]
        return RunnerEnding(
            exit_status=outcome.exit_status,
            submission=submissions[-1] if submissions else None,
            turns=len(self.steps),
            reason=outcome.reason,
            claim=outcome.claim,
        )

    async def _ask(self, number: int) -> StoredAnswer:
        """The answer, stored before any of it is carried out; a prompt that is too long or expensive is compacted
        first."""
        if self.history.full():
            self._condense()  # if that is impossible, budget and provider decide
        elif self.history.should_compact_for_cost() and not self.compactions:
            self._compact()  # not counted: it is for the price, and what does not fit may still be condensed twice
        for attempt in count(1):
            name = f"turn.{number}" if attempt == 1 else f"turn.{number}.{attempt}"
            try:
                return await self.journal.step(f"{name}.answer", StoredAnswer, partial(self._query, name, number))
            except ModelError as error:
                if error.kind != "shrink":
                    raise
            self.history.refused()
            if not self._condense():
                size, name = self.history.tokens(), self.history.info.name
                raise FailedOutcome(f"The work does not fit {name}: about {size:,} tokens, which cannot be reduced.")
        raise AssertionError("compactions are bounded")

    async def _query(self, name: str, number: int) -> StoredAnswer:
        self.progress.report("step", f"turn {number} of at most {self.budget.steps}")
        if self.begun is not None and not self.steps:
            return StoredAnswer(answer=self.begun)
        started = self.clock()
        answer = await self.budgeted_model.ask(name, self.history.request())
        seconds = self.clock() - started
        unread = await self.user_messages.since(last_seen_message(self.steps))
        return StoredAnswer(answer=answer, seconds=seconds, unread_messages=bool(unread))

    def _condense(self) -> bool:
        """Compact because the prompt does not fit; False if that does not help or was already tried."""
        if self.compactions >= _COMPACTIONS or not self._compact():
            return False
        self.compactions += 1
        return True

    def _compact(self) -> bool:
        """Replace old turns by a digest; False if that would not make the prompt clearly smaller."""
        if not self.history.compact():
            return False
        self.progress.report("note", "The conversation was condensed: its earlier part is a digest from now on.")
        return True

    async def _act(self, number: int, stored_answer: StoredAnswer) -> StoredTurn:
        """Act on the answer. A submission is handled outside the step, because its review stores its own steps."""
        started = self.clock()
        answer = stored_answer.answer
        calls = () if answer.finish_reason in {"length", "content_filter"} else parse_calls(answer.tool_calls, number)
        submission_result = None
        if len(calls) == 1 and isinstance(calls[0].action, SubmitAction):
            submit, messages_waiting = calls[0].action, stored_answer.unread_messages
            submission_result = (
                reject_until_messages_read(submit)
                if messages_waiting
                else await handle_submission(submit, self.steps, self.review, self.aim)
            )
        turn_input = TurnInput(number, stored_answer, calls, submission_result, started)
        return await self.journal.step(f"turn.{number}.act", StoredTurn, partial(self._carry_out, turn_input))

    async def _carry_out(self, turn_input: "TurnInput") -> StoredTurn:
        """Run the calls in order and save the tree; after a crash, starting from the previous turn's tree."""
        if turn_input.submission_result is not None:
            turn_input = await self._read_messages(turn_input)
        observations = [await self._observe(turn_input, index) for index in range(len(turn_input.calls))]
        if turn_input.submission_result is None:
            turn_input = await self._read_messages(turn_input)
        touched = any(
            call.action is not None and call.action.changes_files and observation.outcome == "ok"
            for call, observation in zip(turn_input.calls, observations, strict=True)
        )
        turn = StoredTurn(
            number=turn_input.number,
            calls=tuple(parsed.call for parsed in turn_input.calls),
            observations=tuple(observations),
            base_suite="" if any(step.turn.base_suite for step in self.steps) else self.base_suite(),
            user_messages=turn_input.words,
            checkpoint=await self.checkpoints.take() if touched else None,
            submission=turn_input.submission_result.submission if turn_input.submission_result else None,
            fate=turn_input.submission_result.fate if turn_input.submission_result else None,
            seconds=self.clock() - turn_input.begun,
        )
        return turn.model_copy(update={"notes": self._notes(Step(turn_input.stored_answer, turn))})

    async def _read_messages(self, turn_input: "TurnInput") -> "TurnInput":
        """Once a turn: before a submission is taken, or after the calls."""
        words = await unread(self.user_messages, self.steps)
        if words:
            self.progress.report(
                "note", f"read messages from: {', '.join(one_line(message.author) for message in words)}"
            )
        submission_result = (
            turn_input.submission_result.interrupted()
            if turn_input.submission_result and words
            else turn_input.submission_result
        )
        return turn_input._replace(words=words, submission_result=submission_result)

    async def _observe(self, turn_input: "TurnInput", index: int) -> Observation:
        parsed = turn_input.calls[index]
        call, action = parsed.call, parsed.action
        observation = partial(Observation, call_id=call.id, tool=call.name)
        if action is None:
            self.progress.report("warning", parsed.problem[:300])
            return observation(outcome="refused", text=parsed.problem, summary=parsed.problem[:200])
        self.progress.report("command", f"{call.name} {one_line(action.target)[:200]}")
        if isinstance(action, SubmitAction):
            return self._submission_observation(observation, turn_input.submission_result)
        result = await self.toolbox.execute(action, self._allowance(turn_input, index))
        self.progress.report("observation", one_line(result.summary)[:200])
        return observation(
            outcome=result.outcome, text=result.text, summary=result.summary, fingerprint=result.fingerprint
        )

    def _submission_observation(
        self, observation: Callable[..., Observation], submission_result: SubmissionResult | None
    ) -> Observation:
        if submission_result is None:
            text = "Not submitted: submit has to be the only call of its turn."
            return observation(outcome="not_executed", text=text, summary=text)
        self.progress.report("observation", submission_result.fate.replace("_", " "))
        fingerprint = f"{submission_result.fate} {submission_result.submission.reproduction}"
        return observation(
            outcome="ok", text=submission_result.text, summary=submission_result.fate, fingerprint=fingerprint
        )

    def _allowance(self, turn_input: "TurnInput", index: int) -> ToolLimits:
        """The calls of a turn share its space, which is smaller for a small window."""
        fair = max(_MIN_OBSERVATION, _TURN_LIMIT // len(turn_input.calls))
        small_window = max(1_000, self.history.info.context_window * 2 // 5)
        left = stop_rules.seconds_left(self.steps, self.budget) - (self.clock() - turn_input.begun)
        return ToolLimits(min(LIMIT, fair, small_window), left, f"{turn_input.number}-{index + 1}")

    def _notes(self, step: Step) -> tuple[str, ...]:
        steps = [*self.steps, step]
        known = {refusal.path for refusal in self._tree().refusals}
        new = [r for r in (step.turn.checkpoint or self._tree()).refusals if r.path not in known]
        refused = "\n".join(f"- {one_line(r.path)[:200]}: {r.reason}" for r in new[:10])
        notes = [
            "" if self.steps else self.then,
            *stop_rules.notes(steps),
            f"These can never be part of the patch; remove them:\n{refused}" if refused else "",
            stop_rules.budget_note(steps, self.budget),
        ]
        return tuple(filter(None, notes))

    async def _restore(self) -> None:
        """Restore the last finished turn's tree after a crash or on another machine."""
        await self.checkpoints.restore(self._tree())

    def _tree(self) -> Checkpoint:
        return last_checkpoint(self.steps) or self.checkpoints.clean


class TurnInput(NamedTuple):
    """An answer that is about to be carried out."""

    number: int
    stored_answer: StoredAnswer
    calls: tuple[ParsedCall, ...]
    submission_result: SubmissionResult | None
    begun: float
    words: tuple[UserMessage, ...] = ()


def lines(steps: Iterable[Step]) -> Iterator[str]:
    """JSON lines without line ends. `cost` is in US dollars; `files` are the changed paths after the step."""
    for step in steps:
        yield json.dumps(record(step), ensure_ascii=False).encode("utf-8", "replace").decode()


def record(step: Step) -> Mapping[str, Any]:
    """One step as plain data: the model's answer, then each call with its observation."""
    answer, turn = step.stored_answer.answer, step.turn
    entry: dict[str, Any] = {
        "step": turn.number,
        "model": answer.model,
        "content": answer.content,
        "finish_reason": answer.finish_reason,
        "actions": [
            {
                "tool": call.name,
                "arguments": json.loads(call.arguments),
                "outcome": seen.outcome,
                "observation": seen.text,
            }
            for call, seen in zip(turn.calls, turn.observations, strict=True)
        ],
        "notes": [*turn.notes, *filter(None, [turn.base_suite])],
        "words": [message.model_dump() for message in turn.user_messages],
        "usage": {**answer.usage.model_dump(exclude={"cost"}), "cost": answer.usage.cost / DOLLAR},
        "seconds": {"model": round(step.stored_answer.seconds, 3), "actions": round(turn.seconds, 3)},
    }
    if turn.checkpoint is not None:
        entry["files"] = [state.path for state in turn.checkpoint.files]
    if turn.fate is not None:
        entry["submission"] = turn.fate
    return entry


@dataclass(frozen=True, slots=True)
class RunnerContext:
    """All that a runner may use: a budgeted model, a sandbox, the job's storage; no git, GitHub or host files."""

    budgeted_model: ModelPort
    sandbox: Sandbox
    baseline: Baseline
    journal: Journal
    blobs: Blobs
    progress: Progress
    budget: Budget
    user_messages: UserMessages = field(default_factory=NoUserMessages)
    base_suite: Callable[[], str] = str
    """What the agent is told about the suite on the base; empty until that is known."""


class SandboxTree:
    """The tree of one sandbox."""

    def __init__(self, sandbox: Sandbox, baseline: Baseline) -> None:
        self._sandbox = sandbox
        self._baseline = baseline

    async def export(self) -> Patch:
        return await export(self._sandbox, self._baseline)

    async def restore(self, patch: Patch) -> None:
        await restore(self._sandbox, self._baseline, patch)


class NativeRunner:
    """Works through an assignment; afterwards `trajectory` has every step, including those of earlier processes.

    `work` calls `review` outside its own steps, and again for each submission of a resumed job, so the review must
    store its own steps. Raises errors that the agent cannot fix (budget, provider, sandbox).
    """

    name = "native"

    def __init__(self, context: RunnerContext, *, tree: WorkTreePort | None = None) -> None:
        self._context = context
        self._tree = tree or SandboxTree(context.sandbox, context.baseline)
        self._steps: Sequence[Step] = ()

    async def work(self, assignment: Assignment, review: Reviewer) -> RunnerEnding:
        context = self._context
        opening = head(assignment.brief, assignment.aim, assignment.opening)
        history = ConversationHistory(opening, specs(), context.budgeted_model.info)
        self._steps = history.steps
        loop = AgentLoop(
            budgeted_model=context.budgeted_model,
            journal=context.journal,
            progress=context.progress,
            toolbox=AgentTools(context.sandbox, context.progress),
            checkpoints=Checkpoints(self._tree, context.blobs, context.baseline.tree.commit),
            budget=context.budget,
            history=history,
            review=review,
            aim=assignment.aim,
            user_messages=context.user_messages,
            base_suite=context.base_suite,
            begun=assignment.begun,
            then=assignment.then,
        )
        return await loop.work()

    @property
    def steps(self) -> Sequence[Step]:
        return tuple(self._steps)

    def trajectory(self) -> Iterator[str]:
        """JSON lines, one for each step."""
        return lines(self._steps)
