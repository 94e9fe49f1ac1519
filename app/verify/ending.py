"""Why a job ended: what stopped it, and what its last submission failed by. Every view shows this one text."""

from app.core.verification import Execution, Verification
from app.verify.gates.paths import CONFIGURED


def why_it_ended(reason: str, last: Verification | None) -> str:
    """The reason that ended a job, with everything that the last verification found; neither replaces the other."""
    found = " ".join(last.reasons) if last is not None else ""
    if last is None or not found or found in reason:
        return f"{reason} {_how_to_allow(last)}".strip()
    named = f"The last submission was {last.verdict}: {found}" if reason else found
    return " ".join(filter(None, (reason, named, _how_to_allow(last))))


def failed_run(last: Verification) -> Execution | None:
    """The run whose output tells most of why a change is broken; None if nothing that was run failed."""
    suite, found = last.suite, last.reproduction
    runs = (
        last.rest.recheck if last.rest else None,
        suite.recheck if suite else None,
        suite.head.execution if suite and suite.head else None,
        found.head if found else None,
    )
    return next((run for run in runs if run is not None and not run.ok and run.excerpt.strip()), None)


def _how_to_allow(last: Verification | None) -> str:
    details = [detail for gate in last.gates if gate.outcome == "blocked" for detail in gate.details] if last else []
    paths = [detail.removesuffix(f": {CONFIGURED}") for detail in details if detail.endswith(f": {CONFIGURED}")]
    if not paths:
        return ""
    return f"A person can let a job change it: `/agent allow {paths[0]}`, or `--allow {paths[0]}` on the command line."
