"""The report: figures in a terminal, on a page, as JSON; and nobody's text but ours is active in it."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.cli import main
from app.cli.outcome_report import render_page, render_text, summarise
from app.core.errors import ExitCode
from app.jobs.outcomes import VERIFICATION, Outcome, PullState
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


def test_text_is_one_table() -> None:
    *_, head, coder, other, shop, bug = render_text(summarise(FOUND, SINCE, SINCE + timedelta(days=10)))
    assert head.split() == ["jobs", "proved", "merged", "cost", "per", "merged"]
    assert coder.split() == ["model", "acme/coder", "5", "5", "2", "$2.00", "$1.00"]
    assert other.split() == ["model", "<b>other</b>", "1", "0", "0", "$2.00", "-"]
    assert [line.split()[:-5] for line in (shop, bug)] == [["repository", "octo/shop"], ["kind", "of", "task", "bug"]]
    assert len({len(line) for line in (head, coder, other, shop, bug)}) == 1


def test_a_report_without_jobs_says_so() -> None:
    assert list(render_text(summarise((), SINCE, SINCE + timedelta(days=1)))) == [
        "2026-03-02 to 2026-03-03",
        "No job ended in that time.",
    ]


def test_page_is_escaped_and_loads_nothing() -> None:
    page = render_page(summarise(FOUND, SINCE, SINCE + timedelta(days=10)))
    assert "&lt;b&gt;other&lt;/b&gt;" in page
    assert "<b>" not in page


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
    assert "Verdicts" in page.read_text("utf-8")
    assert main(["report", "--state", str(tmp_path)]) == 0
    assert "Pull requests" in capsys.readouterr().out


def test_verifications_are_counted_beside_the_fixes() -> None:
    judged = tuple(replace(outcome(number), kind=VERIFICATION, verdict=verdict, state="verified")
                   for number, verdict in enumerate(("proved", "broken", "broken")))  # fmt: skip
    report = summarise((*FOUND, *judged), SINCE, SINCE + timedelta(days=10))
    assert report["verifications"] == {"broken": 2, "proved": 1}
    assert report["verdicts"] == {"proved": 5, "broken": 1}
    assert report["pull_requests"]["opened"] == 4
    (line,) = (line for line in render_text(report) if line.startswith("Verified changes of others"))
    assert line.split()[-4:] == ["2", "broken,", "1", "proved"]
