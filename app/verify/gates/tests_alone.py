"""For tasks that are to add tests: the code under test stays as it is."""

from app.verify.facts import Gate
from app.verify.gates.candidate import Candidate, gate, shown
from app.verify.paths import is_test_path


def tests_alone(candidate: Candidate) -> Gate:
    """Blocks every change outside of tests and what only serves them."""
    others = [delta.path for delta in candidate.deltas if not is_test_path(delta.path)]
    return gate("tests alone", blocked=[f"{shown(path)}: is no test; only tests are to be written" for path in others])
