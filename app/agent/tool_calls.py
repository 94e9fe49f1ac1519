"""Parses a model's tool calls into typed actions, or into a sentence that says what is wrong with them."""

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from pydantic import ValidationError

from app.agent.actions import ACTIONS, Action
from app.llm.base import ToolCall

MAX_CALLS = 16
"""Calls of one turn that are carried out; the model is told how many were skipped."""
MAX_ARGUMENTS = 1_000_000
_MAX_REFUSED_ARGUMENTS = 2_000
_FENCE = re.compile(r"\A\s*```[a-zA-Z]*\n(.*?)\n?```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """One call. `call` is valid for every provider's history; `action` is None if there is a `problem`."""

    call: ToolCall
    action: Action | None
    problem: str = ""


class MalformedError(Exception):
    """The arguments are not a JSON object."""


def parse_calls(
    calls: Sequence[ToolCall], turn: int, actions: Mapping[str, type[Action]] = ACTIONS
) -> tuple[ParsedCall, ...]:
    """The first MAX_CALLS calls of a turn, each with its own id."""
    taken: set[str] = set()
    parsed = []
    for index, call in enumerate(calls[:MAX_CALLS], start=1):
        call_id = _id(call.id, taken, f"call-{turn}-{index}")
        taken.add(call_id)
        parsed.append(_parse_call(call, call_id, actions))
    return tuple(parsed)


def _id(wanted: str, taken: set[str], fallback: str) -> str:
    if wanted not in taken and re.fullmatch(r"[A-Za-z0-9_.:|-]{1,128}", wanted):
        return wanted
    while fallback in taken:
        fallback += "x"
    return fallback


def _parse_call(call: ToolCall, call_id: str, actions: Mapping[str, type[Action]]) -> ParsedCall:
    kind = actions.get(call.name)
    if kind is None:
        return _refuse(call, call_id, _unknown_tool(call.name, actions))
    try:
        arguments, raw = read_object(call.arguments)
    except MalformedError as error:
        return _refuse(call, call_id, f"The arguments of {call.name} could not be read: {error}. Send one JSON object.")
    given = {key: value for key, value in arguments.items() if value is not None}
    try:
        action = kind.model_validate(given)
    except ValidationError as error:
        return _refuse(call, call_id, _argument_errors(kind, error))
    return ParsedCall(ToolCall(id=call_id, name=call.name, arguments=raw), action)


def read_object(raw: str) -> tuple[dict[str, Any], str]:
    """The JSON object in `raw` and its text; one repair is tried (a code fence, text around it, JSON in a string).

    Raises MalformedError.
    """
    if len(raw) > MAX_ARGUMENTS:
        raise MalformedError(f"{len(raw):,} characters are more than the {MAX_ARGUMENTS:,} that are read")
    text = raw.strip() or "{}"
    try:
        value = _parse(text, strict=True)
    except MalformedError as error:
        value, text = _repair(text, error), ""
    if isinstance(value, str):
        value, text = _parse(value, strict=False), ""
    if not isinstance(value, dict):
        raise MalformedError(f"a JSON {type(value).__name__} instead of an object")
    return value, text or json.dumps(value)


def _parse(text: str, *, strict: bool) -> Any:
    """The value; NaN and lone surrogates are invalid. Not strict: line breaks inside strings are allowed."""
    try:
        text.encode()
        return json.loads(text, parse_constant=_no_constant, strict=strict)
    except RecursionError:
        raise MalformedError("nested too deep") from None
    except UnicodeEncodeError:
        raise MalformedError("not valid Unicode") from None
    except json.JSONDecodeError as error:
        raise MalformedError(f"{error.msg} at character {error.pos + 1:,}") from None
    except ValueError as error:
        raise MalformedError(str(error)[:200]) from None


def _repair(raw: str, first: MalformedError) -> Any:
    """The object after a code fence or before trailing text; `first` is the error of the whole."""
    fenced = _FENCE.match(raw)
    text = fenced.group(1) if fenced else raw
    begin = text.find("{")
    try:
        end = json.JSONDecoder(parse_constant=_no_constant, strict=False).raw_decode(text, max(begin, 0))[1]
    except (ValueError, RecursionError):
        raise first from None
    return _parse(text[max(begin, 0) : end], strict=False)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _unknown_tool(name: str, actions: Mapping[str, type[Action]]) -> str:
    shown = name if len(name) <= 64 else f"{name[:64]}… ({len(name):,} characters)"
    near = difflib.get_close_matches(name[:64].lower(), actions, n=1)
    guess = f" Did you mean {near[0]}?" if near else ""
    return f"There is no tool {shown!r}.{guess} The tools are: {', '.join(actions)}."


def _argument_errors(kind: type[Action], error: ValidationError) -> str:
    """Each invalid argument with its reason, without its value, which may be huge."""
    reasons = [
        f"{'.'.join(str(part)[:64] for part in item['loc'])}: {_reason(item['type'], item['msg'])}"
        for item in error.errors(include_url=False, include_input=False, include_context=False)[:8]
    ]
    return f"{kind.tool} was not executed: {'; '.join(reasons)}. It takes: {', '.join(kind.model_fields)}."


def _reason(kind: str, message: str) -> str:
    known = {"extra_forbidden": "there is no such argument", "missing": "is missing"}
    return known.get(kind, message.removeprefix("Value error, "))


def _refuse(call: ToolCall, call_id: str, problem: str) -> ParsedCall:
    """A call for the history that every provider accepts, whatever the model wrote."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", call.name)[:64] or "unknown"
    kept = ToolCall(id=call_id, name=name, arguments=_presentable(call.arguments))
    return ParsedCall(kept, None, problem)


def _presentable(raw: str) -> str:
    if len(raw) > _MAX_REFUSED_ARGUMENTS:
        return json.dumps({"left_out": f"{len(raw):,} characters"})
    try:
        fit = isinstance(_parse(raw, strict=True), dict) and "\\ud" not in raw.lower()
    except MalformedError:
        fit = False
    return raw if fit else json.dumps({"unreadable": raw})
