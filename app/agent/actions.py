"""The six tools as described to the model, and the typed action for each call."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from app.llm.base import ToolSpec

MAX_TIMEOUT = 1_800
DEFAULT_TIMEOUT = 120
MAX_LESSONS, MAX_LESSON = 3, 600


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


class Action(BaseModel, ABC):
    """The validated arguments of one call: unknown fields, oversized values, NaN and NUL are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    tool: ClassVar[str]
    about: ClassVar[str]
    changes_files: ClassVar[bool] = False

    @property
    @abstractmethod
    def target(self) -> str:
        """What the action is about, for one line of a log."""


class BashAction(Action):
    tool = "bash"
    about = (
        "Execute a command with bash in /workspace, in a new shell; background processes end with it. No network, "
        f"empty stdin. Limit {DEFAULT_TIMEOUT} s, up to {MAX_TIMEOUT:,} s if asked for. Long output: head and tail, "
        "the whole in a file."
    )
    changes_files = True
    command: Annotated[Text, Field(max_length=30_000), AfterValidator(_not_blank)]
    timeout: Annotated[float, Field(ge=1, le=MAX_TIMEOUT)] = DEFAULT_TIMEOUT

    @property
    def target(self) -> str:
        return self.command


class ViewAction(Action):
    tool = "view"
    about = "Show lines start to end of a file with their numbers (else as much as fits), or list a directory."
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
    about = (
        "Replace old_text, which must be in the file exactly once: copied with its indentation and enough lines "
        "around, without line numbers."
    )
    changes_files = True
    path: Path
    old_text: Annotated[Text, Field(max_length=100_000)]
    new_text: Annotated[Text, Field(max_length=200_000)]

    @property
    def target(self) -> str:
        return self.path


class WriteAction(Action):
    tool = "write"
    about = "Create a file with its directories, or replace all of it."
    changes_files = True
    path: Path
    content: Annotated[Text, Field(max_length=500_000)]

    @property
    def target(self) -> str:
        return self.path


class SearchAction(Action):
    tool = "search"
    about = "Find text (literal, else a regular expression) or files by name (`*.toml`). Definitions come first."
    query: Annotated[Text, Field(max_length=1_000), AfterValidator(_not_blank)]

    @property
    def target(self) -> str:
        return self.query


class SubmitAction(Action):
    tool = "submit"
    about = "Hand in the work, as the only call of the turn."
    summary: Annotated[
        Text,
        Field(max_length=8_000, description="What was wrong and what you changed."),
        AfterValidator(_not_blank),
    ]
    reproduction: Annotated[Text, Field(max_length=4_000)] = ""
    objection: Annotated[Text, Field(max_length=4_000)] = ""
    lessons: Annotated[
        tuple[str, ...],
        Field(description="Rarely: lasting facts for later jobs here, each `path: fact`."),
        BeforeValidator(_lessons),
    ] = ()

    @property
    def target(self) -> str:
        return self.summary


class TestFile(BaseModel):
    """A new file of tests."""

    __test__: ClassVar[bool] = False  # not a test class, whatever pytest makes of its name
    model_config = ConfigDict(frozen=True, extra="forbid")
    path: Path
    content: Annotated[Text, Field(max_length=60_000)]


_Ids = Annotated[tuple[Annotated[Text, Field(max_length=400)], ...], Field(max_length=100)]


class Specify(Action):
    tool = "specify"
    about = "Hand in the specification tests; the only call of its turn. Each is executed on the code as it is."
    files: Annotated[tuple[TestFile, ...], Field(max_length=20, description="New test files.")] = ()
    tests: Annotated[_Ids, Field(description="The runner's ids of the tests in them, the example first.")] = ()
    outdated: Annotated[_Ids, Field(description="Ids of existing tests that assert what the issue calls wrong.")] = ()
    reason: Annotated[
        Text, Field(max_length=1_000, description="Only without tests: why none can show what the issue asks for.")
    ] = ""

    @property
    def target(self) -> str:
        return ", ".join(self.tests) or self.reason


ACTIONS: dict[str, type[Action]] = {
    kind.tool: kind for kind in (BashAction, ViewAction, EditAction, WriteAction, SearchAction, SubmitAction)
}
AUTHOR_ACTIONS: dict[str, type[Action]] = {kind.tool: kind for kind in (ViewAction, SearchAction, Specify)}
"""For the author of the specification tests, who changes nothing."""


def specs(actions: Mapping[str, type[Action]] = ACTIONS) -> tuple[ToolSpec, ...]:
    """The tools in a fixed order and with fixed bytes, so that the prompt's prefix can be cached."""
    kinds = actions.values()
    return tuple(ToolSpec(name=kind.tool, description=kind.about, parameters=_schema(kind)) for kind in kinds)


def _schema(kind: type[Action]) -> dict[str, Any]:
    """Pydantic's schema without what a model does not need: titles, size limits, null alternatives."""
    full = kind.model_json_schema()
    properties = {name: _property(prop, full.get("$defs", {})) for name, prop in full["properties"].items()}
    return {"type": "object", "properties": properties, "required": full.get("required", [])}


def _property(prop: dict[str, Any], defined: dict[str, Any]) -> dict[str, Any]:
    kind = prop.get("type") or next(option["type"] for option in prop["anyOf"] if option["type"] != "null")
    kept: dict[str, Any] = {"description": prop["description"]} if "description" in prop else {}
    if "items" in prop:
        kept["items"] = _items(prop["items"], defined)
    return {"type": kind, **kept}


def _items(items: dict[str, Any], defined: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in items:
        return {"type": items["type"]}
    full = defined[items["$ref"].rsplit("/", 1)[-1]]
    properties = {name: {"type": prop["type"]} for name, prop in full["properties"].items()}
    return {"type": "object", "properties": properties, "required": full["required"]}
