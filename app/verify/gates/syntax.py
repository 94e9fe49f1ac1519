"""Finds changed files that no longer parse."""

from app.core.verification import GateResult
from app.repo.syntax import first_error
from app.verify.gates.candidate import CandidatePatch, ChangedPath, displayed_path, gate
from app.verify.test_paths import is_test_file, is_test_path


def syntax(candidate: CandidatePatch) -> GateResult:
    """Blocks a file that parsed on the base, or is new; test data may be broken on purpose, so it only warns."""
    blocked: list[str] = []
    warned: list[str] = []
    for delta in candidate.deltas:
        if delta.text is None or delta.new is None:
            continue
        problem = first_error(delta.path, delta.new)
        if problem is None:
            continue
        finding = f"{displayed_path(delta.path)}:{problem.line}: {problem.text}"
        (warned if _broken_before(delta) or _data_of_tests(delta.path) else blocked).append(finding)
    return gate("syntax", blocked=blocked, warned=warned)


def _broken_before(delta: ChangedPath) -> bool:
    return delta.old is not None and first_error(delta.path, delta.old) is not None


def _data_of_tests(path: str) -> bool:
    return is_test_path(path) and not is_test_file(path) and not path.endswith("conftest.py")
