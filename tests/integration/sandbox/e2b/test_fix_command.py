"""The whole command over E2B: plan, work, verification and branch, with nothing executed on this machine."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from app.core.errors import ExitCode
from tests.support import wallet_project
from tests.support.console import Console, ConsoleResult
from tests.support.e2b.server import LocalE2B


@dataclass(frozen=True)
class User:
    """Somebody with a repository and a key, whose answers are recorded."""

    console: Console
    repository: Path

    def fix(self) -> ConsoleResult:
        return self.console.fix(
            self.repository, wallet_project.ISSUE, "--sandbox", "e2b", recording=wallet_project.worked_on()
        )


@pytest.fixture
def user(e2b: LocalE2B, tmp_path: Path) -> User:
    account = {"E2B_API_KEY": e2b.account.key, "E2B_API_URL": e2b.account.api, "E2B_SANDBOX_URL": e2b.account.sandboxes}
    return User(Console(tmp_path / "home", account), wallet_project.make_wallet(tmp_path / "wallet"))


def test_an_issue_becomes_a_proved_change(user: User, e2b: LocalE2B) -> None:
    done = user.fix()
    assert (done.code, done.verification["verdict"]) == (0, "proved"), done.said
    assert e2b.machines == {}
    assert [one["network"]["allowOut"] for one in e2b.said("POST /v2/sandboxes") if one["network"]["allowOut"]] == []
    assert e2b.account.key not in done.said


@pytest.mark.parametrize(
    "command", [20, *(pytest.param(number, marks=pytest.mark.full) for number in (2, 5, 9, 13, 17, 24, 29, 34, 40))]
)
def test_a_lost_machine_repeats_no_model_call(user: User, e2b: LocalE2B, command: int) -> None:
    """The next one is made of the base and of what the last finished turn exported, or nothing would be proved."""
    e2b.faults.lose_at = command
    lost = user.fix()
    assert lost.code == ExitCode.SANDBOX, lost.said
    assert "sandbox is gone" in lost.said or "E2B failed" in lost.said
    bought = user.console.calls_bought()
    again = user.fix()
    assert (again.code, again.verification["verdict"]) == (0, "proved"), again.said
    assert bought <= user.console.calls_bought() == wallet_project.worked_on().answers
    assert e2b.machines == {}
