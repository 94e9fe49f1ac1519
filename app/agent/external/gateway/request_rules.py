"""Rejects requests for another model, a way out of the sandbox, or another job's data."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from app.agent.external.gateway.protocols import RequestRefused
from app.agent.external.gateway.tool_rules import check_cache, check_tools
from app.llm.raw_call import EXTRAS, FIELDS, OURS, Body, WireProtocol

PROVIDER_STATE_FIELDS = ("previous_response_id", "conversation", "prompt", "background", "container", "mcp_servers")
"""Fields that refer to what the provider stores, or does later or elsewhere."""
ALLOWED_VALUES: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "store": (False,),
    "service_tier": ("auto", "default", "standard_only"),
    "modalities": (["text"],),
    "prompt_cache_retention": ("in_memory", "in-memory"),
}
"""Fields with only one allowed set of values: one answer, nothing stored, at the expected price."""
URL_FIELDS = ("image_url", "file_url", "url")
MAX_PARTS = 200_000


def check(protocol: WireProtocol, body: Body, models: Collection[str]) -> None:
    """Raises RequestRefused."""
    model = body.get("model")
    if not isinstance(model, str) or model not in models:
        known = " or ".join(sorted(models))
        raise RequestRefused(404, "model_not_found", f"This job has no model {str(model)[:100]!r}. Ask for {known}.")
    _check_fields(protocol, body)
    check_tools(protocol, body.get("tools"))
    _check_parts(body)


def _check_fields(protocol: WireProtocol, body: Body) -> None:
    """Unknown fields are dropped, because some providers' fields select other models, prices or their own searches."""
    for name in PROVIDER_STATE_FIELDS:
        if body.get(name):
            raise RequestRefused(400, "not_offered", f"{name} is not offered here: send the whole conversation.")
    for name, value in body.items():
        if value is None or name in PROVIDER_STATE_FIELDS:
            continue
        if not (name in FIELDS[protocol] or name in EXTRAS[protocol] or name in OURS):
            raise RequestRefused(400, "not_offered", f"The field {name[:60]!r} is not offered here.")
        if name in ALLOWED_VALUES and not any(
            value == each and type(value) is type(each) for each in ALLOWED_VALUES[name]
        ):
            raise RequestRefused(400, "not_offered", f"{name} can only be {ALLOWED_VALUES[name][0]!r} here.")


def _check_parts(body: Body) -> None:
    """Reject URLs for the provider to fetch and files of the account: both lead out of the sandbox."""
    for number, part in enumerate(_parts([body.get("messages"), body.get("input"), body.get("system")])):
        if number >= MAX_PARTS:
            raise RequestRefused(413, "too_large", f"A conversation has at most {MAX_PARTS:,} parts.")
        if "file_id" in part:
            raise RequestRefused(400, "not_offered", "Files of the provider's account are not offered.")
        for name in URL_FIELDS:
            address = part.get(name)
            if isinstance(address, str) and part.get("type") != "text" and not address.startswith("data:"):
                raise RequestRefused(
                    400, "not_offered", "Images and files go into the request itself, as data: addresses."
                )
        check_cache(part)


def _parts(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every object inside, except in arguments and results of tools: those are texts and not checked."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, list):
            waiting += found
        elif isinstance(found, dict):
            yield found
            if found.get("type") in {"tool_use", "function_call"}:
                continue  # its `input` is the model's own text
            waiting += found.values()
