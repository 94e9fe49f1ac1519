"""One start of another agent in the sandbox: its files, command, socket and submission."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import ValidationError

from app.agent.base import Submission
from app.agent.external.gateway.exchange import Exchange
from app.agent.external.model_socket import ModelSocket
from app.agent.external.recipe import AgentRecipe, fill_placeholders
from app.agent.native import RunnerContext
from app.core.errors import SandboxError
from app.sandbox.base import HOME, MODEL_PORT, TOOLS, CompletedCommand, with_forwarder

SUBMISSION = "/tmp/submission.json"  # noqa: S108  # a path inside the sandbox
MAX_TASK_LENGTH = 120_000
"""Bytes of the task: one argument of a command has at most 128 KB."""
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


class AgentOutput(NamedTuple):
    """The result of a start."""

    done: CompletedCommand
    exchanges: tuple[Exchange, ...]
    submission: Submission | None
    cut_short: str


@dataclass(frozen=True, slots=True)
class AgentStart:
    """`name` is the same if the start is repeated; `turns` and `seconds` are what is left."""

    recipe: AgentRecipe
    context: RunnerContext
    model_socket: ModelSocket
    name: str
    turns: int
    seconds: float
    message_check_seconds: float = MESSAGE_CHECK_SECONDS

    async def make(self, task: AgentTask) -> AgentOutput:
        """Run from start to end; an agent that can continue is stopped when people write."""
        values = self._values(task.text)
        await self._prepare(values)
        command = self.recipe.again if task.again else self.recipe.command
        async with self.model_socket.open(
            self.name, values["token"], self.recipe, self.turns, self._read_messages
        ) as gateway:
            done = await self._until_user_message(
                [fill_placeholders(part, values) for part in command], values, task.last_message
            )
        late = f"The {self.context.budget.minutes:g} minutes are used." if done.timed_out else ""
        cut_short = gateway.cut_short or late
        return AgentOutput(done, tuple(gateway.recorder.exchanges), await self._submission(), cut_short)

    async def _until_user_message(
        self, command: Sequence[str], values: Mapping[str, str], last_message: int
    ) -> CompletedCommand:
        if not self.recipe.again:
            return await self._executed(command, values)
        working = asyncio.ensure_future(self._executed(command, values))
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

    async def _executed(self, command: Sequence[str], values: Mapping[str, str]) -> CompletedCommand:
        return await self.context.sandbox.exec(
            with_forwarder(command),
            timeout=self.seconds,
            env={name: fill_placeholders(text, values) for name, text in self.recipe.environment.items()},
            on_output=lambda chunk: self.context.progress.report("output", chunk.decode("utf-8", "replace")),
        )

    def _values(self, task: str) -> dict[str, str]:
        return {
            "tools": TOOLS,
            "home": HOME,
            "task": as_argument(task),
            "model": self.recipe.model,
            "base": f"http://127.0.0.1:{MODEL_PORT}",
            "token": self.model_socket.new_token(),
            "turns": str(self.context.budget.steps),
        }

    async def _prepare(self, values: Mapping[str, str]) -> None:
        """Write the agent's own files and remove any earlier submission."""
        await self._command(["rm", "-f", SUBMISSION])
        for path, text in self.recipe.files.items():
            where = fill_placeholders(path, values)
            await self._command(["/bin/sh", "-c", _WRITE, "sh", where], stdin=fill_placeholders(text, values).encode())

    async def _command(self, argv: list[str], *, stdin: bytes = b"") -> bytes:
        done = await self.context.sandbox.exec(argv, timeout=30, stdin=stdin)
        if not done.ok:
            raise SandboxError(f"{argv[0]} failed in the sandbox: {done.output.decode(errors='replace')[-300:]}")
        return done.output

    async def _submission(self) -> Submission | None:
        """The agent's submission; None if there is none that can be read."""
        done = await self.context.sandbox.exec(["head", "-c", "20000", SUBMISSION], timeout=30, separate_stderr=True)
        if not done.ok:
            return None
        try:
            return Submission.model_validate_json(done.output)
        except ValidationError:
            return None

    def _read_messages(self, exchange: Exchange) -> None:
        name, usage, calls = self.recipe.name, exchange.usage, ", ".join(call.name for call in exchange.calls)
        if exchange.refused:
            self.context.progress.report("warning", f"{name}: a call was refused ({exchange.refused})")
            return
        text = f"{name}.{exchange.number}: {usage.prompt_tokens:,} tokens in, {usage.completion_tokens:,} out"
        self.context.progress.report("cost", f"{text}; {calls}" if calls else text)

    async def _messages_after(self, last_message: int) -> None:
        """Returns when there are new messages."""
        while not await self.context.user_messages.since(last_message):  # noqa: ASYNC110  # it may be rows of a database
            await asyncio.sleep(self.message_check_seconds)


def as_argument(task: str) -> str:
    """A task as an argument: if too long, its middle is dropped, since beginning and end say what to do."""
    encoded = task.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace")
    if len(encoded) <= MAX_TASK_LENGTH:
        return encoded.decode()
    half = MAX_TASK_LENGTH // 2
    beginning, end = encoded[:half].decode("utf-8", "ignore"), encoded[-half:].decode("utf-8", "ignore")
    return f"{beginning}\n\n[{len(encoded) - MAX_TASK_LENGTH:,} bytes are left out here.]\n\n{end}"
