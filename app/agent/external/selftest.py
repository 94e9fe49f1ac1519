"""Runs a small task with a scripted model; how far an agent gets shows whether its version works.

installed ─► calls its model ─► runs commands, shows their output ─► changes the file ─► submits ─► ends.

If the agent can be interrupted: it gets a message and continues with what it knew.
"""

import hashlib
import json
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from app.agent.base import Assignment, ReviewResult, RunnerContext, RunnerEnding, Submission
from app.agent.external.gateway import ModelSocket
from app.agent.external.recipe import AgentRecipe
from app.agent.external.runner import SUBMISSION, AgentRun, ExternalRunner
from app.core.errors import AgentFixError
from app.core.job import Budget, N, NoProgress, NoUserMessages, UserMessage, UserMessages
from app.core.model_usage import DOLLAR
from app.core.patch import TreeEntry
from app.core.record import Record
from app.core.text import one_line
from app.llm.base import Body, ModelAnswer, ModelInfo, ModelRequest, StreamEvent, ToolCall, WireProtocol
from app.llm.ledger import MemoryLedger
from app.sandbox.base import Sandbox
from app.sandbox.changes import baseline

PROMPT_TOKENS, ANSWER_TOKENS = 100, 10
_STARTED = 1_700_000_000


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    """An answer. `number` makes its ids unique."""

    number: int
    text: str
    call: ToolCall | None = None

    @property
    def chat_finish(self) -> str:
        return "tool_calls" if self.call else "stop"


def document(protocol: WireProtocol, line: ScriptedAnswer, model: str) -> dict[str, Any]:
    """The answer as one document."""
    match protocol:
        case "chat":
            choice = {"index": 0, "message": _chat_message(line), "finish_reason": line.chat_finish}
            return {**_chat_head(line, model, "chat.completion"), "choices": [choice], "usage": _CHAT_USAGE}
        case "responses":
            return _response(line, model, "completed", _items(line))
        case "messages":
            stop = {"stop_reason": "tool_use" if line.call else "end_turn", "usage": _MESSAGES_USAGE}
            return {**_message(line, model), "content": _blocks(line), **stop}


def events(protocol: WireProtocol, line: ScriptedAnswer, model: str) -> Iterator[StreamEvent]:
    """The answer as a stream."""
    match protocol:
        case "chat":
            yield from _chat_events(line, model)
        case "responses":
            for number, data in enumerate(_response_events(line, model)):
                yield StreamEvent(data["type"], {**data, "sequence_number": number})
        case "messages":
            for data in _message_events(line, model):
                yield StreamEvent(data["type"], data)


_CHAT_USAGE: Mapping[str, Any] = {
    "prompt_tokens": PROMPT_TOKENS,
    "completion_tokens": ANSWER_TOKENS,
    "total_tokens": PROMPT_TOKENS + ANSWER_TOKENS,
}
_MESSAGES_USAGE: Mapping[str, Any] = {"input_tokens": PROMPT_TOKENS, "output_tokens": ANSWER_TOKENS}
_RESPONSES_USAGE: Mapping[str, Any] = {
    **_MESSAGES_USAGE,
    "total_tokens": PROMPT_TOKENS + ANSWER_TOKENS,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}


def _chat_head(line: ScriptedAnswer, model: str, kind: str) -> dict[str, Any]:
    return {"id": f"chat-{line.number}", "object": kind, "created": _STARTED, "model": model}


