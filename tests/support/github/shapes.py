"""Whole answers from the few values that matter; whatever else GitHub's description requires is filled in."""

import types
from copy import deepcopy
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from githubkit.utils import UNSET
from pydantic import BaseModel, TypeAdapter

LONG_AGO = "2026-01-01T00:00:00Z"
_ADDRESS = "https://github.example/x"


def shaped(model: Any, /, **values: Any) -> dict[str, Any]:
    """A JSON answer that this model of githubkit's accepts, with no value that the model does not know."""
    unknown = values.keys() - {field.alias or name for name, field in model.model_fields.items()}
    assert not unknown, f"{model.__name__} has no {', '.join(sorted(unknown))}"
    body = {**deepcopy(_template(model)), **values}
    TypeAdapter(model).validate_python(body)
    return body


@cache
def _template(model: type[BaseModel]) -> dict[str, Any]:
    required = {field.alias or name: field for name, field in model.model_fields.items() if field.is_required()}
    return {name: _example(field.annotation, name) for name, field in required.items()}


def _example(kind: Any, name: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _example(arguments[0], name)
    if origin in {Union, types.UnionType}:
        return None if type(None) in arguments else _example(arguments[0], name)
    if origin is Literal:
        return next(value for value in arguments if value is not UNSET)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return deepcopy(_template(kind))
    plain = {int: 0, bool: False, float: 0.0, datetime: LONG_AGO, str: _ADDRESS if name.endswith("url") else ""}
    return origin() if origin in {list, dict} else plain.get(kind)
