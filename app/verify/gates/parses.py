"""Changed files that no longer parse."""

from app.syntax import first_error
from app.verify.facts import Gate
from app.verify.gates.candidate import Candidate, Delta, gate, shown
from app.verify.paths import is_test_file, is_test_path


def syntax(candidate: Candidate) -> Gate:
    """Blocks a file that parsed on the base, or is new; data of tests may be broken on purpose, so it only warns."""
    blocked: list[str] = []
    warned: list[str] = []
    for delta in candidate.deltas:
        if delta.text is None or delta.new is None:
            continue
        problem = first_error(delta.path, delta.new)
        if problem is None:
            continue
        told = f"{shown(delta.path)}:{problem.line}: {problem.text}"
        (warned if _broken_before(delta) or _data_of_tests(delta.path) else blocked).append(told)
    return gate("syntax", blocked=blocked, warned=warned)


def _broken_before(delta: Delta) -> bool:
    return delta.old is not None and first_error(delta.path, delta.old) is not None


def _data_of_tests(path: str) -> bool:
    return is_test_path(path) and not is_test_file(path) and not path.endswith("conftest.py")
