"""When another model is asked instead, and what people are told of it afterwards."""

from collections.abc import Mapping

from app.core.money import Totals
from app.llm.errors import ModelError

OUTAGES = frozenset({"unreachable", "quota"})
"""Reasons to give a model up that another model may not share."""
BECAUSE: Mapping[str, str] = {
    "unreachable": "was unreachable",
    "connection_lost": "kept losing the connection",
    "timeout": "took too long to answer",
    "deadline": "took too long to answer",
    "stream_cut": "kept breaking off",
    "server_error": "kept failing",
    "bad_response": "gave no usable answer",
    "overloaded": "was overloaded",
    "rate_limited": "limited the rate for too long",
    "quota": "had no money left on its account",
    "unavailable": "had failed too often",
}


def is_outage(error: ModelError) -> bool:
    """Another model may do better: not where the request, the key or the content is what was refused."""
    return error.kind in ("retry", "wait") or error.reason in OUTAGES


def fallback_notes(totals: Totals) -> tuple[str, ...]:
    """A sentence for each model that stood in for another: `2 of 7 answers came from X, because Y was unreachable.`"""
    answers = sum(use.answers for use in totals.models)
    grouped: dict[tuple[str, str, str], int] = {}
    for use in totals.models:
        if use.instead_of:
            key = use.model, use.instead_of, BECAUSE.get(use.because, "gave no answer")
            grouped[key] = grouped.get(key, 0) + use.answers
    return tuple(
        f"{count} of {answers} answers came from {model}, because {missing} {why}."
        for (model, missing, why), count in grouped.items()
    )
