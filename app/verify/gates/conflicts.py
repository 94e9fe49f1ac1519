"""Finds unresolved conflicts."""

from collections.abc import Iterable

from app.core.verification import GateResult
from app.repo.merge import markers_left
from app.verify.gates.candidate import CandidatePatch, gate
from app.verify.overlay import Overlay


def conflicts(candidate: CandidatePatch, paths: Iterable[str]) -> GateResult:
    """Blocks while a conflict marker is left in one of these files, even if the patch does not touch it."""
    contents = Overlay(candidate.base, candidate.patch).read_many(paths)
    return gate("conflicts", blocked=[f"{place}: contains a conflict marker" for place in markers_left(contents)])
