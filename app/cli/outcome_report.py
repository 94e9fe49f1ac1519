"""`agent-fix report`: how jobs ended, what became of their pull requests, and what they cost."""

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from html import escape
from statistics import median
from typing import Any

from app.config.settings import read_settings
from app.core.errors import ExitCode, OutputError
from app.core.model_usage import dollars
from app.core.text import plain
from app.jobs.outcomes import VERIFICATION, Outcome, Outcomes
from app.publish.markdown import duration
from app.server.context import existing_server_context

MAX_ROWS = 10
WIDTH = 50
COUNTS = ("jobs", "proved", "merged")
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>agent-fix</title></head><body><pre>{}</pre></body></html>
"""
OPENED = {"open", "merged", "closed"}


def report_command(arguments: argparse.Namespace) -> int:
    server_context = existing_server_context(read_settings(arguments.state))
    outcomes = Outcomes(server_context.engine, server_context.clock)
    while outcomes.record_ended():  # a server's publisher does so by itself; on the command line nobody does
        pass
    until = server_context.clock()
    since = until - timedelta(days=arguments.days)
    found = outcomes.since(since.timestamp(), until.timestamp())
    report = summarise(found, since, until)
    if arguments.html is not None:
        try:
            arguments.html.write_text(render_page(report), "utf-8")
        except OSError as error:
            raise OutputError(f"{arguments.html} cannot be written: {error.strerror}.") from error
    if arguments.json:
        print(json.dumps(report, indent=2))
    elif arguments.html is not None:
        print(arguments.html)
    else:
        print("\n".join(render_text(report)))
    return ExitCode.OK


def summarise(found: Sequence[Outcome], since: datetime, until: datetime) -> dict[str, Any]:
    """The report's figures. Money is in decimal strings of dollars, as in the API."""
    judged = [each for each in found if each.kind == VERIFICATION]
    fixes = [each for each in found if each.kind != VERIFICATION]
    pulls = {(each.repository, each.pull): each for each in found if each.pull_state in OPENED}
    states = Counter(each.pull_state for each in pulls.values())
    decided, cost = states["merged"] + states["closed"], sum(each.cost for each in found)
    return {
        "since": f"{since:%Y-%m-%d}",
        "until": f"{until:%Y-%m-%d}",
        "jobs": len(found),
        "cost": dollars(cost),
        "cost_per_job": dollars(cost / len(found)) if found else None,
        "tokens": sum(each.tokens for each in found),
        "pull_requests": {
            "opened": len(pulls),
            "merged": states["merged"],
            "closed": states["closed"],
            "open": states["open"],
            "changed_before_merge": sum(bool(each.changed) for each in pulls.values()),
        },
        "merged_share": round(states["merged"] / decided, 4) if decided else None,
        "cost_per_merged_pull_request": dollars(cost / states["merged"]) if states["merged"] else None,
        "median_seconds_to_first_reaction": _median(each.reaction_seconds for each in found),
        "median_seconds_to_pull_request": _median(each.pull_request_seconds for each in found),
        "verdicts": dict(Counter(each.verdict or each.state for each in fixes).most_common()),
        "verifications": dict(Counter(each.verdict or each.state for each in judged).most_common()),
        "models": _groups(found, "model"),
        "repositories": _groups(found, "repository"),
        "kinds": _groups(found, "kind"),
    }


def _groups(found: Sequence[Outcome], name: str) -> list[dict[str, Any]]:
    """The jobs by one property, those with the most jobs first."""
    groups: defaultdict[str, list[Outcome]] = defaultdict(list)
    for each in found:
        groups[getattr(each, name)].append(each)
    largest = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))[:MAX_ROWS]
    return [{"name": key, **_group(jobs)} for key, jobs in largest]


def _group(jobs: Sequence[Outcome]) -> dict[str, Any]:
    merged = len({(each.repository, each.pull) for each in jobs if each.pull_state == "merged"})
    cost = sum(each.cost for each in jobs)
    return {
        "jobs": len(jobs),
        "proved": sum(each.verdict == "proved" for each in jobs),
        "merged": merged,
        "cost": dollars(cost),
        "cost_per_merged_pull_request": dollars(cost / merged) if merged else None,
    }


def _median(found: Iterator[float | None]) -> float | None:
    known = [each for each in found if each is not None]
    return round(median(known), 1) if known else None


def headlines(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The most important figures, as name and value."""
    pulls, share = report["pull_requests"], report["merged_share"]
    yield "Jobs", f"{report['jobs']:,}"
    yield (
        "Pull requests",
        (f"{pulls['opened']:,} opened: {pulls['merged']:,} merged, {pulls['closed']:,} closed, {pulls['open']:,} open"),
    )
    yield "Merged", f"{share:.0%} of those decided" if share is not None else "none decided yet"
    yield "Changed before merge", f"{pulls['changed_before_merge']:,} of {pulls['merged']:,}"
    yield "Cost", f"${float(report['cost']):,.2f}, {report['tokens']:,} tokens"
    per = report["cost_per_merged_pull_request"]
    yield "Cost per merged pull request", f"${float(per):,.2f}, failed jobs included" if per else "nothing merged yet"
    for name, key in (("first reaction", "first_reaction"), ("pull request", "pull_request")):
        seconds = report[f"median_seconds_to_{key}"]
        yield f"Median time to {name}", duration(seconds) if seconds is not None else "unknown"


def render_text(report: Mapping[str, Any]) -> Iterator[str]:
    yield f"{report['since']} to {report['until']}"
    if not report["jobs"]:
        yield "No job ended in that time."
        return
    yield ""
    for name, value in headlines(report):
        yield f"{name:<30}{value}"
    verdicts = ", ".join(f"{count:,} {name}" for name, count in report["verdicts"].items())
    yield f"{'Verdicts':<30}{verdicts}"
    if judged := report["verifications"]:
        verdicts = ", ".join(f"{count:,} {name}" for name, count in judged.items())
        yield f"{'Verified changes of others':<30}{verdicts}"
    yield ""
    yield _line("", ("jobs", "proved", "merged", "cost", "per merged"))
    for title, key in (("model", "models"), ("repository", "repositories"), ("kind of task", "kinds")):
        for row in report[key]:
            per = row["cost_per_merged_pull_request"]
            money = (f"${float(row['cost']):,.2f}", f"${float(per):,.2f}" if per else "-")
            yield _line(f"{title} {plain(row['name'])}", (*(f"{row[each]:,}" for each in COUNTS), *money))


def _line(name: str, cells: Sequence[str]) -> str:
    return f"{name[:WIDTH]:<{WIDTH}}" + "".join(f"{cell:>12}" for cell in cells)


def render_page(report: Mapping[str, Any]) -> str:
    """The same text as a page that needs no network and no script."""
    return _PAGE.format(escape("\n".join(render_text(report))))
