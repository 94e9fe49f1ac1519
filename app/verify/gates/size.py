"""Limits a patch to what people can review: not empty, not too large, with nothing refused on export."""

from app.core.verification import GateResult
from app.verify.gates.candidate import CandidatePatch, displayed_path, gate

MAX_FILES = 100
MAX_BYTES = 4 * 1024**2


def size(candidate: CandidatePatch) -> GateResult:
    """Blocks with numbers; nothing is ever cut to fit."""
    files = len(candidate.deltas)
    weight = sum(len(delta.new) for delta in candidate.deltas if delta.new is not None)
    blocked = []
    if not files:
        blocked.append("the patch changes nothing")
    if files > MAX_FILES:
        blocked.append(f"{files} files are changed; the limit is {MAX_FILES}")
    if weight > MAX_BYTES:
        blocked.append(f"the changed files have {weight:,} bytes; the limit is {MAX_BYTES:,}")
    return gate("size", blocked=blocked)


def refused_files(candidate: CandidatePatch) -> GateResult:
    """Files in the work tree that cannot be part of a patch block the submission while they exist."""
    refusals = candidate.patch.refusals
    return gate("refused files", blocked=[f"{displayed_path(refusal.path)}: {refusal.reason}" for refusal in refusals])
