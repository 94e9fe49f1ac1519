"""The native agent's loop: ask, act, remember; one append-only list of steps, and an outcome ends it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from time import monotonic
from typing import NamedTuple

from app.agent import conduct
from app.agent.actions import Submit
from app.agent.asks import Asks
from app.agent.calls import Admitted, admit
from app.agent.checkpoint import Checkpoints
from app.agent.digest import last_checkpoint
from app.agent.history import History
from app.agent.observe import LIMIT
from app.agent.outcomes import Ended, Failed, Submitted
from app.agent.submitting import Hearing, hear, put_off
from app.agent.tools import Allowance, Toolbox
from app.agent.turn import Asked, Checkpoint, Observation, Step, Turn
from app.agent.words import last_heard, unread
from app.job import Budget, Heard, Journal, Progress, Silence, Steering
from app.model.errors import ModelError
from app.runners.base import Aim, Ending, Reviewer
from app.text import one_line

_TURN_LIMIT = 4 * LIMIT
"""Characters of all observations of one turn together."""
_SMALLEST = 2_500
_COMPACTIONS = 2
"""Compactions without a tool call carried out between them; a further one would be a circle."""


@dataclass(slots=True)
class Loop:
    """One agent at work on one assignment. After a crash it hears the same steps from the journal, and goes on.

    Raises what cannot be mended by the agent (a dead provider, spent money, a lost sandbox): the job may go on later.
    """

    meter: Asks
    journal: Journal
    progress: Progress
    toolbox: Toolbox
    checkpoints: Checkpoints
    budget: Budget
    history: History
    review: Reviewer
    aim: Aim = "change"
    steering: Steering = field(default_factory=Silence)
    clock: Callable[[], float] = monotonic
    compactions: int = 0

    async def work(self) -> Ending:
        """Turn after turn until an outcome; every path is bounded by `conduct` and the budget."""
        self.journal.first(self._restore)
        try:
            for number in count(1):
                conduct.check_budget(self.steps, self.budget)
                asked = await self._ask(number)
                turn = await self._act(number, asked)
                self._remember(Step(asked, turn))
                if turn.fate == "accepted" and turn.submission:
                    raise Submitted(turn.submission.summary)
                if not turn.words:  # whoever was just spoken to has another chance
                    conduct.judge(self.steps)
        except Ended as outcome:
            return self._ending(outcome)
        raise AssertionError("the count of turns has no end")

    @property
    def steps(self) -> list[Step]:
        return self.history.steps

    def _remember(self, step: Step) -> None:
        self.history.add(step)
        if step.executed:
            self.compactions = 0

    def _ending(self, outcome: Ended) -> Ending:
        submissions = [step.turn.submission for step in self.steps if step.turn.submission]
        return Ending(
            exit_status=outcome.exit_status,
            submission=submissions[-1] if submissions else None,
            turns=len(self.steps),
            reason=outcome.reason,
            claim=outcome.claim,
        )

    async def _ask(self, number: int) -> Asked:
        """The answer, stored before anything of it is carried out; a prompt that is too long, or dear, is compacted."""
        if self.history.full() or (self.history.dear() and not self.compactions):
            self._condense()  # where it cannot be, the meter and the provider have the word
        for attempt in count(1):
            name = f"turn.{number}" if attempt == 1 else f"turn.{number}.{attempt}"
            try:
                return await self.journal.step(f"{name}.answer", Asked, partial(self._query, name))
            except ModelError as error:
                if error.kind != "shrink":
                    raise
            self.history.refused()
            if not self._condense():
                size, name = self.history.tokens(), self.history.info.name
                raise Failed(f"The work does not fit {name}: about {size:,} tokens, and they cannot be made fewer.")
        raise AssertionError("compactions are bounded")

    async def _query(self, name: str) -> Asked:
        begun = self.clock()
        answer = await self.meter.ask(name, self.history.request())
        seconds = self.clock() - begun
        waiting = await self.steering.since(last_heard(self.steps))
        return Asked(answer=answer, seconds=seconds, words_waiting=bool(waiting))

    def _condense(self) -> bool:
        """Replace old turns by a digest; False where that is of no use, or has been tried."""
        if self.compactions >= _COMPACTIONS or not self.history.compact():
            return False
        self.compactions += 1
        self.progress.say("note", "The conversation was condensed: its earlier part is a digest from now on.")
        return True

    async def _act(self, number: int, asked: Asked) -> Turn:
        """What becomes of the answer. A submission is heard outside the step: the review is durable in itself."""
        begun = self.clock()
        answer = asked.answer
        calls = () if answer.finish_reason in {"length", "content_filter"} else admit(answer.tool_calls, number)
        hearing = None
        if len(calls) == 1 and isinstance(calls[0].action, Submit):
            submit, late = calls[0].action, asked.words_waiting
            hearing = put_off(submit) if late else await hear(submit, self.steps, self.review, self.aim)
        scene = _Scene(number, asked, calls, hearing, begun)
        return await self.journal.step(f"turn.{number}.act", Turn, partial(self._carry_out, scene))

    async def _carry_out(self, scene: "_Scene") -> Turn:
        """Carry out the calls in order and remember the tree; after a crash on the tree as the turn before left it."""
        self.progress.say("step", f"turn {scene.number} of at most {self.budget.steps}")
        if scene.hearing is not None:
            scene = await self._listen(scene)
        observations = [await self._observe(scene, index) for index in range(len(scene.calls))]
        if scene.hearing is None:
            scene = await self._listen(scene)
        touched = any(
            call.action is not None and call.action.changes_files and seen.outcome == "ok"
            for call, seen in zip(scene.calls, observations, strict=True)
        )
        turn = Turn(
            number=scene.number,
            calls=tuple(admitted.call for admitted in scene.calls),
            observations=tuple(observations),
            words=scene.words,
            checkpoint=await self.checkpoints.take() if touched else None,
            submission=scene.hearing.submission if scene.hearing else None,
            fate=scene.hearing.fate if scene.hearing else None,
            seconds=self.clock() - scene.begun,
        )
        return turn.model_copy(update={"notes": self._notes(Step(scene.asked, turn))})

    async def _listen(self, scene: "_Scene") -> "_Scene":
        """Once a turn: before a submission is taken, or else when the calls are done."""
        words = await unread(self.steering, self.steps)
        if words:
            self.progress.say("note", f"heard: {', '.join(one_line(said.who) for said in words)}")
        hearing = scene.hearing.interrupted() if scene.hearing and words else scene.hearing
        return scene._replace(words=words, hearing=hearing)

    async def _observe(self, scene: "_Scene", index: int) -> Observation:
        admitted = scene.calls[index]
        call, action = admitted.call, admitted.action
        seen = partial(Observation, call_id=call.id, tool=call.name)
        if action is None:
            self.progress.say("warning", admitted.problem[:300])
            return seen(outcome="refused", text=admitted.problem, summary=admitted.problem[:200])
        self.progress.say("command", f"{call.name} {one_line(action.target)[:200]}")
        if isinstance(action, Submit):
            return self._of_submission(seen, scene.hearing)
        done = await self.toolbox.execute(action, self._allowance(scene, index))
        self.progress.say("observation", one_line(done.summary)[:200])
        return seen(outcome=done.outcome, text=done.text, summary=done.summary, fingerprint=done.fingerprint)

    def _of_submission(self, seen: Callable[..., Observation], hearing: Hearing | None) -> Observation:
        if hearing is None:
            text = "Not submitted: submit has to be the only call of its turn."
            return seen(outcome="not_executed", text=text, summary=text)
        self.progress.say("observation", hearing.fate.replace("_", " "))
        fingerprint = f"{hearing.fate} {hearing.submission.reproduction}"
        return seen(outcome="ok", text=hearing.text, summary=hearing.fate, fingerprint=fingerprint)

    def _allowance(self, scene: "_Scene", index: int) -> Allowance:
        """Many calls in a turn share its room; a small window makes all of it smaller."""
        fair = max(_SMALLEST, _TURN_LIMIT // len(scene.calls))
        small_window = max(1_000, self.history.info.context_window * 2 // 5)
        left = conduct.seconds_left(self.steps, self.budget) - (self.clock() - scene.begun)
        return Allowance(min(LIMIT, fair, small_window), left, f"{scene.number}-{index + 1}")

    def _notes(self, step: Step) -> tuple[str, ...]:
        steps = [*self.steps, step]
        known = {refusal.path for refusal in self._tree().refusals}
        new = [r for r in (step.turn.checkpoint or self._tree()).refusals if r.path not in known]
        refused = "\n".join(f"- {one_line(r.path)[:200]}: {r.reason}" for r in new[:10])
        notes = [
            *conduct.notes(steps),
            f"These can never be part of the patch; remove them:\n{refused}" if refused else "",
            conduct.budget_note(steps, self.budget),
        ]
        return tuple(filter(None, notes))

    async def _restore(self) -> None:
        """The tree as the last finished turn left it: half changed by who died, or lost with another machine."""
        await self.checkpoints.restore(self._tree())

    def _tree(self) -> Checkpoint:
        return last_checkpoint(self.steps) or self.checkpoints.clean


class _Scene(NamedTuple):
    """An answer about to be acted upon."""

    number: int
    asked: Asked
    calls: tuple[Admitted, ...]
    hearing: Hearing | None
    begun: float
    words: tuple[Heard, ...] = ()
