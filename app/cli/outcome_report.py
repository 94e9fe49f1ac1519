"""`agent-fix report`: how jobs ended, what became of their pull requests, and what they cost."""

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import jinja2

from app.config.settings import read_settings
from app.core.errors import ExitCode, OutputError
from app.core.model_usage import dollars
from app.core.text import plain
from app.jobs.outcomes import Outcome, Outcomes
from app.publish.markdown import duration
from app.server.context import existing_server_context

PAGE = Path(__file__).with_name("outcome_report.html")
MAX_ROWS = 10
WIDTH = 32
"""Characters of the longest bar."""
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
        "verdicts": dict(Counter(each.verdict or each.state for each in found).most_common()),
        "days": _days(found, since, until),
        "models": _groups(found, "model"),
        "repositories": _groups(found, "repository"),
        "kinds": _groups(found, "kind"),
    }


def _days(found: Sequence[Outcome], since: datetime, until: datetime) -> list[dict[str, Any]]:
    """Each day, or each week of a longer time, that had jobs."""
    step = 1 if (until - since).days <= 31 else 7
    jobs, cost = Counter[str](), Counter[str]()
    for each in found:
        day = datetime.fromtimestamp(each.created_at, UTC)
        day -= timedelta(days=day.weekday() if step == 7 else 0)
        jobs[f"{day:%Y-%m-%d}"] += 1
        cost[f"{day:%Y-%m-%d}"] += each.cost
    return [{"from": day, "days": step, "jobs": jobs[day], "cost": dollars(cost[day])} for day in sorted(jobs)]


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


def charts(report: Mapping[str, Any]) -> Iterator[tuple[str, list[tuple[str, float, str]]]]:
    """Each chart's title, and its bars: label, length, text."""
    yield "Jobs by verdict", [(name, count, f"{count:,}") for name, count in report["verdicts"].items()]
    what = "week" if any(day["days"] == 7 for day in report["days"]) else "day"
    yield f"Jobs by {what}", [(day["from"], day["jobs"], f"{day['jobs']:,}") for day in report["days"]]
    spent = [(day["from"], float(day["cost"]), f"${float(day['cost']):,.2f}") for day in report["days"]]
    yield f"Dollars by {what}", spent
    for title, key in (("model", "models"), ("repository", "repositories"), ("kind of task", "kinds")):
        yield f"Jobs by {title}", [(row["name"], row["jobs"], _row(row)) for row in report[key]]


def _row(row: Mapping[str, Any]) -> str:
    per = row["cost_per_merged_pull_request"]
    each = f", ${float(per):,.2f} each" if per else ""
    return f"{row['jobs']:,}: {row['proved']:,} proved, {row['merged']:,} merged{each}, ${float(row['cost']):,.2f}"


def render_text(report: Mapping[str, Any]) -> Iterator[str]:
    yield f"{report['since']} to {report['until']}"
    if not report["jobs"]:
        yield "No job ended in that time."
        return
    yield ""
    for name, value in headlines(report):
        yield f"{name:<30}{value}"
    for title, bars in charts(report):
        longest = max((length for _, length, _ in bars), default=0.0)
        if not longest:
            continue
        yield ""
        yield title
        width = min(max(len(plain(label)) for label, _, _ in bars), 40)
        for label, length, text in bars:
            yield f"  {plain(label)[:width]:<{width}}  {'█' * max(round(length / longest * WIDTH), 1)} {text}"


def render_page(report: Mapping[str, Any]) -> str:
    """One page that needs no network and no script."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    shown = [
        (title, [(plain(label), 100 * length / max(each[1] for each in bars), text) for label, length, text in bars])
        for title, bars in charts(report)
        if any(length for _, length, _ in bars)
    ]
    template = environment.from_string(PAGE.read_text("utf-8"))
    return template.render(report=report, headlines=list(headlines(report)), charts=shown)
