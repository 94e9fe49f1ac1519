"""The native runner: our own loop over any model, with the six tools.

Each turn asks the model, acts and stores the step. An outcome exception ends it.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from time import monotonic
from typing import Any, NamedTuple

from app.agent import stop_rules
from app.agent.actions import MAX_SUMMARY, ParsedCall, PlanAction, SubmitAction, parse_calls, specs
from app.agent.base import Assignment, Reviewer, RunnerContext, RunnerEnding, Submission
from app.agent.history import ConversationHistory
from app.agent.observation import LIMIT
from app.agent.prompts import head
from app.agent.step import (
    Checkpoint,
    Checkpoints,
    Observation,
    SandboxTree,
    Step,
    StoredAnswer,
    StoredTurn,
    SubmissionFate,
    WorkTreePort,
    last_checkpoint,
    last_seen_message,
    unread,
)
from app.agent.stop_rules import AgentOutcome
from app.agent.tools import AgentTools, ToolLimits
from app.core.job import UserMessage
from app.core.model_usage import DOLLAR
from app.core.patch import Patch
from app.core.text import one_line
from app.llm.errors import ModelError

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
    action: SubmitAction, steps: Sequence[Step], review: Reviewer, assignment: Assignment, *, unread_messages: bool
) -> SubmissionResult:
    """Send back what cannot be verified and review the rest, except for repetitions of a rejected one.

    `unread_messages`: people had written before the submission was made, so it is not reviewed.
    """
    submission = action.submission
    if unread_messages:
        return SubmissionResult(submission, "messages_first", _MESSAGES_FIRST)
    was_requested = any(step.turn.fate == "asked_for_reproduction" for step in steps)
    submission = submission.model_copy(update={"reproduction_was_requested": was_requested})
    aim = assignment.aim
    if aim != "answer":
        tree = last_checkpoint(steps)
        if tree is None or tree.clean:
            return SubmissionResult(submission, "nothing_changed", _NOTHING_CHANGED)
        unshown = not submission.reproduction and not assignment.has_examples
        if unshown and not was_requested and aim == "change":
            return SubmissionResult(submission, "asked_for_reproduction", _NO_REPRODUCTION)
        if earlier_rejection := _earlier_rejection(submission, steps):
            text = f"{_UNCHANGED}\n{earlier_rejection.removeprefix(_UNCHANGED).strip()}"
            return SubmissionResult(submission, "rejected", text)
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
            same = same and (earlier.objections == submission.objections or not submission.objections)
            return turn.observations[0].text if same else ""
    return ""


_TURN_LIMIT = 4 * LIMIT
"""Characters of all observations of one turn together."""
_MIN_OBSERVATION = 2_500
_COMPACTIONS = 2
"""Compactions for lack of room without a successful tool call between them; one more would be a loop."""


class NativeRunner:
    """Our own agent. After a crash it reads the same steps from the journal and continues.

    `work` calls `review` outside its own steps, and again for each submission of a resumed job, so the review must
    store its own steps. Raises errors that the agent cannot fix (budget, provider, sandbox); the job may be resumed
    later.
    """

    def __init__(
        self, context: RunnerContext, *, tree: WorkTreePort | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        self._context = context
        self._clock = clock
        self._tools = AgentTools(context.sandbox, context.progress, context.baseline)
        tree = tree or SandboxTree(context.sandbox, context.baseline)
        self._checkpoints = Checkpoints(tree, context.blobs, context.baseline.tree.commit)
        self._history = ConversationHistory((), specs(), context.budgeted_model.info)
        self._assignment: Assignment
        self._review: Reviewer
        self._compactions = 0

    async def work(self, assignment: Assignment, review: Reviewer) -> RunnerEnding:
        """Turn after turn until an outcome; bounded by `stop_rules` and the budget."""
        context = self._context
        opening = head(assignment.brief, assignment.aim, assignment.opening)
        self._history = ConversationHistory(opening, specs(), context.budgeted_model.info)
        self._assignment, self._review, self._compactions = assignment, review, 0
        context.journal.on_resume(self._restore)
        try:
            for number in count(1):
                stop_rules.check_budget(self._history.steps, context.budget)
                answer = await self._ask(number)
                turn = await self._act(number, answer)
                step = Step(answer, turn)
                self._history.add(step)
                if step.executed:
                    self._compactions = 0
                if turn.fate == "accepted" or not turn.user_messages:  # the agent gets another chance after a message
                    stop_rules.raise_if_over(self.steps)
        except AgentOutcome as outcome:
            submissions = [step.turn.submission for step in self.steps if step.turn.submission]
            return RunnerEnding(
                exit_status=outcome.exit_status,
                submission=submissions[-1] if submissions else None,
                turns=len(self.steps),
                reason=outcome.reason,
                claim=outcome.claim,
            )
        raise AssertionError("the count of turns has no end")

    async def _ask(self, number: int) -> StoredAnswer:
        """The answer, stored before any of it is carried out; a prompt that is too long or expensive is compacted
        first."""
        if self._history.full():
            self._condense()  # if that is impossible, budget and provider decide
        elif self._history.should_compact_for_cost() and not self._compactions:
            self._compact()  # not counted: it is for the price, and what does not fit may still be condensed twice
        for attempt in count(1):
            name = f"turn.{number}" if attempt == 1 else f"turn.{number}.{attempt}"
            try:
                return await self._context.journal.step(
                    f"{name}.answer", StoredAnswer, partial(self._query, name, number)
                )
            except ModelError as error:
                if error.kind != "shrink":
                    raise
            self._history.refused()
            if not self._condense():
                size, name = self._history.tokens(), self._history.info.name
                raise AgentOutcome(f"The work does not fit {name}: about {size:,} tokens, which cannot be reduced.")
        raise AssertionError("compactions are bounded")

    async def _query(self, name: str, number: int) -> StoredAnswer:
        self._context.progress.report("step", f"turn {number} of at most {self._context.budget.steps}")
        started = self._clock()
        answer = await self._context.budgeted_model.ask(name, self._history.request())
        seconds = self._clock() - started
        unread = await self._context.user_messages.since(last_seen_message(self.steps))
        return StoredAnswer(answer=answer, seconds=seconds, unread_messages=bool(unread))

    def _condense(self) -> bool:
        """Compact because the prompt does not fit; False if that does not help or was already tried."""
        if self._compactions >= _COMPACTIONS or not self._compact():
            return False
        self._compactions += 1
        return True

    def _compact(self) -> bool:
        """Replace old turns by a digest; False if that would not make the prompt clearly smaller."""
        if not self._history.compact():
            return False
        self._context.progress.report(
            "note", "The conversation was condensed: its earlier part is a digest from now on."
        )
        return True

    async def _act(self, number: int, stored_answer: StoredAnswer) -> StoredTurn:
        """Act on the answer. A submission is handled outside the step, because its review stores its own steps."""
        started = self._clock()
        answer = stored_answer.answer
        calls = () if answer.finish_reason in {"length", "content_filter"} else parse_calls(answer.tool_calls, number)
        result = None
        submitted = calls[0].action if len(calls) == 1 else None
        if self._assignment.aim == "answer" and answer.finish_reason == "stop" and not calls and answer.content.strip():
            submitted = SubmitAction(summary=answer.content[:MAX_SUMMARY])  # a text without a call is the answer
        if isinstance(submitted, SubmitAction):
            unread_messages = stored_answer.unread_messages
            result = await handle_submission(
                submitted, self.steps, self._review, self._assignment, unread_messages=unread_messages
            )
        work = partial(self._carry_out, number, stored_answer, calls, result, started)
        return await self._context.journal.step(f"turn.{number}.act", StoredTurn, work)

    async def _carry_out(
        self,
        number: int,
        stored_answer: StoredAnswer,
        calls: Sequence[ParsedCall],
        submission_result: SubmissionResult | None,
        started: float,
    ) -> StoredTurn:
        """Run the calls in order and save the tree; after a crash, starting from the previous turn's tree."""
        messages: tuple[UserMessage, ...] = ()
        if submission_result is not None:  # messages are read before a submission is taken, or after the calls
            messages = await self._read_messages()
            submission_result = submission_result.interrupted() if messages else submission_result
        share = max(_MIN_OBSERVATION, _TURN_LIMIT // max(len(calls), 1))  # of the space for a turn's observations
        characters = min(LIMIT, share, max(1_000, self._history.info.context_window * 2 // 5))
        observations = []
        for index, parsed in enumerate(calls, start=1):
            if parsed.action is None or isinstance(parsed.action, SubmitAction | PlanAction):
                observations.append(self._without_tools(parsed, submission_result))
                continue
            call, action = parsed.call, parsed.action
            self._context.progress.report("command", f"{call.name} {one_line(action.target)[:200]}")
            seconds = stop_rules.seconds_left(self.steps, self._context.budget) - (self._clock() - started)
            result = await self._tools.execute(action, ToolLimits(characters, seconds, f"{number}-{index}"))
            self._context.progress.report("observation", one_line(result.summary)[:200])
            observations.append(
                Observation(
                    call_id=call.id,
                    tool=call.name,
                    outcome=result.outcome,
                    text="\n".join(filter(None, (parsed.note, result.text))),
                    summary=result.summary,
                    fingerprint=result.fingerprint,
                )
            )
        if submission_result is None:
            messages = await self._read_messages()
        touched = any(
            call.action is not None and call.action.changes_files and observation.outcome == "ok"
            for call, observation in zip(calls, observations, strict=True)
        )
        suite_was_shown = any(step.turn.base_suite for step in self.steps)
        turn = StoredTurn(
            number=number,
            calls=tuple(parsed.call for parsed in calls),
            observations=tuple(observations),
            base_suite="" if suite_was_shown else self._context.base_suite(),
            user_messages=messages,
            checkpoint=await self._checkpoints.take() if touched else None,
            submission=submission_result.submission if submission_result else None,
            fate=submission_result.fate if submission_result else None,
            seconds=self._clock() - started,
        )
        return turn.model_copy(update={"notes": self._notes(Step(stored_answer, turn))})

    async def _read_messages(self) -> tuple[UserMessage, ...]:
        messages = await unread(self._context.user_messages, self.steps)
        if messages:
            authors = ", ".join(one_line(message.author) for message in messages)
            self._context.progress.report("note", f"read messages from: {authors}")
        return messages

    def _without_tools(self, parsed: ParsedCall, submission_result: SubmissionResult | None) -> Observation:
        """The result of a malformed call, or of a submission."""
        observation = partial(Observation, call_id=parsed.call.id, tool=parsed.call.name)
        report = self._context.progress.report
        if parsed.action is None:
            report("warning", parsed.problem[:300])
            return observation(outcome="refused", text=parsed.problem, summary=parsed.problem[:200])
        report("command", f"{parsed.call.name} {one_line(parsed.action.target)[:200]}")
        if isinstance(parsed.action, PlanAction):
            text = "The plan is made: carry it out, and go by what you find."
            return observation(outcome="not_executed", text=text, summary=text)
        if submission_result is None:
            text = "Not submitted: submit has to be the only call of its turn."
            return observation(outcome="not_executed", text=text, summary=text)
        submission, fate, text = submission_result
        report("observation", fate.replace("_", " "))
        return observation(outcome="ok", text=text, summary=fate, fingerprint=f"{fate} {submission.reproduction}")

    def _notes(self, step: Step) -> tuple[str, ...]:
        steps = [*self.steps, step]
        known = {refusal.path for refusal in self._tree().refusals}
        new = [r for r in (step.turn.checkpoint or self._tree()).refusals if r.path not in known]
        refused = "\n".join(f"- {one_line(r.path)[:200]}: {r.reason}" for r in new[:10])
        notes = [
            *stop_rules.notes(steps),
            f"These can never be part of the patch; remove them:\n{refused}" if refused else "",
            stop_rules.budget_note(steps, self._context.budget),
        ]
        return tuple(filter(None, notes))

    async def _restore(self) -> None:
        """Restore the last finished turn's tree after a crash or on another machine."""
        await self._checkpoints.restore(self._tree())

    def _tree(self) -> Checkpoint:
        return last_checkpoint(self.steps) or self._checkpoints.clean

    def last_change(self) -> Patch:
        return self._checkpoints.change_at(self._tree())

    @property
    def steps(self) -> Sequence[Step]:
        return self._history.steps

    def trajectory(self) -> Iterator[str]:
        """JSON lines without line ends, one for each step, including those of earlier processes."""
        for step in self.steps:
            yield json.dumps(record(step), ensure_ascii=False).encode("utf-8", "replace").decode()


def record(step: Step) -> Mapping[str, Any]:
    """One step as plain data: the model's answer, then each call with its observation. `cost` is in US dollars; `files`
    are the changed paths after the step."""
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
