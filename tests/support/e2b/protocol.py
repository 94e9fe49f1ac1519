"""Checks each message of the local E2B against E2B's own types, which its library generates from what E2B publishes."""

import copy
from typing import Any, Protocol, Self

from e2b.envd.process import process_pb
from protobuf import Message


class PublishedModel(Protocol):
    """A type that the library generates from E2B's OpenAPI."""

    additional_properties: dict[str, Any]

    @classmethod
    def from_dict(cls, src_dict: dict[str, Any]) -> Self: ...


ENVD: dict[str, tuple[type[Message[Any]], type[Message[Any]]]] = {
    "Start": (process_pb.StartRequest, process_pb.StartResponse),
    "SendSignal": (process_pb.SendSignalRequest, process_pb.SendSignalResponse),
    "SendInput": (process_pb.SendInputRequest, process_pb.SendInputResponse),
    "CloseStdin": (process_pb.CloseStdinRequest, process_pb.CloseStdinResponse),
}


def published(model: type[PublishedModel], body: dict[str, Any]) -> dict[str, Any]:
    """The same body. Raises KeyError or ValueError if that type lacks or adds a property, also one level down."""
    found = model.from_dict(copy.deepcopy(body))
    for part in (found, *vars_of(found)):
        if extra := getattr(part, "additional_properties", None):
            raise ValueError(f"{type(part).__name__} has no {', '.join(extra)}")
    return body


def vars_of(found: object) -> list[object]:
    return [getattr(found, name) for name in getattr(found, "__slots__", ()) or vars(found)]


def asked_of_envd(name: str, message: str) -> None:
    """Raises an error for a request that is not of the type that the machine's daemon reads."""
    ENVD[name][0].from_json(message, ignore_unknown_fields=False)


def told_by_envd(name: str, message: str) -> None:
    ENVD[name][1].from_json(message, ignore_unknown_fields=False)
