"""What a request may not ask for, whoever sends it: another model, a way out of the sandbox, another's data."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from app.gateway.wires import Refusal
from app.model.passage import Wire

OWN_TOOLS: Mapping[Wire, tuple[str, ...]] = {
    "chat": ("function", "custom"),
    "responses": ("function", "custom", "local_shell", "shell", "apply_patch"),
    "messages": ("custom", "bash_", "text_editor_", "memory_"),
}
"""Kinds of tools that the agent carries out itself. All others the provider does, on the provider's network."""
KEPT_ELSEWHERE = ("previous_response_id", "conversation", "prompt", "background", "container", "mcp_servers")
"""Fields that stand for what the provider keeps, or does later or elsewhere."""
REMOTE = ("image_url", "file_url", "url")
MOST_PARTS = 200_000
MOST_CHOICES = 1


def check(wire: Wire, body: Mapping[str, Any], models: Collection[str]) -> None:
    """Raises Refusal."""
    model = body.get("model")
    if not isinstance(model, str) or model not in models:
        known = " or ".join(sorted(models))
        raise Refusal(404, "model_not_found", f"This job has no model {str(model)[:100]!r}. Ask for {known}.")
    for name in KEPT_ELSEWHERE:
        if body.get(name):
            raise Refusal(400, "not_offered", f"{name} is not offered here: send the whole conversation.")
    if body.get("store") is True:
        raise Refusal(400, "not_offered", "Nothing is stored at the provider: send store false.")
    if body.get("n", MOST_CHOICES) != MOST_CHOICES:
        raise Refusal(400, "not_offered", "One answer a call: n is to be 1.")
    _check_tools(wire, body.get("tools"))
    _check_parts(body)


def _check_tools(wire: Wire, tools: Any) -> None:
    if tools is None:
        return
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise Refusal(400, "bad_request", "tools is to be a list of objects.")
    for tool in tools:
        kind = tool.get("type", "custom" if wire == "messages" else "function")
        if kind == "namespace":  # a name around tools of the agent's own
            _check_tools(wire, tool.get("tools"))
            continue
        if not isinstance(kind, str) or not _own(wire, kind):
            message = f"The tool {str(kind)[:60]!r} is carried out by the provider, with a network that this job lacks."
            raise Refusal(400, "tool_not_offered", message)


def _own(wire: Wire, kind: str) -> bool:
    return any(kind == own or (own.endswith("_") and kind.startswith(own)) for own in OWN_TOOLS[wire])


def _check_parts(body: Mapping[str, Any]) -> None:
    """No address for the provider to fetch, and no file of the account: both lead out of the sandbox."""
    for number, part in enumerate(_parts([body.get("messages"), body.get("input"), body.get("system")])):
        if number >= MOST_PARTS:
            raise Refusal(413, "too_large", f"A conversation has at most {MOST_PARTS:,} parts.")
        if "file_id" in part:
            raise Refusal(400, "not_offered", "Files of the provider's account are not offered.")
        for name in REMOTE:
            address = part.get(name)
            if isinstance(address, str) and part.get("type") != "text" and not address.startswith("data:"):
                raise Refusal(400, "not_offered", "Images and files go into the request itself, as data: addresses.")


def _parts(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every object inside, arguments and results of tools included: they are texts there, and texts are let alone."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, list):
            waiting += found
        elif isinstance(found, dict):
            yield found
            if found.get("type") in {"tool_use", "function_call"}:
                continue  # its `input` is the model's own words
            waiting += found.values()
