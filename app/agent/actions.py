"""The tools as described to the model, and its calls of them: a typed action, or a sentence that says what is wrong."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, NoReturn, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from app.agent.base import Objection, Submission
from app.core.examples import Because, Example, Run, SourceText
from app.core.text import nearest
from app.llm.base import ToolCall, ToolSpec

MAX_TIMEOUT = 1_800
DEFAULT_TIMEOUT = 120
MAX_LESSONS, MAX_LESSON = 3, 600
A = TypeVar("A", bound="Action")


def _writable(text: str) -> str:
    """Reject NUL and lone surrogates, which neither a command line nor a file can hold."""
    if "\0" in text:
        raise ValueError("must not contain NUL characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("must be valid Unicode") from None
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text


def _lessons(value: object) -> tuple[str, ...]:
    """Lessons are optional, so invalid or too long ones are dropped instead of rejecting the submission."""
    items = value if isinstance(value, list | tuple) else [value]
    texts = [": ".join(map(str, item.values())) if isinstance(item, dict) else item for item in items]
    fit = (text for text in texts if isinstance(text, str) and text.strip() and len(text) <= MAX_LESSON)
    return tuple(text.encode("utf-8", "replace").decode().replace("\0", "") for text in fit)[:MAX_LESSONS]


Text = Annotated[str, AfterValidator(_writable)]
Path = Annotated[
    str,
    Field(max_length=4_000),
    AfterValidator(_writable),
    AfterValidator(_not_blank),
]


class Action(BaseModel):
    """The validated arguments of one call: oversized values, NaN and NUL are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    tool: ClassVar[str]
    about: ClassVar[str]
    main_field: ClassVar[str]
    """What the action is about."""
    changes_files: ClassVar[bool] = False

    @property
    def target(self) -> str:
        """What the action is about, for one line of a log."""
        return str(getattr(self, self.main_field))


class BashAction(Action):
    tool = "bash"
    main_field = "command"
    about = (
        f"Execute a command in a new shell; background processes end with it. Empty stdin. Limit {DEFAULT_TIMEOUT} s, "
        f"up to {MAX_TIMEOUT:,} s if asked for. Long output: head and tail, the whole in a file."
    )
    changes_files = True
    command: Annotated[Text, Field(max_length=30_000), AfterValidator(_not_blank)]
    timeout: Annotated[float, Field(ge=1, le=MAX_TIMEOUT)] = DEFAULT_TIMEOUT


class ViewAction(Action):
    tool = "view"
    main_field = "path"
    about = "Show a file's lines start to end with their numbers (else what fits), or a directory."
    path: Path
    start: Annotated[int, Field(ge=1, le=10**9)] = 1
    end: Annotated[int | None, Field(ge=-1, le=10**9)] = None

    @property
    def target(self) -> str:
        if self.start == 1 and self.end is None:
            return self.path
        return f"{self.path}:{self.start}-{self.end or ''}"


class EditAction(Action):
    tool = "edit"
    main_field = "path"
    about = (
        "Replace old_text, which must be in the file exactly once: copied with its indentation, without line numbers."
    )
    changes_files = True
    path: Path
    old_text: Annotated[Text, Field(max_length=100_000)]
    new_text: Annotated[Text, Field(max_length=200_000)]


class WriteAction(Action):
    tool = "write"
    main_field = "path"
    about = "Create or replace a file."
    changes_files = True
    path: Path
    content: Annotated[Text, Field(max_length=500_000)]


class RestoreAction(Action):
    tool = "restore"
    main_field = "path"
    about = "Undo all changes to a path."
    changes_files = True
    path: Path


class SearchAction(Action):
    tool = "search"
    main_field = "query"
    about = "Find text (literal or regular expression) or files by name (`*.toml`); definitions come first."
    query: Annotated[Text, Field(max_length=1_000), AfterValidator(_not_blank)]


MAX_SUMMARY: Final = 8_000


class SubmitAction(Action):
    tool = "submit"
    main_field = "summary"
    about = "Hand in the work; the only call of its turn."
    summary: Annotated[
        Text,
        Field(max_length=MAX_SUMMARY, description="What was wrong, what you changed."),
        AfterValidator(_not_blank),
    ]
    reproduction: Annotated[Text, Field(max_length=4_000)] = ""
    lessons: Annotated[
        tuple[str, ...],
        Field(description="Rarely: lasting facts, each `path: fact`."),
        BeforeValidator(_lessons),
    ] = ()
    objections: Annotated[
        tuple[Objection, ...],
        Field(max_length=8, description="Failing examples that the issue does not ask for, each with the reason."),
    ] = ()

    @property
    def submission(self) -> Submission:
        return Submission(
            summary=self.summary,
            reproduction=self.reproduction.strip(),
            lessons=self.lessons,
            objections=self.objections,
        )


