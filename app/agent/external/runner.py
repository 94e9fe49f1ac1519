"""Runs another coding agent in our sandbox; its work is reviewed like our own agent's.

task ─► the agent, start to end ─► its tree and its submission ─► review ─► accepted.

A rejection, with its facts, or new user messages start it again, at most ROUNDS times.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

from app.agent.base import Assignment, Reviewer, ReviewResult, RunnerEnding, Submission
from app.agent.checkpoints import Checkpoints
from app.agent.external.agent_run import AgentRun, last_words, lines
from app.agent.external.gateway.exchange import Exchange
from app.agent.external.model_socket import ModelSocket
from app.agent.external.recipe import AgentRecipe
from app.agent.external.start import LISTENS_SECONDS, SUBMISSION, TAIL, AgentStart, AgentTask
from app.agent.native import RunnerContext, SandboxTree
from app.agent.prompts import render
from app.agent.step import Checkpoint
from app.agent.user_messages import format_messages
from app.core.job import UserMessage

ROUNDS = 4
STARTS = 40
"""Includes starts that were cut short and continued with more money, and those interrupted by messages."""


@dataclass(slots=True)
class ExternalRunner:
    """Works through an assignment by starting the agent of `recipe`; `work` stores its own steps, as the native one."""

    recipe: AgentRecipe
    context: RunnerContext
    model_socket: ModelSocket
    user_messages_interrupt: float = LISTENS_SECONDS
    rounds: list[AgentRun] = field(default_factory=list)
    _started: int = 0

    @property
    def name(self) -> str:
        return self.recipe.name

    async def work(self, assignment: Assignment, review: Reviewer) -> RunnerEnding:
        context = self.context
        tree = SandboxTree(context.sandbox, context.baseline)
        checkpoints = Checkpoints(tree, context.blobs, context.baseline.tree.commit)
        context.journal.on_resume(partial(self._restore, checkpoints))
        answer: ReviewResult | None = None
        for number in range(1, STARTS + 1):
            before = self._started
            start = partial(self._start, number, assignment, answer, checkpoints)
            done = await context.journal.step(self._named(number), AgentRun, start)
            self.rounds.append(done)
            if done.cut_short and self._started == before:
                continue  # in another process; the limit was raised before the job was resumed
            if done.cut_short:
                return self._ending("limit_reached", done.cut_short, None)
            if done.spoken_to or (done.again and not done.turns):
                continue  # with the new messages; or from the beginning if there is no conversation to continue
            if done.submission is None:
                return self._without_submission(done)
            answer = await review(done.submission)
            if answer.accepted:
                return self._ending("submitted", "", done.submission)
            if sum(not (each.cut_short or each.spoken_to) for each in self.rounds) >= ROUNDS:
                break
        reason = f"{self.recipe.title} was started {len(self.rounds)} times, and its change was not accepted."
        return self._ending("error", reason, self.rounds[-1].submission)

    async def _start(
        self, number: int, assignment: Assignment, answer: ReviewResult | None, checkpoints: Checkpoints
    ) -> AgentRun:
        """One start from beginning to end. Its result is stored even if a limit or people ended it."""
        begun = monotonic()
        task = await self._task(assignment, answer)
        self._started += 1
        self.context.progress.report("step", f"{self.recipe.title}, start {number}")
        name, turns, seconds = self._named(number), self._turns_left(), self._seconds_left()
        start = AgentStart(
            self.recipe, self.context, self.model_socket, name, turns, seconds, self.user_messages_interrupt
        )
        left = await start.make(task)
        self.context.progress.report("observation", f"{self.name} ended with exit code {left.done.exit_code}")
        checkpoint = await checkpoints.take()
        return AgentRun(
            number=number,
            exit_code=left.done.exit_code,
            seconds=round(monotonic() - begun, 3),
            output=left.done.output.decode("utf-8", "replace")[-TAIL:],
            exchanges=left.exchanges,
            submission=left.submission or _unsaid(left.exchanges, checkpoint),
            checkpoint=checkpoint,
            cut_short=left.cut_short,
            heard=task.heard,
            again=task.again,
            spoken_to=bool(await self.context.user_messages.since(task.heard)),
        )

    async def _task(self, assignment: Assignment, answer: ReviewResult | None) -> AgentTask:
        """The whole task; for an agent that continues its conversation, only what is new."""
        words = await self.context.user_messages.since(0)
        heard = words[-1].seq if words else 0
        if self.recipe.again and self._started and self.rounds[-1].turns:
            known = self.rounds[-1].heard
            new = [said for said in words if said.seq > known]
            feedback = "" if answer is None or self.rounds[-1].spoken_to else answer.text
            return AgentTask(
                render("outside_more", news=_news_text(new, feedback), submission=SUBMISSION), heard, again=True
            )
        brief = "\n\n".join(filter(None, (assignment.brief, _said(words))))
        if answer is None:
            return AgentTask(render("outside", brief=brief, submission=SUBMISSION), heard)
        return AgentTask(render("outside_again", brief=brief, feedback=answer.text, submission=SUBMISSION), heard)

    def _named(self, number: int) -> str:
        """The name of one start in the journal and the ledger."""
        return f"{self.name}.{number}"

    def _seconds_left(self) -> float:
        used = sum(done.seconds for done in self.rounds)
        return max(1.0, self.context.budget.minutes * 60 - used)

    def _turns_left(self) -> int:
        return max(0, self.context.budget.steps - sum(done.turns for done in self.rounds))

    def _without_submission(self, done: AgentRun) -> RunnerEnding:
        """The ending for a start without a change and without a submission."""
        said = " ".join(last_words(done.exchanges).split())[:300] or " ".join(done.output.split())[-300:]
        if done.exit_code == 0:
            reason = f"{self.recipe.title} stopped without a change and without submitting anything."
            return self._ending("no_change", reason, None).model_copy(update={"claim": said})
        return self._ending(
            "error", f"{self.recipe.title} ended with exit code {done.exit_code}. Its output: {said}", None
        )

    def _ending(self, status: str, reason: str, submission: Submission | None) -> RunnerEnding:
        turns = sum(done.turns for done in self.rounds)
        return RunnerEnding.model_validate(
            {"exit_status": status, "submission": submission, "turns": turns, "reason": reason}
        )

    async def _restore(self, checkpoints: Checkpoints) -> None:
        """Restore the tree that the last finished start left; an interrupted start is repeated from there."""
        await checkpoints.restore(self.rounds[-1].checkpoint if self.rounds else checkpoints.clean)

    def trajectory(self) -> Iterator[str]:
        return lines(self.rounds)


def _said(words: Sequence[UserMessage]) -> str:
    return f"# What people said since\n\n{format_messages(words)}" if words else ""


def _news_text(words: Sequence[UserMessage], feedback: str) -> str:
    """The task for an agent that already knows the rest."""
    facts = f"The harness verified your change, and it was not accepted:\n\n{feedback}" if feedback else ""
    messages = f"People said, while you were at work:\n\n{format_messages(words)}" if words else ""
    return "\n\n".join(filter(None, (facts, messages))) or "You were interrupted."


def _unsaid(exchanges: Sequence[Exchange], checkpoint: Checkpoint) -> Submission | None:
    """A submission for a change that the agent did not submit, from its last message and the tests it changed."""
    if checkpoint.clean:
        return None
    return Submission(summary=last_words(exchanges)[:4_000] or "The agent said nothing of its change.", asked=True)
