"""A model for any coding agent: it works with whatever tool executes a shell command, and then says it is done."""

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.cli_job import EXAMPLES
from tests.support.openai_endpoint import USAGE, OpenAIEndpoint, ReceivedRequest, Reply, answer

DONE = "Done: the remainder goes to the first people."
ALSO_A_PATH = frozenset({"path", "file_path", "old_string"})
"""Arguments by which a tool that takes a command is known to be an editor."""
NAMES = ("bash", "shell", "exec", "terminal")
HANDS_IN = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""How an agent that has nothing but a shell is told of the end."""
_FILLED: Mapping[str, Any] = {"security_risk": "LOW", "timeout": 60_000, "is_input": "false"}


class ShellModel(OpenAIEndpoint):
    """`plan` for who wants JSON; `commands` and then the end for who offers tools; a few words for others."""

    def __init__(self, plan: Mapping[str, Any], commands: Sequence[str]) -> None:
        super().__init__()
        self._plan = plan
        self._commands = list(commands)
        self._step = 0
        self._turn = threading.Lock()

    def take(self, received: ReceivedRequest) -> Reply:
        body = received.body
        with self._turn:
            self.requests.append(received)
            text, tools = self._said(body)
        return answer(text, tools=tools, piece=200) if body.get("stream") else _whole(text, tools)

    def _said(self, body: Mapping[str, Any]) -> tuple[str, list[tuple[str, str, str]]]:
        names = {tool["name"] for tool in _functions(body.get("tools") or [])}
        if {"plan", "submit"} <= names:
            return "", [("call_0", "plan", json.dumps({"examples": EXAMPLES, **self._plan}))]
        shell = _shell(body.get("tools") or [])
        if shell is None:
            return "A short title", []
        self._step += 1
        if self._step <= len(self._commands):
            return "I go on.", [self._call(shell, self._commands[self._step - 1])]
        finish = next((tool["name"] for tool in _functions(body["tools"]) if tool["name"] == "finish"), None)
        if finish is not None:
            return "", [(f"call_{self._step}", finish, json.dumps({"message": DONE}))]
        if len(body["tools"]) == 1:
            return DONE, [self._call(shell, HANDS_IN)]
        return DONE, []

    def _call(self, tool: Mapping[str, Any], command: str) -> tuple[str, str, str]:
        parameters = tool["parameters"]
        name = "command" if "command" in parameters["properties"] else "cmd"
        listed = parameters["properties"][name].get("type") == "array"
        arguments: dict[str, Any] = {name: ["bash", "-lc", command] if listed else command}
        for wanted in parameters.get("required", ()):
            arguments.setdefault(wanted, _FILLED.get(wanted, "work"))
        return f"call_{self._step}", tool["name"], json.dumps(arguments)


def _shell(tools: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """By what it takes; of several the one with the name that says so."""
    found = []
    for tool in _functions(tools):
        takes = tool["parameters"].get("properties", {}).keys()
        if takes & {"command", "cmd"} and not takes & ALSO_A_PATH:
            found.append(tool)
    named = [tool for tool in found if any(word in tool["name"].lower() for word in NAMES)]
    return next(iter([*named, *found]), None)


def _functions(tools: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [tool["function"] for tool in tools if "function" in tool]


def _whole(text: str, tools: Sequence[tuple[str, str, str]]) -> Reply:
    calls = [{"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in tools]
    message = {"role": "assistant", "content": text, "tool_calls": calls or None}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    body = {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": dict(USAGE),
    }
    return Reply(headers={"content-type": "application/json"}, body=json.dumps(body).encode())