def _chat_message(line: ScriptedAnswer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": line.text}
    if line.call is not None:
        function = {"name": line.call.name, "arguments": line.call.arguments}
        message["tool_calls"] = [{"id": line.call.id, "type": "function", "function": function}]
    return message


def _chat_events(line: ScriptedAnswer, model: str) -> Iterator[StreamEvent]:
    message = _chat_message(line)
    for index, call in enumerate(message.get("tool_calls", ())):
        call["index"] = index
    head = _chat_head(line, model, "chat.completion.chunk")
    for delta, finish in ((message, None), ({}, line.chat_finish)):
        yield StreamEvent("", {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    yield StreamEvent("", {**head, "choices": [], "usage": _CHAT_USAGE})


def _response(line: ScriptedAnswer, model: str, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"resp_{line.number}",
        "object": "response",
        "created_at": _STARTED,
        "status": status,
        "model": model,
        "output": output,
        "usage": _RESPONSES_USAGE if status == "completed" else None,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "temperature": 1.0,
        "top_p": 1.0,
    }


def _items(line: ScriptedAnswer) -> list[dict[str, Any]]:
    part = {"type": "output_text", "text": line.text, "annotations": []}
    message = {"id": f"msg_{line.number}", "type": "message", "role": "assistant", "status": "completed"}
    items: list[dict[str, Any]] = [{**message, "content": [part]}]
    if line.call is not None:
        call = {"type": "function_call", "id": f"fc_{line.number}", "call_id": line.call.id, "name": line.call.name}
        items.append({**call, "arguments": line.call.arguments, "status": "completed"})
    return items


def _response_events(line: ScriptedAnswer, model: str) -> Iterator[dict[str, Any]]:
    response = _response(line, model, "in_progress", [])
    items = _items(line)
    yield {"type": "response.created", "response": response}
    yield {"type": "response.in_progress", "response": response}
    for index, item in enumerate(items):
        position = {"output_index": index, "item_id": item["id"]}
        begun = {**item, "status": "in_progress"}
        begun |= {name: empty for name, empty in (("content", []), ("arguments", "")) if name in item}
        yield {"type": "response.output_item.added", "output_index": index, "item": begun}
        if item["type"] == "message":
            content_position = {**position, "content_index": 0}
            empty = {"type": "output_text", "text": "", "annotations": []}
            yield {"type": "response.content_part.added", **content_position, "part": empty}
            yield {"type": "response.output_text.delta", **content_position, "delta": line.text, "logprobs": []}
            yield {"type": "response.output_text.done", **content_position, "text": line.text, "logprobs": []}
            yield {"type": "response.content_part.done", **content_position, "part": item["content"][0]}
        else:
            arguments = item["arguments"]
            yield {"type": "response.function_call_arguments.delta", **position, "delta": arguments}
            yield {"type": "response.function_call_arguments.done", **position, "arguments": arguments}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": _response(line, model, "completed", items)}


def _message(line: ScriptedAnswer, model: str) -> dict[str, Any]:
    head = {"id": f"msg_{line.number}", "type": "message", "role": "assistant", "model": model}
    return {**head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": _MESSAGES_USAGE}


def _blocks(line: ScriptedAnswer) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": line.text}]
    if line.call is not None:
        given = json.loads(line.call.arguments)
        blocks.append({"type": "tool_use", "id": line.call.id, "name": line.call.name, "input": given})
    return blocks


def _message_events(line: ScriptedAnswer, model: str) -> Iterator[dict[str, Any]]:
    yield {"type": "message_start", "message": _message(line, model)}
    for index, block in enumerate(_blocks(line)):
        if block["type"] == "text":
            begun, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            begun = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield {"type": "content_block_start", "index": index, "content_block": begun}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": "tool_use" if line.call else "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": ANSWER_TOKENS}}
    yield {"type": "message_stop"}


INFO = ModelInfo("selftest", context_window=400_000, max_output=32_000, priced=False)
EDITOR_ARGUMENTS = frozenset({"path", "file_path", "old_string"})
"""Arguments that show that a tool which takes a command is an editor."""
COMMAND_ARGUMENTS = ("command", "cmd")
SHELL_NAMES = ("bash", "shell", "exec", "terminal")
FINISH_TOOL = "finish"
"""A tool by which some agents end their work."""
SUBMIT_COMMAND = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""How an agent with only a shell is told to end."""
DONE = "Done."
_DEFAULT_ARGUMENTS: Mapping[str, Any] = {"security_risk": "LOW", "timeout": 60_000, "is_input": "false"}


@dataclass(slots=True)
class ScriptedModel:
    """An `app.llm.base.RawProxyCall` with fixed answers; without a tool for commands, it answers a few words."""

    commands: Sequence[str]
    commands_requested: int = 0
    """How many of the commands were requested."""
    bodies: list[Body] = field(default_factory=list)
    _starts: list[int] = field(default_factory=lambda: [0])

    @property
    def info(self) -> ModelInfo:
        return INFO

    async def complete(self, protocol: WireProtocol, body: Body, limit: int) -> dict[str, Any]:
        return document(protocol, self._next(body), str(body.get("model")))

    async def stream(self, protocol: WireProtocol, body: Body, limit: int) -> AsyncGenerator[StreamEvent]:
        for event in events(protocol, self._next(body), str(body.get("model"))):
            yield event

    def begin(self, commands: Sequence[str]) -> None:
        """Set the commands of another start."""
        self.commands, self.commands_requested = commands, 0
        self._starts.append(len(self.bodies))

    def observe(self, start: int) -> str:
        """All that the agent sent in one of its starts, as text."""
        begun, ended = (*self._starts, len(self.bodies))[start : start + 2]
        return json.dumps(self.bodies[begun:ended])

    def _next(self, body: Body) -> ScriptedAnswer:
        self.bodies.append(body)
        number, tools = len(self.bodies), list(_functions(body.get("tools")))
        shell = _shell(tools)
        if shell is None:
            return ScriptedAnswer(number, "A short title")
        if self.commands_requested < len(self.commands):
            self.commands_requested += 1
            return _line(number, "I go on.", shell, self.commands[self.commands_requested - 1])
        finish = next((name for name, _ in tools if name == FINISH_TOOL), None)
        if finish is not None:
            return ScriptedAnswer(
                number, "", ToolCall(id=f"call_{number}", name=finish, arguments=json.dumps({"message": DONE}))
            )
        return _line(number, DONE, shell, SUBMIT_COMMAND) if len(tools) == 1 else ScriptedAnswer(number, DONE)


Tool = tuple[str, Mapping[str, Any]]
"""A tool's name and JSON schema."""


def _functions(tools: Any) -> Iterator[Tool]:
    """The functions in any protocol's list, including those in a namespace."""
    for tool in tools if isinstance(tools, list) else ():
        if tool.get("type") == "namespace":
            yield from _functions(tool.get("tools"))
            continue
        function = tool.get("function", tool)
        schema = function.get("parameters", function.get("input_schema"))
        if isinstance(schema, dict) and isinstance(function.get("name"), str):
            yield function["name"], schema


def _shell(tools: Sequence[Tool]) -> Tool | None:
    """The tool that takes a command, chosen by its name if there are several."""
    found = []
    for name, schema in tools:
        arguments = schema.get("properties", {}).keys()
        if arguments & set(COMMAND_ARGUMENTS) and not arguments & EDITOR_ARGUMENTS:
            found.append((name, schema))
    named = [tool for tool in found if any(word in tool[0].lower() for word in SHELL_NAMES)]
    return next(iter([*named, *found]), None)


def _line(number: int, text: str, shell: Tool, command: str) -> ScriptedAnswer:
    name, schema = shell
    key = next(each for each in COMMAND_ARGUMENTS if each in schema["properties"])
    listed = schema["properties"][key].get("type") == "array"
    arguments: dict[str, Any] = {key: ["bash", "-lc", command] if listed else command}
    for wanted in schema.get("required", ()):
        arguments.setdefault(wanted, _DEFAULT_ARGUMENTS.get(wanted, "work"))
    return ScriptedAnswer(number, text, ToolCall(id=f"call_{number}", name=name, arguments=json.dumps(arguments)))


SelftestAct = Literal[
    "was installed",
    "asked its model",
    "executed commands",
    "changed the file",
    "went on with its conversation",
    "handed in",
    "ended well",
]
PATH, BEFORE, AFTER = "sum.py", "def add(a, b):\n    return a - b\n", "def add(a, b):\n    return a + b\n"
HANDED_IN = Submission(summary="add adds.", reproduction="python3 -c 'from sum import add; assert add(2, 2) == 4'")
WAIT = "sleep 1000"
SHORT = 480
"""Characters of a reason, for a line in a table."""
BUDGET = Budget(minutes=10, steps=20)
BRIEF = f"# add subtracts\n\n`add` in {PATH} subtracts. Make it add."


class SelftestResult(Record):
    """How far it got. `stopped_at` is empty if it passed; `reason` is one sentence for people."""

    stopped_at: SelftestAct | Literal[""] = ""
    reason: str = ""
    seconds: float = 0.0
    calls: int = 0

    @property
    def passed(self) -> bool:
        return not self.stopped_at


@dataclass(frozen=True, slots=True)
class SelftestScript:
    """`nonce` is in a file that only a command shows: an agent that reports it has run the command."""

    nonce: str = field(default_factory=lambda: secrets.token_hex(8))
    note: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def files(self) -> Mapping[str, bytes]:
        return {PATH: BEFORE.encode(), "NOTES": f"{self.nonce}\n".encode()}

    @property
    def commands(self) -> tuple[str, ...]:
        fix = f"sed -i 's/a - b/a + b/' {PATH}"
        document = HANDED_IN.model_dump_json(include={"summary", "reproduction"})
        return ("cat NOTES", fix, f"cat > {SUBMISSION} <<'EOF'\n{document}\nEOF")

    def fill(self, directory: Path) -> None:
        for path, content in self.files.items():
            (directory / path).write_bytes(content)


async def run_selftest(recipe: AgentRecipe, sandbox: Sandbox, socket: Path, script: SelftestScript) -> SelftestResult:
    """Run the task in a sandbox with the agent's programs and `socket` as its way out."""
    model, files = ScriptedModel(script.commands), _SelftestTree(script.files)
    interrupter: UserMessages = Interrupter(model, script) if recipe.again else NoUserMessages()
    context = RunnerContext(
        budgeted_model=_NoModel(),
        sandbox=sandbox,
        baseline=baseline(files),
        journal=_NoJournal(),
        blobs=(blobs := _MemoryBlobs()),
        progress=NoProgress(),
        budget=BUDGET,
        user_messages=interrupter,
    )
    runner = ExternalRunner(recipe, context, ModelSocket(socket, model, MemoryLedger(DOLLAR)))
    try:
        ending = await runner.work(Assignment(brief=BRIEF), _accept)
    except AgentFixError as error:
        return SelftestResult(stopped_at="asked its model", reason=shortened(error.message))
    stopped = _stopped_at(model, script, runner.runs, blobs)
    return SelftestResult(
        stopped_at=stopped,
        reason=_reason(runner.runs[-1], ending) if stopped else "",
        seconds=round(sum(done.seconds for done in runner.runs), 3),
        calls=sum(done.turns for done in runner.runs),
    )


@dataclass(slots=True)
class Interrupter:
    """Sends a message to an agent in the middle of a very long command."""

    model: ScriptedModel
    script: SelftestScript
    words: tuple[UserMessage, ...] = ()

    def __post_init__(self) -> None:
        self.model.commands = (*self.script.commands[:-1], WAIT)

    async def since(self, seq: int) -> tuple[UserMessage, ...]:
        if not self.words and self.model.commands_requested == len(self.script.commands):
            self.words = (UserMessage(seq=1, author="agent-fix", text=f"Do not wait, hand it in. {self.script.note}"),)
            self.model.begin(self.script.commands[-1:])
        return tuple(message for message in self.words if message.seq > seq)


async def _accept(_: Submission) -> ReviewResult:
    return ReviewResult(accepted=True)


def _stopped_at(
    model: ScriptedModel, script: SelftestScript, runs: Sequence[AgentRun], blobs: "_MemoryBlobs"
) -> SelftestAct | Literal[""]:
    """The first step without proof that it happened."""
    last = runs[-1]
    files = {state.path: state.digest and blobs.get(state.digest) for state in last.checkpoint.files}
    # what only its first start saw, and the later message
    knows_all = len(runs) > 1 and all(text in model.observe(1) for text in (script.nonce, script.note))
    acts: dict[SelftestAct, bool] = {
        "asked its model": bool(model.bodies),
        "executed commands": script.nonce in model.observe(0),
        "changed the file": files == {PATH: AFTER.encode()},
        "went on with its conversation": len(runs) == 1 or (last.again and knows_all),
        "handed in": last.submission == HANDED_IN,
        "ended well": last.exit_code == 0,
    }
    return next((act for act, happened in acts.items() if not happened), "")


def _reason(run: AgentRun, ending: RunnerEnding) -> str:
    refused = next((exchange.refused for exchange in run.exchanges if exchange.refused), "")
    if refused:
        return f"A call was refused: {refused}"
    output = " ".join(run.output.split())[-300:]
    return ending.reason or f"Exit code {run.exit_code}. Its output: {output}"


def shortened(text: str) -> str:
    """A shortened sentence and explanation; the end is kept because it says most."""
    line = one_line(text)
    return line if len(line) <= SHORT else f"{line[: SHORT // 3]} … {line[-SHORT * 2 // 3 :]}"


@dataclass(frozen=True, slots=True)
class _SelftestTree:
    """An `app.core.patch.Tree` of a few plain files."""

    files: Mapping[str, bytes]
    commit: str = "0" * 40

    def entries(self) -> Mapping[str, TreeEntry]:
        return {path: self._entry(content) for path, content in sorted(self.files.items())}

    def gitlinks(self) -> Mapping[str, str]:
        return {}

    def read(self, path: str) -> bytes:
        return self.files[path]

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        return {path: self.files[path] for path in paths if path in self.files}

    def _entry(self, content: bytes) -> TreeEntry:
        oid = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        return TreeEntry("100644", oid, len(content))


class _NoJournal:
    """An interrupted self-test starts again from the beginning."""

    def on_resume(self, restore: Callable[[], Awaitable[None]]) -> None:
        """There is nothing to resume."""

    async def step(self, name: str, kind: type[N], work: Callable[[], Awaitable[N]]) -> N:
        return await work()


class _MemoryBlobs:
    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    def put(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        self._kept[digest] = content
        return digest

    def get(self, digest: str) -> bytes:
        return self._kept[digest]


class _NoModel:
    """Another agent makes its own calls; this budget is never used."""

    info: ModelInfo = INFO

    async def ask(self, key: str, request: ModelRequest) -> ModelAnswer:
        raise AssertionError("another agent asks through the gateway")
