"""The whole command over E2B: plan, work, verification and branch, with nothing executed on this machine."""

from pathlib import Path

from tests.console import Console
from tests.e2b.server import LocalE2B
from tests.fakes import wallet


def test_an_issue_becomes_a_proved_change(e2b: LocalE2B, tmp_path: Path) -> None:
    repository = wallet.make_wallet(tmp_path / "wallet")
    account = {"E2B_API_KEY": e2b.account.key, "E2B_API_URL": e2b.account.api, "E2B_SANDBOX_URL": e2b.account.sandboxes}
    console = Console(tmp_path / "home", account)
    done = console.fix(
        repository, wallet.ISSUE, "--sandbox", "e2b", recording=wallet.worked_on()
    )
    assert (done.code, done.verification["verdict"]) == (0, "proved"), done.said
    assert e2b.machines == {}
    assert {one["allowOut"] == [] for one in (body["network"] for body in e2b.said("POST /v2/sandboxes"))} == {True}
    assert e2b.account.key not in done.said
