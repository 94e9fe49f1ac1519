"""Another coding agent at work in our sandbox: it sees the tree and one model, and is believed as little as our own.

task ─► the agent, start to end ─► its tree and its submission ─► review ─┬► accepted
  ▲                                                                       │
  └── the facts that speak against it ◄───────────────────────────────────┘   at most ROUNDS times
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any

from pydantic import ValidationError

from app.agent.checkpoint import Checkpoints
from app.agent.prompts import render
from app.agent.turn import Checkpoint
from app.agent.words import told
from app.errors import SandboxError
from app.gateway.exchange import Exchange
from app.noun import Noun
from app.runners.base import Assignment, Ending, Review, Reviewer, Submission
from app.runners.native import SandboxTree, Surroundings
from app.runners.recipe import Recipe, filled
from app.runners.way_out import WayOut
from app.sandbox.base import HOME, TOOLS, WAY_OUT_PORT, through_way_out

ROUNDS = 4
STARTS = 40
"""With those that were cut short and went on with more money."""
SUBMISSION = "/tmp/submission.json"  # noqa: S108  # a path inside the sandbox
LONGEST_TASK = 100_000
"""Characters of the task: one argument of a command has at most 128 KB."""
TAIL = 4_000
_WRITE = 'mkdir -p "$(dirname "$1")" && cat > "$1"'


class Round(Noun):
    """One start of the agent: how it ended, what it said to the model, and the tree that it left."""

    number: int
    exit_code: int
    seconds: float = 0.0
    output: str = ""
    """The end of what it printed."""
    exchanges: tuple[Exchange, ...] = ()
    submission: Submission | None = None
    checkpoint: Checkpoint
    cut_short: str = ""
    """Why it was ended before its end: the money, the turns or the minutes were used."""


@dataclass(slots=True)
class OutsideRunner:
    """Works through an assignment by starting the agent of `recipe`; `work` keeps its own steps, as the native one."""

    recipe: Recipe
    around: Surroundings
    way_out: WayOut
    rounds: list[Round] = field(default_factory=list)
    _started: int = 0

    @property
    def name(self) -> str:
        return self.recipe.name

    async def work(self, assignment: Assignment, review: Reviewer) -> Ending:
        around = self.around
        tree = SandboxTree(around.sandbox, around.baseline)
        checkpoints = Checkpoints(tree, around.blobs, around.baseline.tree.commit)
        around.journal.first(partial(self._restore, checkpoints))
        answer: Review | None = None
        for number in range(1, STARTS + 1):
            task = await self._task(assignment, answer)
            before = self._started
            start = partial(self._start, number, task, checkpoints)
            done = await around.journal.step(self._named(number), Round, start)
            self.rounds.append(done)
            if done.cut_short and self._started == before:
                continue  # that was in another process; whoever resumed the job has raised the limit
            if done.cut_short:
                return self._ending("limit_reached", done.cut_short, None)
            if done.submission is None:
                return self._without_submission(done)
            answer = await review(done.submission)
            if answer.accepted:
                return self._ending("submitted", "", done.submission)
            if sum(not each.cut_short for each in self.rounds) >= ROUNDS:
                break
        reason = f"{self.recipe.title} was started {ROUNDS} times, and its change was not accepted."
        return self._ending("error", reason, self.rounds[-1].submission)

    async def _task(self, assignment: Assignment, answer: Review | None) -> str:
        brief = assignment.brief
        heard = await self.around.steering.since(0)
        if heard:
            brief = f"{brief}\n\n# What people said since\n\n{told(heard)}"
        if answer is None:
            return render("outside", brief=brief, submission=SUBMISSION)
        return render("outside_again", brief=brief, feedback=answer.text, submission=SUBMISSION)

    async def _start(self, number: int, task: str, checkpoints: Checkpoints) -> Round:
        """From start to end. What it left is kept, also where a limit ended it."""
        self._started += 1
        begun = monotonic()
        values = self._values(task)
        await self._prepare(values)
        self.around.progress.say("step", f"{self.recipe.title}, start {number}")
        seconds = self._seconds_left()
        name, turns = self._named(number), self._turns_left()
        async with self.way_out.open(name, values["token"], self.recipe, turns, self._heard) as gateway:
            done = await self.around.sandbox.exec(
                through_way_out([filled(part, values) for part in self.recipe.command]),
                timeout=seconds,
                env={name: filled(text, values) for name, text in self.recipe.environment.items()},
                on_output=lambda chunk: self.around.progress.say("output", chunk.decode("utf-8", "replace")),
            )
        self.around.progress.say("observation", f"{self.name} ended with exit code {done.exit_code}")
        late = f"The {self.around.budget.minutes:g} minutes are used." if done.timed_out else ""
        checkpoint = await checkpoints.take()
        return Round(
            number=number,
            exit_code=done.exit_code,
            seconds=round(monotonic() - begun, 3),
            output=done.output.decode("utf-8", "replace")[-TAIL:],
            exchanges=tuple(gateway.recorder.exchanges),
            submission=await self._submission() or _unsaid(gateway.recorder.exchanges, checkpoint),
            checkpoint=checkpoint,
            cut_short=gateway.cut_short or late,
        )

    def _named(self, number: int) -> str:
        """One start, in the journal and in the ledger."""
        return f"{self.name}.{number}"

    def _values(self, task: str) -> dict[str, str]:
        if len(task) > LONGEST_TASK:
            task = f"{task[:LONGEST_TASK]}\n\n({len(task) - LONGEST_TASK:,} more characters are left out.)"
        return {
            "tools": TOOLS,
            "home": HOME,
            "task": task,
            "model": self.recipe.model,
            "base": f"http://127.0.0.1:{WAY_OUT_PORT}",
            "token": self.way_out.new_token(),
            "turns": str(self.around.budget.steps),
        }

    async def _prepare(self, values: Mapping[str, str]) -> None:
        """The agent's own files, and no submission of an earlier start."""
        await self._command(["rm", "-f", SUBMISSION])
        for path, text in self.recipe.files.items():
            where = filled(path, values)
            await self._command(["/bin/sh", "-c", _WRITE, "sh", where], stdin=filled(text, values).encode())

    async def _command(self, argv: list[str], *, stdin: bytes = b"") -> bytes:
        done = await self.around.sandbox.exec(argv, timeout=30, stdin=stdin)
        if not done.ok:
            raise SandboxError(f"{argv[0]} failed in the sandbox: {done.output.decode(errors='replace')[-300:]}")
        return done.output

    async def _submission(self) -> Submission | None:
        """What the agent wrote down; None where it wrote nothing that can be read."""
        done = await self.around.sandbox.exec(["head", "-c", "20000", SUBMISSION], timeout=30, separate_stderr=True)
        if not done.ok:
            return None
        try:
            return Submission.model_validate_json(done.output)
        except ValidationError:
            return None

    def _heard(self, exchange: Exchange) -> None:
        usage, calls = exchange.usage, ", ".join(call.name for call in exchange.calls)
        if exchange.refused:
            self.around.progress.say("warning", f"{self.name}: a call was refused ({exchange.refused})")
            return
        text = f"{self.name}.{exchange.number}: {usage.prompt_tokens:,} tokens in, {usage.completion_tokens:,} out"
        self.around.progress.say("cost", f"{text}; {calls}" if calls else text)

    def _seconds_left(self) -> float:
        used = sum(done.seconds for done in self.rounds)
        return max(1.0, self.around.budget.minutes * 60 - used)

    def _without_submission(self, done: Round) -> Ending:
        """Nothing was changed, and nothing said of it."""
        said = " ".join(_last_words(done.exchanges).split())[:300] or " ".join(done.output.split())[-300:]
        if done.exit_code == 0:
            return self._ending("no_change", f"{self.recipe.title} stopped without a change. It said: {said}", None)
        return self._ending(
            "error", f"{self.recipe.title} ended with exit code {done.exit_code}. It said: {said}", None
        )

    def _ending(self, status: str, reason: str, submission: Submission | None) -> Ending:
        turns = sum(not each.refused for done in self.rounds for each in done.exchanges)
        return Ending.model_validate(
            {"exit_status": status, "submission": submission, "turns": turns, "reason": reason}
        )

    def _turns_left(self) -> int:
        used = sum(not each.refused for done in self.rounds for each in done.exchanges)
        return max(0, self.around.budget.steps - used)

    async def _restore(self, checkpoints: Checkpoints) -> None:
        """The tree as the last finished start left it; one that was interrupted is started again from there."""
        await checkpoints.restore(self.rounds[-1].checkpoint if self.rounds else checkpoints.clean)

    def trajectory(self) -> Iterator[str]:
        """JSON lines: each call to the model as a step of our own would stand there, the last with how it ended."""
        for done in self.rounds:
            steps = [_step(done.number, exchange) for exchange in done.exchanges] or [_step(done.number, None)]
            asked = sum(exchange.seconds for exchange in done.exchanges)
            steps[-1]["ended"] = {
                **done.model_dump(mode="json", include={"exit_code", "output", "submission", "cut_short"}),
                "files": [state.path for state in done.checkpoint.files],
            }
            steps[-1]["seconds"]["actions"] = round(max(0.0, done.seconds - asked), 3)
            for step in steps:
                yield json.dumps(step, ensure_ascii=False)


