"""Allows only those tools that an agent runs itself, in the form of its protocol."""

from collections.abc import Mapping
from typing import Any

from app.agent.external.gateway.protocols import RequestRefused
from app.llm.raw_call import WireProtocol

_NAMED = frozenset({"type", "name", "description", "strict", "defer_loading", "cache_control"})
_RESPONSES = _NAMED | {"parameters"}
_MESSAGES = _NAMED | {"input_schema", "input_examples", "eager_input_streaming"}
_ANTHROPIC = frozenset({"type", "name", "cache_control", "max_characters"})
OWN_TOOLS: Mapping[WireProtocol, Mapping[str, frozenset[str]]] = {
    "chat": {
        "function": frozenset({"type", "function", "strict", "cache_control"}),
        "custom": frozenset({"type", "custom"}),
    },
    "responses": {
        "function": _RESPONSES,
        "custom": _NAMED | {"format"},
        "local_shell": frozenset({"type"}),
        "shell": frozenset({"type"}),
        "apply_patch": frozenset({"type"}),
    },
    "messages": {"custom": _MESSAGES, "bash_": _ANTHROPIC, "text_editor_": _ANTHROPIC, "memory_": _ANTHROPIC},
}
"""Allowed fields by kind (`_` at its end: any version). The provider runs all other kinds on its own network, some
of them for a key alone (`{"google_search": {}}`)."""


def check_tools(protocol: WireProtocol, tools: Any) -> None:
    """Raises RequestRefused."""
    if tools is None:
        return
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise RequestRefused(400, "bad_request", "tools is to be a list of objects.")
    for tool in tools:
        if protocol == "responses" and tool.get("type") == "namespace":  # a namespace for the agent's own tools
            check_tools(protocol, tool.get("tools"))
        else:
            _check_tool(protocol, tool)


def _check_tool(protocol: WireProtocol, tool: Mapping[str, Any]) -> None:
    kind = tool.get("type", "custom" if protocol == "messages" else None)
    own = next((kept for name, kept in OWN_TOOLS[protocol].items() if _is_kind(kind, name)), None)
    if own is None:
        message = f"The tool {_tool_names(tool)} is carried out by the provider, with a network that this job lacks."
        raise RequestRefused(400, "tool_not_offered", message)
    odd = sorted(str(name)[:60] for name in tool.keys() - own)
    if odd:
        raise RequestRefused(400, "tool_not_offered", f"A tool of this kind has no {odd[0]!r} here.")
    check_cache(tool)


def check_cache(part: Mapping[str, Any]) -> None:
    """Raises RequestRefused for a cache with another price than the expected one."""
    kept = part.get("cache_control")
    if isinstance(kept, dict) and kept.get("ttl", "5m") != "5m":
        raise RequestRefused(400, "not_offered", "A cache is kept for 5m here: longer has another price.")


def _is_kind(kind: Any, name: str) -> bool:
    return isinstance(kind, str) and (kind == name or (name.endswith("_") and kind.startswith(name)))


def _tool_names(tool: Mapping[str, Any]) -> str:
    return repr(str(tool.get("type") or ", ".join(map(str, tool)))[:60])
