"""What `agent-fix setup` says of the best trial."""

import pytest

from app.cli.setup import SetupReport
from app.core.verification import Execution, SuiteResult, TestCount
from app.pipeline.wiring.project_setup import ChosenSetup
from app.sandbox.base import SetupPlan
from app.sandbox.setup.ecosystems.base import SetupChoice
from app.verify.candidates import Candidate
from app.verify.frameworks import SuiteCommand
from app.verify.trials import Trial

SUITE = SuiteCommand("gradle test")


def report(exit_code: int, count: TestCount | None) -> SetupReport:
    result = SuiteResult(execution=Execution(command=SUITE.command, exit_code=exit_code, seconds=3), count=count)
    trial = Trial(Candidate("manifests", "what its scripts say", 1, SetupChoice(), SUITE), 3.0, result)
    return SetupReport(ChosenSetup(SetupPlan(), SUITE, trials=(trial,)), 4.0)


def test_a_suite_of_which_only_the_exit_code_is_known_works_and_cannot_be_compared() -> None:
    found = report(0, None)
    assert (found.works, found.as_json()["comparable"]) == (True, False)
    assert found.reasons == ["Only its exit code is known. manifests: what its scripts say"]
    assert "  its tests pass; only their exit code is known; 3 s" in [*found.lines(explain=False)]


@pytest.mark.parametrize(
    ("exit_code", "count", "works"),
    [
        (0, TestCount(passed=10), True),
        (1, TestCount(passed=9, failed=1), True),
        (1, None, False),
        (0, TestCount(), False),
    ],
)
def test_single_tests_make_it_comparable(exit_code: int, count: TestCount | None, *, works: bool) -> None:
    found = report(exit_code, count)
    assert (found.works, found.comparable) == (works, works)
    assert not any("Only its exit code" in reason for reason in found.reasons)
