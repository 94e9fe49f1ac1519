"""The report: figures, bars in a terminal, a page, JSON; and nobody's text but ours is active in it."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.cli import main
from app.cli.outcome_report import render_page, render_text, summarise
from app.core.errors import ExitCode
from app.jobs.outcomes import Outcome, PullState
from tests.support.seeded_database import seeded

SINCE = datetime(2026, 3, 2, tzinfo=UTC)


def outcome(number: int, state: PullState = "", *, pull: int = 0, cost: int = 500_000, changed: bool | None = None,
            model: str = "acme/coder") -> Outcome:  # fmt: skip
    created = (SINCE + timedelta(days=number)).timestamp()
    verdict, ending = ("proved", "pr_opened") if state else ("broken", "verification_failed")
    values = (f"j{number}", "octo/shop", "bug", model, verdict, ending, created, created + 600)
    return Outcome(*values, 4.0, 480.0 if state else None, 100_000, cost, pull, state, changed)


FOUND = (
    outcome(0, "merged", pull=1, changed=False),
    outcome(1, "merged", pull=2, changed=True),
    outcome(2, "closed", pull=3),
    outcome(3, "open", pull=4),
    outcome(4, cost=2_000_000, model="<b>other</b>"),
    outcome(5, "merged", pull=2, changed=True, cost=0),
)


def test_figures() -> None:
    report = summarise(FOUND, SINCE, SINCE + timedelta(days=10))
    assert report["pull_requests"] == {"opened": 4, "merged": 2, "closed": 1, "open": 1, "changed_before_merge": 1}
    assert report["merged_share"] == 0.6667
    assert (report["cost"], report["cost_per_merged_pull_request"]) == ("4.0000", "2.0000"), "failed jobs included"
    assert (report["median_seconds_to_first_reaction"], report["median_seconds_to_pull_request"]) == (4.0, 480.0)
    assert report["verdicts"] == {"proved": 5, "broken": 1}
    assert report["models"][0] == {
        "name": "acme/coder",
        "jobs": 5,
        "proved": 5,
        "merged": 2,
        "cost": "2.0000",
        "cost_per_merged_pull_request": "1.0000",
    }
    assert [day["from"] for day in report["days"]][:2] == ["2026-03-02", "2026-03-03"]


def test_a_longer_time_is_shown_by_weeks() -> None:
    report = summarise(FOUND, SINCE, SINCE + timedelta(days=90))
    assert report["days"] == [{"from": "2026-03-02", "days": 7, "jobs": 6, "cost": "4.0000"}]


def test_bars_are_as_long_as_their_figures() -> None:
    text = "\n".join(render_text(summarise(FOUND, SINCE, SINCE + timedelta(days=10))))
    assert "Cost per merged pull request  $2.00, failed jobs included" in text
    bars = {label: bar.count("█") for label, bar in re.findall(r"(?m)^  (\w+) +(█+) \d+$", text)}
    assert bars == {"proved": 32, "broken": 6}
    assert max(map(len, text.splitlines())) <= 140


def test_a_report_without_jobs_says_so() -> None:
    assert list(render_text(summarise((), SINCE, SINCE + timedelta(days=1)))) == [
        "2026-03-02 to 2026-03-03",
        "No job ended in that time.",
    ]


def test_page_is_escaped_and_loads_nothing() -> None:
    page = render_page(summarise(FOUND, SINCE, SINCE + timedelta(days=10)))
    assert "&lt;b&gt;other&lt;/b&gt;" in page
    assert "<b>" not in page
    assert not re.search(r"(?:src|href)=", page)


@pytest.mark.parametrize("words", [["report"], ["keys", "create", "ci"]], ids="-".join)
def test_command_refuses_a_directory_without_a_database(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server's is elsewhere: a new one would be empty, and the server would refuse its keys."""
    assert main([words[0], "--state", str(tmp_path), *words[1:]]) == ExitCode.USAGE
    shown = capsys.readouterr()
    assert (shown.out, list(tmp_path.iterdir())) == ("", [])
    assert f"There is no database {tmp_path}/agent-fix.db that you can open." in shown.err
    assert "--state DIR" in shown.err


def test_command_reads_a_server_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seeded(tmp_path)
    page = tmp_path / "report.html"
    assert main(["report", "--state", str(tmp_path), "--json", "--html", str(page)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["jobs"] == 14
    assert "Jobs by verdict" in page.read_text("utf-8")
    assert main(["report", "--state", str(tmp_path)]) == 0
    assert "Pull requests" in capsys.readouterr().out
