"""A scripted model that makes any coding agent run given commands one after the other, and then end."""

import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.agent.external.selftest.model_answers import ScriptedAnswer, document, events
from app.llm.base import ModelInfo, ToolCall
from app.llm.raw_call import Body, StreamEvent, WireProtocol

INFO = ModelInfo("rehearsal", context_window=400_000, max_output=32_000, priced=False)
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
    """An `app.llm.raw_call.RawProxyCall` with fixed answers; without a tool for commands, it answers a few words."""

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