def _step(round_number: int, exchange: Exchange | None) -> dict[str, Any]:
    """None for a start in which the agent asked its model nothing."""
    told = exchange or Exchange(number=0, wire="chat")
    return {
        "round": round_number,
        "step": told.number,
        "new": list(told.new),
        "content": told.text,
        "actions": [{"tool": call.name, "arguments": _arguments(call.arguments)} for call in told.calls],
        "refused": told.refused,
        "usage": {**told.usage.model_dump(exclude={"cost"}), "cost": told.usage.cost / 1_000_000},
        "seconds": {"model": told.seconds},
    }


def _arguments(text: str) -> dict[str, Any]:
    """Of the agent's own tool: an object mostly, and else the text that a model wrote."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = text
    return found if isinstance(found, dict) else {"text": text}


def _unsaid(exchanges: Sequence[Exchange], checkpoint: Checkpoint) -> Submission | None:
    """A change whose agent forgot to tell of it: its last words, and whatever tests it changed, speak for it."""
    if checkpoint.clean:
        return None
    return Submission(summary=_last_words(exchanges)[:4_000] or "The agent said nothing of its change.", asked=True)


def _last_words(exchanges: Sequence[Exchange]) -> str:
    return next((each.text for each in reversed(exchanges) if each.text.strip()), "")
