"""A model that knows one play by heart: it has any coding agent execute commands, one after the other, and then end."""

import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.agent.external.selftest.model_answers import ScriptedAnswer, document, events
from app.llm.base import ModelInfo, ToolCall
from app.llm.raw_call import Body, StreamEvent, WireProtocol

INFO = ModelInfo("rehearsal", context_window=400_000, max_output=32_000, priced=False)
ALSO_A_PATH = frozenset({"path", "file_path", "old_string"})
"""Arguments by which a tool that takes a command is known to be an editor."""
COMMAND = ("command", "cmd")
NAMES = ("bash", "shell", "exec", "terminal")
ENDS = "finish"
"""A tool by which some agents are told that the work is done."""
HANDS_IN = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""How an agent that has nothing but a shell is told so."""
DONE = "Done."
_FILLED: Mapping[str, Any] = {"security_risk": "LOW", "timeout": 60_000, "is_input": "false"}


@dataclass(slots=True)
class ScriptedModel:
    """`app.llm.raw_call.RawProxyCall`, with nobody behind it. Who offers no tool for commands gets a few words."""

    commands: Sequence[str]
    said: int = 0
    """How many of the commands were asked for."""
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
        """What it has the agent do in another start."""
        self.commands, self.said = commands, 0
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
        if self.said < len(self.commands):
            self.said += 1
            return _line(number, "I go on.", shell, self.commands[self.said - 1])
        finish = next((name for name, _ in tools if name == ENDS), None)
        if finish is not None:
            return ScriptedAnswer(
                number, "", ToolCall(id=f"call_{number}", name=finish, arguments=json.dumps({"message": DONE}))
            )
        return _line(number, DONE, shell, HANDS_IN) if len(tools) == 1 else ScriptedAnswer(number, DONE)


Tool = tuple[str, Mapping[str, Any]]
"""Its name, and the JSON schema of what it takes."""


def _functions(tools: Any) -> Iterator[Tool]:
    """Of every protocol's list; those in a namespace too."""
    for tool in tools if isinstance(tools, list) else ():
        if tool.get("type") == "namespace":
            yield from _functions(tool.get("tools"))
            continue
        function = tool.get("function", tool)
        schema = function.get("parameters", function.get("input_schema"))
        if isinstance(schema, dict) and isinstance(function.get("name"), str):
            yield function["name"], schema


def _shell(tools: Sequence[Tool]) -> Tool | None:
    """By what it takes; of several the one with the name that says so."""
    found = []
    for name, schema in tools:
        takes = schema.get("properties", {}).keys()
        if takes & set(COMMAND) and not takes & ALSO_A_PATH:
            found.append((name, schema))
    named = [tool for tool in found if any(word in tool[0].lower() for word in NAMES)]
    return next(iter([*named, *found]), None)


def _line(number: int, text: str, shell: Tool, command: str) -> ScriptedAnswer:
    name, schema = shell
    key = next(each for each in COMMAND if each in schema["properties"])
    listed = schema["properties"][key].get("type") == "array"
    arguments: dict[str, Any] = {key: ["bash", "-lc", command] if listed else command}
    for wanted in schema.get("required", ()):
        arguments.setdefault(wanted, _FILLED.get(wanted, "work"))
    return ScriptedAnswer(number, text, ToolCall(id=f"call_{number}", name=name, arguments=json.dumps(arguments)))
