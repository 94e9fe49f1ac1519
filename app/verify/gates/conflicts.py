"""Conflicts that are not resolved yet."""

from collections.abc import Iterable

from app.core.verification import GateResult
from app.repo.merge import markers_left
from app.verify.gates.candidate import CandidatePatch, gate
from app.verify.overlay import Overlay


def conflicts(candidate: CandidatePatch, paths: Iterable[str]) -> GateResult:
    """Blocks while a conflict's marker is left in one of these files, whether the patch touches it or not."""
    contents = Overlay(candidate.base, candidate.patch).read_many(paths)
    return gate("conflicts", blocked=[f"{place}: a conflict marker is left" for place in markers_left(contents)])