class Nested(BaseModel):
    """An object inside the arguments of a call; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class QuotedWords(Nested):
    """`Because` as a model writes it."""

    quote: Annotated[Text, Field(max_length=2_000)] = ""
    source: Annotated[Text, Field(max_length=400, description="`issue`, a path, or `today`")] = "issue"


class ProgramFile(Nested):
    path: Path
    text: Annotated[Text, Field(max_length=20_000)]


class WrittenExample(Nested):
    """`Example` as a model writes it."""

    behaviour: Annotated[Text, Field(max_length=600), AfterValidator(_not_blank)]
    because: QuotedWords = QuotedWords()
    kind: Annotated[Literal["shows", "keeps"], Field(description="`shows` prints something else today")] = "shows"
    run: Run
    program: Annotated[Text, Field(max_length=20_000)]
    args: Annotated[tuple[Text, ...], Field(max_length=40)] = ()
    stdin: Annotated[Text, Field(max_length=20_000)] = ""
    files: Annotated[tuple[ProgramFile, ...], Field(max_length=10)] = ()
    stdout: Annotated[Text, Field(max_length=8_000, description="exactly what it prints")] = ""
    exit: Annotated[int, Field(ge=0, le=255)] = 0

    @property
    def example(self) -> Example:
        values = self.model_dump(exclude={"because", "files"})
        files = tuple(SourceText(path=file.path, text=file.text) for file in self.files)
        because = Because(quote=self.because.quote, source=self.because.source)
        return Example(**values, because=because, files=files)


class OutdatedName(Nested):
    test: Annotated[Text, Field(max_length=400)]
    because: Annotated[Text, Field(max_length=2_000)] = ""


_Examples = Annotated[tuple[WrittenExample, ...], Field(max_length=12)]
_Lines = Annotated[tuple[Annotated[Text, Field(max_length=2_000)], ...], Field(max_length=30)]


class PlanAction(Action):
    tool = "plan"
    main_field = "summary"
    about = "Hand in the plan, before any change; the only call of its turn. Its examples are run on the code as it is."
    examples: _Examples = ()
    outdated: Annotated[
        tuple[OutdatedName, ...],
        Field(max_length=20, description="Existing tests that contradict the issue, with its words."),
    ] = ()
    questions: _Lines = ()
    summary: Annotated[Text, Field(max_length=4_000), AfterValidator(_not_blank)]
    steps: _Lines = ()
    files: Annotated[_Lines, Field(description="Paths likely to change.")] = ()


class CounterAction(Action):
    tool = "counter"
    main_field = "reason"
    about = "Hand in counter-examples, or only the reason why there are none; the only call of its turn."
    examples: _Examples = ()
    reason: Annotated[Text, Field(max_length=2_000)] = ""

    @property
    def target(self) -> str:
        return self.reason or f"{len(self.examples)} examples"


ACTIONS: dict[str, type[Action]] = {
    kind.tool: kind
    for kind in (
        BashAction,
        ViewAction,
        EditAction,
        WriteAction,
        RestoreAction,
        SearchAction,
        PlanAction,
        SubmitAction,
    )
}
REVIEWER_ACTIONS: dict[str, type[Action]] = {kind.tool: kind for kind in (ViewAction, SearchAction, CounterAction)}
"""For the reviewer, who changes nothing."""


def specs(actions: Mapping[str, type[Action]] = ACTIONS) -> tuple[ToolSpec, ...]:
    """The tools in a fixed order and with fixed bytes, so that the prompt's prefix can be cached."""
    kinds = actions.values()
    return tuple(ToolSpec(name=kind.tool, description=kind.about, parameters=_schema(kind)) for kind in kinds)


def _schema(kind: type[BaseModel]) -> dict[str, Any]:
    """Pydantic's schema without what a model does not need: titles, size limits, null alternatives."""
    full = kind.model_json_schema()
    return _object(full, full.get("$defs", {}))


def _object(full: dict[str, Any], defined: dict[str, Any]) -> dict[str, Any]:
    properties = {name: _property(prop, defined) for name, prop in full["properties"].items()}
    return {"type": "object", "properties": properties, "required": full.get("required", [])}


