"""Runs another coding agent in our sandbox; its work is reviewed like our own agent's.

task ─► the agent, start to end ─► its tree and its submission ─► review ─► accepted.

A rejection, with its facts, or new user messages start it again, at most ROUNDS times.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

from pydantic import ValidationError

from app.agent.actions import MalformedError, SubmitAction, invalid_arguments, read_object, validated
from app.agent.base import Assignment, Reviewer, ReviewResult, RunnerContext, RunnerEnding, RunnerStatus, Submission
from app.agent.external.exchange import Exchange
from app.agent.external.gateway import ModelSocket
from app.agent.external.recipe import AgentRecipe, fill_placeholders
from app.agent.prompts import render
from app.agent.step import Checkpoint, Checkpoints, SandboxTree, format_messages
from app.core.errors import SandboxError
from app.core.job import UserMessage
from app.core.model_usage import DOLLAR
from app.core.patch import Patch
from app.core.record import Record
from app.core.text import storable
from app.llm.errors import ModelError
from app.sandbox.base import HOME, MODEL_PORT, TOOLS, CompletedCommand, with_forwarder

SUBMISSION = "/tmp/submission.json"  # noqa: S108  # a path inside the sandbox
MAX_TASK_LENGTH = 120_000
"""Bytes of the task: one argument of a command has at most 128 KB."""
MAX_SUBMISSION = 100_000
"""Bytes of a submission that are read."""
TAIL = 4_000
MESSAGE_CHECK_SECONDS = 2.0
"""Seconds between two checks for messages, if an agent can be interrupted."""
INTERRUPTED = CompletedCommand(130, b"It was interrupted, because people said something.")
_WRITE = 'mkdir -p "$(dirname "$1")" && cat > "$1"'


class AgentTask(NamedTuple):
    """The task; `last_message` is the number of the last user message in it, `again` continues the conversation."""

    text: str
    last_message: int = 0
    again: bool = False


def as_argument(task: str) -> str:
    """A task as an argument: if too long, its middle is dropped, since beginning and end say what to do."""
    encoded = task.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace")
    if len(encoded) <= MAX_TASK_LENGTH:
        return encoded.decode()
    half = MAX_TASK_LENGTH // 2
    beginning, end = encoded[:half].decode("utf-8", "ignore"), encoded[-half:].decode("utf-8", "ignore")
    return f"{beginning}\n\n[{len(encoded) - MAX_TASK_LENGTH:,} bytes are left out here.]\n\n{end}"


class AgentRun(Record):
    """How it ended, its calls to the model, and the tree it left."""

    number: int
    exit_code: int
    seconds: float = 0.0
    output: str = ""
    """The end of its output."""
    exchanges: tuple[Exchange, ...] = ()
    submission: Submission | None = None
    checkpoint: Checkpoint
    cut_short: str = ""
    """Why it was stopped early: the money, turns or minutes were used."""
    outage: str = ""
    """Why its last call failed, if the provider ended it that way: it is continued once the provider answers."""
    last_message: int = 0
    """The number of the last user message in its task."""
    again: bool = False
    """True if it was started to continue its conversation."""
    interrupted: bool = False
    """True if people wrote while it worked: it is started again with their messages, whatever it submitted."""

    @property
    def turns(self) -> int:
        return sum(not exchange.refused for exchange in self.exchanges)

    @property
    def reviewed(self) -> bool:
        """True if it ended by itself, so that its work is reviewed."""
        return not (self.cut_short or self.outage or self.interrupted)


def last_words(exchanges: Sequence[Exchange]) -> str:
    return next((each.text for each in reversed(exchanges) if each.text.strip()), "")


def lines(runs: Sequence[AgentRun]) -> Iterator[str]:
    """JSON lines: one for each call to the model, in the form of our own steps, and one for the ending."""
    for run in runs:
        steps = [_step(run.number, exchange) for exchange in run.exchanges] or [_step(run.number, None)]
        model_seconds = sum(exchange.seconds for exchange in run.exchanges)
        steps[-1]["ended"] = {
            **run.model_dump(mode="json", include=_ENDING),
            "files": [state.path for state in run.checkpoint.files],
        }
        steps[-1]["seconds"]["actions"] = round(max(0.0, run.seconds - model_seconds), 3)
        for step in steps:
            yield storable(json.dumps(step, ensure_ascii=False))


_ENDING = {"exit_code", "output", "submission", "cut_short", "outage", "interrupted"}


def _step(round_number: int, exchange: Exchange | None) -> dict[str, Any]:
    """`exchange` is None if the agent made no model call in this start."""
    recorded = exchange or Exchange(number=0, wire="chat")
    return {
        "round": round_number,
        "step": recorded.number,
        "new": list(recorded.new),
        "content": recorded.text,
        "actions": [{"tool": call.name, "arguments": _arguments(call.arguments)} for call in recorded.calls],
        "refused": recorded.refused,
        "usage": {**recorded.usage.model_dump(exclude={"cost"}), "cost": recorded.usage.cost / DOLLAR},
        "seconds": {"model": recorded.seconds},
    }


def _arguments(text: str) -> dict[str, Any]:
    """Arguments of the agent's own tool: usually an object, otherwise the text that the model wrote."""
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        arguments = text
    return arguments if isinstance(arguments, dict) else {"text": text}


