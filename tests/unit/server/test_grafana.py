"""The Grafana dashboard asks for metrics and labels that the server really has."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from app.jobs.operations import HealthFigures
from app.jobs.outcomes import DISTRIBUTIONS, Distribution, EndedJobs, OutcomeTotals
from app.server.web.metrics import render

DASHBOARD = Path(__file__).parents[3] / "deploy" / "grafana" / "agent-fix.json"
FIGURES = HealthFigures({"queued": 1}, 1.0, None, 0, 0.0, 0, {"done": 1}, 0.0, 0, 5, 1)
ENDED = EndedJobs("o/r", "bug", "m", "proved", "pr_opened", 1, 5)
COUNTED = tuple(Distribution(name, "bug", (1,) * len(each[1]), 1, 9.0) for name, each in DISTRIBUTIONS.items())
TOTALS = OutcomeTotals((ENDED,), {"open": 1}, COUNTED)


def known() -> dict[str, set[str]]:
    """The labels of each sample that the server has."""
    text = render(FIGURES, {"accepted": 1}, TOTALS)
    return {
        sample.name: set(sample.labels) for family in text_string_to_metric_families(text) for sample in family.samples
    }


def queries(dashboard: Any) -> Iterator[str]:
    for panel in dashboard["panels"]:
        assert panel["targets"], panel["title"]
        yield from (target["expr"] for target in panel["targets"])
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield re.sub(r"label_values\((\w+), (\w+)\)", r'\1{\2=""}', variable["query"])


def test_each_query_names_a_metric_and_labels_that_exist() -> None:
    metrics, found = known(), list(queries(json.loads(DASHBOARD.read_text("utf-8"))))
    assert len(found) > 15
    for query in found:
        named = re.findall(r"(agent_fix_\w+)(?:\{([^}]*)\})?", query)
        assert named, query
        for name, labels in named:
            assert name in metrics, query
            assert set(re.findall(r"(\w+)[=!]~?\"", labels)) <= metrics[name], query
        grouped = {label for group in re.findall(r"by \(([\w, ]+)\)", query) for label in group.split(", ")}
        assert grouped <= metrics[named[0][0]], query


def test_panels_fit_and_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
