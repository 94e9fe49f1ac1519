"""GitHub's published description of its REST API: every request that a fake gets is held against it, and every answer.

Requests have to fit github.com and the oldest Enterprise Server that is supported, and githubkit's models of the newest
version. Answers may tell nothing that the description does not know; what they must tell is known from githubkit's
models (`tests.support.github.shapes`), since the description is of the version before.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache, partial, reduce
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from githubkit_schemas.latest import models
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from jsonschema.exceptions import best_match  # type: ignore[import-untyped]
from pydantic import BaseModel, TypeAdapter, ValidationError

from app.github.calls import CALLS, GET_REPOSITORY, GET_REPOSITORY_BY_ID, Call
from tests.support.emulate.provision import Unavailable
from tests.support.npm import CACHE, alone, member

PACKAGE = "@octokit/openapi@23.0.2"
SHA256 = "71a18407dd5e8464f4e0525daf03deabbe65abd9287d6adc7b5d98f516cd0d0c"
NEWEST, OLDEST = "api.github.com", "ghes-3.17"
VIOLATIONS: list[str] = []
"""What did not fit since the test began; `tests/conftest.py` fails the test for it."""

Schema = dict[str, Any]
MOVED = {301, 307}
"""Any address may be another one by now; GitHub says so in its guide and not of each operation."""
NEWER = {"label": {"archived_at", "archived_by"}}
"""Fields that githubkit's models have and the description, which is older, does not know yet."""
NEWER_KINDS = "repository-rule-detailed"
"""Has kinds that the description does not know yet; githubkit's models judge those that they know."""
_KEPT = {"enum", "type", "minItems", "maxItems", "minLength", "maxLength", "pattern"}
_SEEN: set[bytes] = set()


class Answer(NamedTuple):
    status: int
    media: str
    content: bytes


def note(call: Call, query: str, body: bytes, answer: Answer | None = None) -> None:
    """Hold a request, and an answer of our own, against the description; nothing where that cannot be had."""
    key = hashlib.sha256(repr((call.title, query, body, answer)).encode()).digest()
    if key in _SEEN or isinstance(operations(), str):
        return
    _SEEN.add(key)
    wrong = [*wrong_request(call, dict(parse_qsl(query)), json.loads(body) if body else None)]
    if answer is not None and (answer.media.startswith("application/json") or not answer.content):
        wrong += wrong_answer(call, answer.status, json.loads(answer.content) if answer.content else None)
    VIOLATIONS.extend(f"{call.title}: {each}" for each in wrong)


def wrong_request(call: Call, query: Mapping[str, str], body: Any) -> Iterator[str]:
    for name in (NEWEST, OLDEST):
        operation = _operation(name, call)
        for key, value in query.items():
            schema = operation["query"].get(key)
            if schema is None:
                yield f"{name} has no parameter {key}"
            elif error := _error(name, call, ("query", key), _typed(schema, value)):
                yield f"{name}: parameter {key}: {error}"
        if operation["body"] is None:
            if body:
                yield f"{name} takes no body"
        elif error := _error(name, call, ("body",), body if body is not None else {}):
            yield f"{name}: body: {error}"
    if body and not any(_fits(model, body) for model in _bodies(call.method, call.path)):
        yield f"no model of githubkit's takes this body: {body}"


def wrong_answer(call: Call, status: int, content: Any) -> Iterator[str]:
    answers = _operation(NEWEST, call)["answers"]
    if status in MOVED:
        return
    if status < 400 and str(status) not in answers:
        yield f"answers {status}; published are {', '.join(answers)}"
    elif status >= 400 and not (isinstance(content, dict) and isinstance(content.get("message"), str)):
        yield f"answers {status} without a message"
    elif status < 400 and answers[str(status)] and (error := _error(NEWEST, call, ("answers", str(status)), content)):
        yield f"answer: {error}"


@cache
def operations() -> dict[str, Any] | str:
    """The operations that the product uses, with the schemas they need; a sentence where that cannot be had.

    What is needed of the 13 megabytes is kept beside the package while this module and the table stay the same.
    """
    rows = [call for call in CALLS if call.method != "GIT" and not call.text]
    digest = hashlib.sha256(Path(__file__).read_bytes() + repr([call.title for call in rows]).encode()).hexdigest()
    kept = CACHE / f"openapi-{digest[:16]}.json"
    if not kept.exists():
        try:
            texts = {name: member(PACKAGE, SHA256, f"generated/{name}.json") for name in (NEWEST, OLDEST)}
        except Unavailable as unavailable:
            return str(unavailable)
        with alone():
            if not kept.exists():
                found = {name: _Extract(json.loads(text)).of(rows) for name, text in texts.items()}
                kept.with_suffix(".new").write_text(json.dumps(found))
                kept.with_suffix(".new").rename(kept)
    loaded: dict[str, Any] = json.loads(kept.read_text())
    return loaded


def _operation(name: str, call: Call) -> Schema:
    found = operations()
    assert not isinstance(found, str)
    operation: Schema = found[name]["operations"][_title(call)]
    return operation


def _title(call: Call) -> str:
    """Under which a call is described; what is not is answered as the repository by its name is."""
    return GET_REPOSITORY.title if call == GET_REPOSITORY_BY_ID else call.title