def _property(prop: dict[str, Any], defined: dict[str, Any]) -> dict[str, Any]:
    described = {"description": prop["description"]} if "description" in prop and "$ref" not in prop else {}
    if "$ref" in prop:
        return _object(defined[prop["$ref"].rsplit("/", 1)[-1]], defined)
    if "anyOf" in prop:
        prop = next(option for option in prop["anyOf"] if option.get("type") != "null")
    kept: dict[str, Any] = {"type": prop["type"], **described}
    if "enum" in prop:
        kept["enum"] = prop["enum"]
    if "items" in prop:
        kept["items"] = _property(prop["items"], defined)
    return kept


MAX_CALLS = 16
"""Calls of one turn that are carried out; the model is told how many were skipped."""
MAX_ARGUMENTS = 1_000_000
_MAX_REFUSED_ARGUMENTS = 2_000
_REASONS = {"extra_forbidden": "there is no such argument", "missing": "is missing"}
_FENCE = re.compile(r"\A\s*```[a-zA-Z]*\n(.*?)\n?```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """One call. `call` is valid for every provider's history; `action` is None if there is a `problem`."""

    call: ToolCall
    action: Action | None
    problem: str = ""
    note: str = ""
    """About arguments that were ignored."""


class MalformedError(Exception):
    """The arguments are not a JSON object."""


def parse_calls(
    calls: Sequence[ToolCall], turn: int, actions: Mapping[str, type[Action]] = ACTIONS
) -> tuple[ParsedCall, ...]:
    """The first MAX_CALLS calls of a turn, each with its own id."""
    taken: set[str] = set()
    parsed = []
    for index, call in enumerate(calls[:MAX_CALLS], start=1):
        call_id = call.id
        if call_id in taken or not re.fullmatch(r"[A-Za-z0-9_.:|-]{1,128}", call_id):
            call_id = f"call-{turn}-{index}"
            while call_id in taken:
                call_id += "x"
        taken.add(call_id)
        parsed.append(_parse_call(call, call_id, actions))
    return tuple(parsed)


def _parse_call(call: ToolCall, call_id: str, actions: Mapping[str, type[Action]]) -> ParsedCall:
    kind = actions.get(call.name)
    if kind is None:
        return _refuse(call, call_id, _unknown_tool(call.name, actions))
    try:
        arguments, raw = read_object(call.arguments)
    except MalformedError as error:
        return _refuse(call, call_id, f"The arguments of {call.name} could not be read: {error}. Send one JSON object.")
    known = {name: value for name, value in arguments.items() if name in kind.model_fields}
    try:
        action = validated(kind, known)
    except ValidationError as error:
        return _refuse(call, call_id, _argument_errors(kind, error))
    unknown = ", ".join(name[:64] for name in arguments if name not in known)
    note = f"(ignored, {kind.tool} has no such argument: {unknown})" if unknown else ""
    return ParsedCall(ToolCall(id=call_id, name=call.name, arguments=raw), action, note=note)


def validated(kind: type[A], arguments: Mapping[str, Any]) -> A:
    """The action; an argument that is null counts as absent. Raises ValidationError."""
    return kind.model_validate({name: value for name, value in arguments.items() if value is not None})


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
    near = nearest(name[:64].lower(), actions)
    guess = f" Did you mean {near}?" if near else ""
    return f"There is no tool {shown!r}.{guess} The tools are: {', '.join(actions)}."


def _argument_errors(kind: type[Action], error: ValidationError) -> str:
    return f"{kind.tool} was not executed: {invalid_arguments(error)}. It takes: {', '.join(kind.model_fields)}."


def invalid_arguments(error: ValidationError) -> str:
    """Each invalid argument with its reason, without its value, which may be huge."""
    return "; ".join(
        f"{'.'.join(str(part)[:64] for part in item['loc'])}: "
        + _REASONS.get(item["type"], item["msg"].removeprefix("Value error, "))
        for item in error.errors(include_url=False, include_input=False, include_context=False)[:8]
    )


def _refuse(call: ToolCall, call_id: str, problem: str) -> ParsedCall:
    """A call for the history that every provider accepts, whatever the model wrote."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", call.name)[:64] or "unknown"
    arguments = call.arguments
    try:
        if len(arguments) > _MAX_REFUSED_ARGUMENTS:
            arguments = json.dumps({"left_out": f"{len(arguments):,} characters"})
        elif not isinstance(_parse(arguments, strict=True), dict) or "\\ud" in arguments.lower():
            arguments = json.dumps({"unreadable": arguments})
    except MalformedError:
        arguments = json.dumps({"unreadable": arguments})
    return ParsedCall(ToolCall(id=call_id, name=name, arguments=arguments), None, problem)