ROUNDS = 4
STARTS = 40
"""Includes starts that were cut short and continued with more money, and interrupted ones, but none that an outage
ended: each of those used a turn at least."""


@dataclass(slots=True)
class ExternalRunner:
    """Works through an assignment by starting the agent of `recipe`; `work` stores its own steps, as the native one."""

    recipe: AgentRecipe
    context: RunnerContext
    model_socket: ModelSocket
    pauses_at_limit: bool = True
    """False if a limit ends the work for good, because another attempt follows or an earlier one can be used."""
    message_check_seconds: float = MESSAGE_CHECK_SECONDS
    runs: list[AgentRun] = field(default_factory=list)
    _started: int = 0
    _outage: ModelError | None = None
    _checkpoints: Checkpoints = field(init=False)

    def __post_init__(self) -> None:
        context = self.context
        tree = SandboxTree(context.sandbox, context.baseline)
        self._checkpoints = Checkpoints(tree, context.blobs, context.baseline.tree.commit)

    @property
    def name(self) -> str:
        return self.recipe.name

    async def work(self, assignment: Assignment, review: Reviewer) -> RunnerEnding:
        context = self.context
        context.journal.on_resume(self._restore)
        answer: ReviewResult | None = None
        while sum(not each.outage for each in self.runs) < STARTS:
            number, before = len(self.runs) + 1, self._started
            start = partial(self._start, number, assignment, answer)
            run = await context.journal.step(self._run_name(number), AgentRun, start)
            self.runs.append(run)
            if run.outage:
                if self._outage is None:
                    continue  # in another process, after the pause
                raise self._outage
            if run.cut_short and self.pauses_at_limit and self._started == before:
                continue  # in another process; the limit was raised before the job was resumed
            if run.cut_short:
                return self._ending("limit_reached", run.cut_short, None)
            if run.interrupted or (run.again and not run.turns):
                continue  # with the new messages; or from the beginning if there is no conversation to continue
            if run.submission is None:
                return self._without_submission(run)
            answer = await review(run.submission)
            if answer.accepted:
                return self._ending("submitted", "", run.submission)
            if sum(each.reviewed for each in self.runs) >= ROUNDS:
                break
        return self._after_last_start(reviewed=answer is not None)

    async def _start(self, number: int, assignment: Assignment, answer: ReviewResult | None) -> AgentRun:
        """One start from beginning to end. Its result is stored even if a limit, an outage or people ended it.

        Raises ModelError for an outage before the first answer: that start is repeated.
        """
        started = monotonic()
        task = await self._task(assignment, answer)
        self._started += 1
        self.context.progress.report("step", f"{self.recipe.title}, start {number}")
        budget = self.context.budget
        used = sum(run.turns for run in self.runs)
        seconds = max(1.0, budget.minutes * 60 - sum(run.seconds for run in self.runs))
        values = self._placeholder_values(task.text, max(0, budget.steps - used))
        await self._prepare(values)
        command = self.recipe.again if task.again else self.recipe.command
        argv = [fill_placeholders(part, values) for part in command]
        name, token = self._run_name(number), values["token"]
        open_gateway = partial(self.model_socket.open, turns=budget.steps, used=used)
        async with open_gateway(name, token, self.recipe, self._report_exchange) as gateway:
            done = await self._until_user_message(argv, values, seconds, task.last_message)
        exchanges = tuple(gateway.recorder.exchanges)
        submission = await self._read_submission()
        if submission is None and not gateway.cut_short:  # half of its work is not reviewed
            self._outage = gateway.outage
        if self._outage is not None and not any(exchange.text or exchange.calls for exchange in exchanges):
            raise self._outage
        # an agent may end late only because something that it started still runs
        late = f"The {budget.minutes:g} minutes are used." if done.timed_out and submission is None else ""
        self.context.progress.report("observation", f"{self.name} ended with exit code {done.exit_code}")
        checkpoint = await self._checkpoints.take()
        return AgentRun(
            number=number,
            exit_code=done.exit_code,
            seconds=round(monotonic() - started, 3),
            output=done.output.decode("utf-8", "replace")[-TAIL:],
            exchanges=exchanges,
            submission=submission or _submission_of_changes(exchanges, checkpoint),
            checkpoint=checkpoint,
            cut_short=gateway.cut_short or late,
            outage=self._outage.message if self._outage else "",
            last_message=task.last_message,
            again=task.again,
            interrupted=bool(await self.context.user_messages.since(task.last_message)),
        )

    async def _until_user_message(
        self, argv: Sequence[str], values: Mapping[str, str], seconds: float, last_message: int
    ) -> CompletedCommand:
        """Run from start to end; an agent that can continue is stopped when people write."""
        executing = self.context.sandbox.exec(
            with_forwarder(argv),
            timeout=seconds,
            env={name: fill_placeholders(text, values) for name, text in self.recipe.environment.items()},
            on_output=lambda chunk: self.context.progress.report("output", chunk.decode("utf-8", "replace")),
        )
        if not self.recipe.again:
            return await executing
        working = asyncio.ensure_future(executing)
        new_messages = asyncio.ensure_future(self._messages_after(last_message))
        try:
            await asyncio.wait({working, new_messages}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            new_messages.result()  # raises if the messages could not be read
            return INTERRUPTED
        finally:
            for task in (working, new_messages):
                task.cancel()
            await asyncio.wait({working, new_messages})

    async def _messages_after(self, last_message: int) -> None:
        """Returns when there are new messages."""
        while not await self.context.user_messages.since(last_message):  # noqa: ASYNC110  # it may be rows of a database
            await asyncio.sleep(self.message_check_seconds)

    def _placeholder_values(self, task: str, turns: int) -> dict[str, str]:
        return {
            "tools": TOOLS,
            "home": HOME,
            "task": as_argument(task),
            "model": self.recipe.model,
            "base": f"http://127.0.0.1:{MODEL_PORT}",
            "token": self.model_socket.new_token(),
            "turns": str(turns),
        }

    async def _prepare(self, values: Mapping[str, str]) -> None:
        """Write the agent's own files and remove any earlier submission."""
        await self._command(["rm", "-f", SUBMISSION])
        for path, text in self.recipe.files.items():
            where = fill_placeholders(path, values)
            await self._command(["/bin/sh", "-c", _WRITE, "sh", where], stdin=fill_placeholders(text, values).encode())

    async def _command(self, argv: list[str], *, stdin: bytes = b"") -> None:
        done = await self.context.sandbox.exec(argv, timeout=30, stdin=stdin)
        if not done.ok:
            raise SandboxError(f"{argv[0]} failed in the sandbox: {done.output.decode(errors='replace')[-300:]}")

    async def _read_submission(self) -> Submission | None:
        """The agent's submission; None if there is none that can be read."""
        argv = ["head", "-c", str(MAX_SUBMISSION), SUBMISSION]
        done = await self.context.sandbox.exec(argv, timeout=30, separate_stderr=True)
        if not done.ok:
            return None
        try:
            return validated(SubmitAction, read_object(done.output.decode("utf-8", "replace"))[0]).submission
        except MalformedError as error:
            problem = str(error)
        except ValidationError as error:
            problem = invalid_arguments(error)
        self.context.progress.report("warning", f"{self.name}: its submission could not be used ({problem})")
        return None

    def _report_exchange(self, exchange: Exchange) -> None:
        usage, calls = exchange.usage, ", ".join(call.name for call in exchange.calls)
        if exchange.refused:
            self.context.progress.report("warning", f"{self.name}: a call was refused ({exchange.refused})")
            return
        text = f"{self.name}.{exchange.number}: {usage.prompt_tokens:,} tokens in, {usage.completion_tokens:,} out"
        self.context.progress.report("cost", f"{text}; {calls}" if calls else text)

    async def _task(self, assignment: Assignment, answer: ReviewResult | None) -> AgentTask:
        """The whole task; for an agent that continues its conversation, only what is new."""
        messages = await self.context.user_messages.since(0)
        last_message = messages[-1].seq if messages else 0
        if self.recipe.again and self._started and self.runs[-1].turns:
            last_known = self.runs[-1].last_message
            new = [message for message in messages if message.seq > last_known]
            feedback = "" if answer is None or self.runs[-1].interrupted else answer.text
            return AgentTask(
                render("outside_more", news=_news_text(new, feedback), submission=SUBMISSION), last_message, again=True
            )
        news = f"# What people said since\n\n{format_messages(messages)}" if messages else ""
        brief = "\n\n".join(filter(None, (assignment.brief, self.context.base_suite(), news)))
        if answer is None:
            return AgentTask(render("outside", brief=brief, submission=SUBMISSION), last_message)
        return AgentTask(
            render("outside_again", brief=brief, feedback=answer.text, submission=SUBMISSION), last_message
        )

    def _run_name(self, number: int) -> str:
        """The name of one start in the journal and the ledger."""
        return f"{self.name}.{number}"

    def _without_submission(self, run: AgentRun) -> RunnerEnding:
        """The ending for a start without a change and without a submission."""
        statement = " ".join(last_words(run.exchanges).split())[:300] or " ".join(run.output.split())[-300:]
        if run.exit_code == 0:
            reason = f"{self.recipe.title} stopped without a change and without submitting anything."
            return self._ending("no_change", reason, None).model_copy(update={"claim": statement})
        return self._ending(
            "error", f"{self.recipe.title} ended with exit code {run.exit_code}. Its output: {statement}", None
        )

    def _after_last_start(self, *, reviewed: bool) -> RunnerEnding:
        """The ending if no more starts are allowed; `reviewed` is false if none of its work was."""
        last, outcome = self.runs[-1], "its change was not accepted."
        if not reviewed:
            early = last.cut_short or ("People wrote." if last.interrupted else "It called no model.")
            outcome = f"none of its work was reviewed. The last start ended early: {early}"
        reason = f"{self.recipe.title} was started {len(self.runs)} times, and {outcome}"
        return self._ending("error", reason, last.submission)

    def _ending(self, status: RunnerStatus, reason: str, submission: Submission | None) -> RunnerEnding:
        turns = sum(done.turns for done in self.runs)
        return RunnerEnding(exit_status=status, submission=submission, turns=turns, reason=reason)

    async def _restore(self) -> None:
        """Restore the tree that the last finished start left; an interrupted start is repeated from there."""
        await self._checkpoints.restore(self._last_checkpoint())

    def _last_checkpoint(self) -> Checkpoint:
        return self.runs[-1].checkpoint if self.runs else self._checkpoints.clean

    def last_change(self) -> Patch:
        return self._checkpoints.change_at(self._last_checkpoint())

    def trajectory(self) -> Iterator[str]:
        return lines(self.runs)


def _news_text(user_messages: Sequence[UserMessage], feedback: str) -> str:
    """The task for an agent that already knows the rest."""
    facts = f"The harness verified your change, and it was not accepted:\n\n{feedback}" if feedback else ""
    message_section = (
        f"People said, while you were at work:\n\n{format_messages(user_messages)}" if user_messages else ""
    )
    return "\n\n".join(filter(None, (facts, message_section))) or "You were interrupted."


def _submission_of_changes(exchanges: Sequence[Exchange], checkpoint: Checkpoint) -> Submission | None:
    """A submission for a change that the agent left without submitting; its last message is the summary."""
    if checkpoint.clean:
        return None
    return Submission(
        summary=last_words(exchanges)[:4_000] or "The agent said nothing of its change.",
        reproduction_was_requested=True,
    )