@cache
def _validator(name: str, title: str, keys: tuple[str, ...]) -> Any:
    found = operations()
    assert not isinstance(found, str)
    schema: Schema = reduce(getitem, keys, found[name]["operations"][title])
    return Draft202012Validator({**schema, "$defs": found[name]["$defs"]})


def _error(name: str, call: Call, keys: tuple[str, ...], value: Any) -> str:
    """What is wrong with a value at this place of a call's description; empty where nothing is."""
    validator = _validator(name, _title(call), keys)
    if validator.is_valid(value):
        return ""
    worst = best_match(validator.iter_errors(value))
    return f"{worst.json_path}: {worst.message[:300]}"


def _typed(schema: Schema, value: str) -> Any:
    """A parameter's text as what the schema calls it."""
    match schema.get("type"):
        case "integer" if value.isdecimal():
            return int(value)
        case "boolean" if value in {"true", "false"}:
            return value == "true"
    return value


@cache
def _bodies(method: str, path: str) -> tuple[type[BaseModel], ...]:
    """Githubkit's models of what a call may send, which are named after its path."""
    words = re.split(r"[^A-Za-z0-9]+", path)
    name = "".join(word[:1].upper() + word[1:] for word in words) + method.capitalize() + "Body"
    names = (name, *(f"{name}{kind}{number}" for kind in ("Oneof", "Anyof") for number in range(4)))
    return tuple(model for each in names if (model := getattr(models, each, None)))


def _fits(model: type[BaseModel], body: Any) -> bool:
    if isinstance(body, dict) and body.keys() - {field.alias or name for name, field in model.model_fields.items()}:
        return False
    try:
        TypeAdapter(model).validate_python(body)
    except ValidationError:
        return False
    return True


class _Extract:
    """A description's operations, and every schema that they lead to, as JSON schemas that know no other fields."""

    def __init__(self, description: Schema) -> None:
        self._description = description

    def of(self, rows: list[Call]) -> Schema:
        paths = self._description["paths"]
        described = {call.title: paths.get(call.path, {}).get(call.method.lower()) for call in rows}
        found = {title: self._operation(operation) for title, operation in described.items() if operation}
        schemas: dict[str, Any] = {}
        waiting: list[Any] = [found]
        while waiting:
            for name in set(_references(waiting.pop())) - schemas.keys():
                schema = self._description["components"]["schemas"][name]
                if name in NEWER:
                    schema["properties"] |= {key: {} for key in NEWER[name]}
                schemas[name] = _with_newer_kinds(self._plain(schema)) if name == NEWER_KINDS else self._plain(schema)
                waiting.append(schemas[name])
        return {"operations": found, "$defs": schemas}

    def _operation(self, operation: Schema) -> Schema:
        body = self._content(operation.get("requestBody", {}))
        parameters = [self._resolved(each) for each in operation.get("parameters", [])]
        answers = {status: self._content(answer) for status, answer in operation["responses"].items()}
        return {
            "query": {each["name"]: self._plain(each["schema"]) for each in parameters if each["in"] == "query"},
            "body": self._plain(body, required=True),
            "answers": {status: self._plain(schema) for status, schema in answers.items()},
        }

    def _resolved(self, value: Schema) -> Schema:
        while "$ref" in value:
            _, _, kind, name = value["$ref"].split("/")
            value = self._description["components"][kind][name]
        return value

    def _content(self, value: Schema) -> Schema | None:
        schema: Schema | None = self._resolved(value).get("content", {}).get("application/json", {}).get("schema")
        return schema

    def _plain(self, schema: Schema | None, *, required: bool = False) -> Schema | None:
        """A schema as JSON Schema has it; what is `required` is kept if asked for."""
        if schema is None:
            return None
        if "$ref" in schema:
            return {"$ref": f"#/$defs/{schema['$ref'].rpartition('/')[2]}"}
        if "allOf" in schema:
            parts = [self._resolved(each).get("properties", {}) for each in schema["allOf"]]
            together = {name: each for part in parts for name, each in part.items()}
            schema = {"type": "object", "properties": together, "nullable": schema.get("nullable", False)}
        plain = partial(self._plain, required=required)
        made = {key: value for key, value in schema.items() if key in _KEPT or (key == "required" and required)}
        for key in {"items", "additionalProperties"} & schema.keys():
            made[key] = plain(schema[key]) if isinstance(schema[key], dict) else schema[key]
        for key in {"oneOf", "anyOf"} & schema.keys():
            made["anyOf"] = [plain(each) for each in schema[key]]
        if "properties" in schema:
            made["properties"] = {name: plain(each) for name, each in schema["properties"].items()}
        if "properties" in made and "anyOf" not in made:
            made.setdefault("additionalProperties", False)
        elif "properties" in made and "additionalProperties" not in made:
            branches = (made, *made["anyOf"])
            made["propertyNames"] = {"enum": sorted({name for each in branches for name in each.get("properties", ())})}
        return {"anyOf": [made, {"type": "null"}]} if schema.get("nullable") else made


def _with_newer_kinds(schema: Schema | None) -> Schema:
    """Objects that are told apart by `type`, and any whose type is not known."""
    assert schema is not None
    known = [name for each in schema["anyOf"] for name in each["properties"]["type"]["enum"]]
    newer = {"required": ["type"], "properties": {"type": {"type": "string", "not": {"enum": known}}}}
    return {**schema, "anyOf": [*schema["anyOf"], newer]}


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"].rpartition("/")[2]
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)
