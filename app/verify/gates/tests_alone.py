"""Protects the code under test in tasks that only add tests."""

from app.core.verification import GateResult
from app.verify.gates.candidate import CandidatePatch, displayed_path, gate
from app.verify.test_paths import is_test_path


def tests_alone(candidate: CandidatePatch) -> GateResult:
    """Blocks every change outside of tests and their supporting files."""
    others = [delta.path for delta in candidate.deltas if not is_test_path(delta.path)]
    return gate(
        "tests alone",
        blocked=[f"{displayed_path(path)}: is not a test; this task may only change tests" for path in others],
    )
