"""The plan, which people can see, approve and edit before work begins, as YAML, Markdown or plain text."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import yaml
from pydantic import Field, ValidationError

from app.core.errors import AgentFixError, ExitCode
from app.core.examples import Example
from app.core.record import Record
from app.core.yaml_and_toml import with_depth


class Plan(Record):
    """What will be done, and as examples what will be true afterwards."""

    summary: str = Field(description="One or two sentences: what is wrong and what will be changed.")
    candidate_files: tuple[str, ...] = Field(default=(), description="Paths likely to change or to be read.")
    steps: tuple[str, ...] = Field(default=(), description="Short imperative steps, in order.")
    questions: tuple[str, ...] = Field(
        default=(),
        description="Only what the work cannot sensibly begin without and only people can answer; else empty.",
    )
    examples: tuple[Example, ...] = Field(default=(), description="Programs and what each will print afterwards.")


LIST_FIELDS = ("candidate_files", "steps", "questions")
EXAMPLES = "examples"
FIELDS = ("summary", *LIST_FIELDS, EXAMPLES)
GONE: Final = ("hypotheses", "reproduce", "verify")
"""Keys of plans until 0.1: still accepted in a file, and not used."""

_TITLES = {"candidate_files": "Files", "steps": "Steps", "questions": "Questions", EXAMPLES: "Examples"}
_FIELD_OF = {title.lower(): field for field, title in _TITLES.items()} | {
    name: name.replace(" ", "_") for name in ("summary", "candidate files", "candidate_files")
}
_FIELD_OF |= dict(zip(("likely causes", "reproduce", "verify"), GONE, strict=True))
_OF_THE_HARNESS: Final = {"name", "origin"}
"""What people do not write."""
_LARGEST, _MAX_TEXT_LENGTH, _MAX_ITEMS, _DEEPEST = 64_000, 4_000, 30, 8

Fields = dict[str, str | list[str] | list[Example]]


class PlanError(AgentFixError):
    """The plan cannot be used; if it came from a file, the message names the line."""

    def __init__(self, message: str, *, line: int | None = None) -> None:
        where = f"line {line}: " if line else ""
        hint = f"A plan has: {', '.join(FIELDS)}. Only summary is required."
        super().__init__(f"{where}{message}", code=ExitCode.PLAN_INVALID, hint=hint)


def render_plan(plan: Plan) -> str:
    """A plan as plain text for the terminal and for the agent."""
    parts = [plan.summary]
    parts += [f"{title}:\n{_bullets(items)}" for title, items in _list_fields(plan)]
    if plan.examples:
        parts.append(f"Afterwards:\n{_bullets([one.behaviour for one in plan.examples])}")
    return "\n\n".join(parts)


def render_plan_file(plan: Plan) -> str:
    """A plan as YAML, to be edited and passed back with `--plan FILE`."""
    head = "# Edit what you like, then pass it with --plan FILE. Only the summary is required.\n"
    fields = {name: value for name, value in plan.model_dump(mode="json").items() if name != EXAMPLES}
    text = head + yaml.dump(fields, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return f"{text}{EXAMPLES}:\n{render_examples_file(plan)}" if plan.examples else text


def render_examples_file(plan: Plan) -> str:
    """A plan's examples as a YAML list; empty if it has none."""
    examples = [one.model_dump(mode="json", exclude=_OF_THE_HARNESS, exclude_defaults=True) for one in plan.examples]
    return yaml.dump(examples, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110) if examples else ""


def parse_examples(text: str) -> list[Example]:
    """Examples from a YAML list, as people edit it. Raises PlanError, which names the line."""
    fields = _from_yaml(f"{EXAMPLES}:\n{text}")
    return [one for one in fields[EXAMPLES] if isinstance(one, Example)]


