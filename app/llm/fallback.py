"""Decides when a fallback model is asked, and describes afterwards which fallbacks answered."""

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
    "quota": "had no credit left",
    "unavailable": "had failed too often",
}


def is_outage(error: ModelError) -> bool:
    """True if another model may succeed: the failure is not about the request, the key or the content."""
    return error.kind in ("retry", "wait") or error.reason in OUTAGES


def fallback_notes(totals: Totals) -> tuple[str, ...]:
    """A sentence for each fallback that answered: `2 of 7 answers came from X, because Y was unreachable.`"""
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