def parse_plan_file(text: str) -> Plan:
    """Parse an edited plan in YAML (or JSON) or Markdown. Raises PlanError, which names the line."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if len(text) > _LARGEST:
        raise PlanError(f"The plan has {len(text):,} characters; at most {_LARGEST:,} are read.")
    if not text.strip():
        raise PlanError("The plan is empty.")
    return plan_from_fields(_from_yaml(text) if _looks_like_yaml(text) else _from_markdown(text))


def plan_from_fields(fields: Fields) -> Plan:
    """Build a Plan. Raises PlanError if a part is missing or too long for people to read."""
    if not str(fields.get("summary", "")).strip():
        raise PlanError("The plan has no summary.")
    for name, value in fields.items():
        texts = [value] if isinstance(value, str) else [str(item) for item in value]
        if name == EXAMPLES:
            texts = [text[:0] for text in texts]
        if len(texts) > _MAX_ITEMS:
            raise PlanError(f"{name} has {len(texts)} items; at most {_MAX_ITEMS} are read.")
        longest = max(map(len, texts), default=0)
        if longest > _MAX_TEXT_LENGTH:
            raise PlanError(f"{name} has a text of {longest:,} characters; at most {_MAX_TEXT_LENGTH:,} are read.")
    values = {name: value if isinstance(value, str) else tuple(value) for name, value in fields.items()}
    return Plan.model_validate({name: value for name, value in values.items() if name not in GONE})


def with_origin(plan: Plan, known: Sequence[Example]) -> Plan:
    """The plan as people left it: examples that are not among those `known` are theirs."""
    bare = {one.model_copy(update={"name": "", "origin": "plan"}) for one in known}
    examples = tuple(
        one
        if (plain := one.model_copy(update={"name": "", "origin": "plan"})) in bare
        else plain.model_copy(update={"origin": "person"})
        for one in plan.examples
    )
    return plan.model_copy(update={"examples": examples})


def _list_fields(plan: Plan) -> Iterator[tuple[str, Sequence[str]]]:
    return ((_TITLES[field], getattr(plan, field)) for field in LIST_FIELDS if getattr(plan, field))


def _bullets(items: Sequence[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


class _Dumper(yaml.SafeDumper):
    """Writes multi-line strings as YAML blocks, which people can edit."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    printable = all(line.isprintable() for line in text.split("\n"))
    style = ("|" if "\n" in text else None) if printable else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def _looks_like_yaml(text: str) -> bool:
    """True if a line starts with a known key, for a JSON object, or for `word:` without any Markdown."""
    if text.lstrip().startswith("{") or re.search(rf"^({'|'.join(FIELDS)})\s*:", text, re.MULTILINE):
        return True
    return re.match(r"\w+:(\s|$)", text) is not None and not re.search(r"^#{1,6} ", text, re.MULTILINE)


def _from_yaml(text: str) -> Fields:
    """Text by key, read from the syntax tree.

    Nothing is constructed, so aliases cannot expand and `no` stays a string.
    """
    try:
        _refuse_oddities(text)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise PlanError(f"{error.problem}.", line=_line(error.problem_mark)) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise PlanError(f"The plan is not valid YAML: {str(error)[:200]}") from None
    if not isinstance(root, yaml.MappingNode):
        raise PlanError("The plan must have keys and values.", line=1)
    fields: Fields = {}
    for key, value in root.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else ""
        if name not in (*FIELDS, *GONE) or name in fields:
            what = "is there twice" if name in fields else "is not a key of a plan"
            raise PlanError(f"{str(name)[:60]!r} {what}.", line=_line(key.start_mark))
        if name == EXAMPLES:
            fields[name] = _yaml_examples(value)
        elif name not in GONE:
            fields[name] = _yaml_list(value, text) if name in LIST_FIELDS else _yaml_text(value, name)
    return fields


def _yaml_examples(node: yaml.Node) -> list[Example]:
    """Examples from a list of mappings. Raises PlanError."""
    if isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null"):
        return []
    if not isinstance(node, yaml.SequenceNode):
        raise PlanError("examples must be a list.", line=_line(node.start_mark))
    examples = []
    for item in node.value:
        values = _yaml_value(item)
        if not isinstance(values, dict):
            raise PlanError("an example has keys and values.", line=_line(item.start_mark))
        values.setdefault("because", {"quote": "", "source": "issue"})
        try:
            examples.append(Example.model_validate(values))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise PlanError(f"an example's {where}: {first['msg']}.", line=_line(item.start_mark)) from None
    return examples


def _yaml_value(node: yaml.Node) -> object:
    """Texts, lists and mappings; nothing else is constructed."""
    if isinstance(node, yaml.MappingNode):
        return {str(getattr(key, "value", "")): _yaml_value(value) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [_yaml_value(item) for item in node.value]
    return "" if node.tag.endswith(":null") else str(node.value)


def _refuse_oddities(text: str) -> None:
    """Refuse aliases and deep nesting: the scanner's work grows with the square of the depth."""
    for event, depth in with_depth(yaml.parse(text, Loader=yaml.SafeLoader)):
        if isinstance(event, yaml.AliasEvent) or depth > _DEEPEST:
            what = "aliases are not allowed." if depth <= _DEEPEST else "nested too deep."
            raise PlanError(what, line=_line(event.start_mark))


def _yaml_text(node: yaml.Node, name: str) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise PlanError(f"{name} must be a text.", line=_line(node.start_mark))
    return "" if node.tag.endswith(":null") else str(node.value)


def _yaml_list(node: yaml.Node, text: str) -> list[str]:
    if isinstance(node, yaml.ScalarNode):
        return [] if node.tag.endswith(":null") else [str(node.value)]
    if not isinstance(node, yaml.SequenceNode):
        raise PlanError("must be a list of texts.", line=_line(node.start_mark))
    # YAML reads `- first: look` as a mapping, but its author meant a sentence
    return [
        str(item.value)
        if isinstance(item, yaml.ScalarNode)
        else " ".join(text[item.start_mark.index : item.end_mark.index].split())
        for item in node.value
    ]


def _line(mark: "yaml.error.Mark | yaml._yaml.Mark | None") -> int:
    return mark.line + 1 if mark is not None else 1


def _from_markdown(text: str) -> Fields:
    """Sections by heading. Text before the first heading, or under `Plan`, is the summary."""
    sections: dict[str, list[str]] = {"summary": []}
    name, fence = "summary", ""
    for number, line in enumerate(text.split("\n"), start=1):
        if mark := re.match(r"(`{3,})", line.lstrip()):
            fence = "" if fence and len(mark.group(1)) >= len(fence) else fence or mark.group(1)
        heading = None if fence else re.match(r"#{1,6}\s+(.+?)[\s#:]*$", line)
        if heading is None:
            sections[name].append(line)
            continue
        name = _section(heading.group(1), number)
        if name in sections and name != "summary":
            raise PlanError(f"the section {heading.group(1)!r} appears twice.", line=number)
        sections.setdefault(name, [])
    return {name: _markdown_field(name, lines) for name, lines in sections.items()}


def _section(title: str, number: int) -> str:
    name = "summary" if title.lower() == "plan" else _FIELD_OF.get(title.lower())
    if name is None:
        raise PlanError(f"{title[:60]!r} is not a section of a plan.", line=number)
    return name


def _markdown_field(name: str, lines: Sequence[str]) -> str | list[str] | list[Example]:
    if name in LIST_FIELDS:
        return _items(lines)
    text = "\n".join(lines).strip()
    if name != EXAMPLES:
        return text
    return parse_examples(_block(text))


def _items(lines: Sequence[str]) -> list[str]:
    """The items of a list: bullets, numbers or plain lines. An indented line continues the previous item."""
    items: list[str] = []
    for line in filter(str.strip, lines):
        bullet = re.match(r"(?:[-*+]|\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?(.*)", line)
        if bullet is None and line[0].isspace() and items:
            items[-1] += f" {line.strip()}"
        else:
            items.append((bullet.group(1) if bullet else line).strip())
    return items


def _block(text: str) -> str:
    """The content of a code block, or the text itself."""
    block = re.fullmatch(r"(`{3,})[^\n`]*\n(.*?)\n?\1", text, re.DOTALL)
    return block.group(2) if block else text
