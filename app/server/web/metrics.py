"""A server's figures in Prometheus' text format."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from app import __version__
from app.jobs.operations import HealthFigures
from app.jobs.outcomes import DISTRIBUTIONS, OutcomeTotals

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
MAX_REPOSITORIES: Final = 100
MAX_MODELS: Final = 30
OTHER: Final = "other"
"""The label of all repositories or models beyond those that were seen first."""
HISTOGRAMS: Final = {
    "first_reaction_seconds": "From the request to the first reaction on GitHub.",
    "pull_request_seconds": "From the request to the draft pull request.",
    "job_tokens": "Tokens of an ended job.",
    "job_cost_dollars": "Cost of an ended job.",
}
"""By kind of task only: with every label they would have as many series as jobs."""


class ServerMetrics(Collector):
    """The current metrics. All values come from the database, so every process reports the same.

    `answers` counts the receiver's answers to webhooks since its start, by word.
    """

    def __init__(self, figures: HealthFigures, answers: Mapping[str, int], totals: OutcomeTotals) -> None:
        self._figures = figures
        self._answers = answers
        self._totals = totals

    def collect(self) -> Iterator[Metric]:
        figures = self._figures
        yield _by("info", "The running version.", "version", {__version__: 1})
        yield _by("jobs", "Jobs by state.", "state", figures.jobs)
        yield _one("queue_oldest_seconds", "Age of the job that has been queued longest.", figures.oldest_queued)
        stalled = figures.stalled.seconds if figures.stalled else 0.0
        yield _one("stalled_oldest_seconds", "How long a job has waited although a worker is free for it.", stalled)
        undone = "Webhook deliveries that are stored but not processed."
        yield _one("deliveries_undone", undone, figures.deliveries_undone)
        yield _one("deliveries_oldest_seconds", "Age of the oldest of them.", figures.oldest_delivery)
        yield _one("deliveries_dead", "Webhook deliveries that failed permanently.", figures.deliveries_dead)
        yield _by("effects", "Effects by state.", "state", figures.outbox)
        yield _one("effects_oldest_due_seconds", "How long the oldest effect has been due.", figures.oldest_effect)
        yield CounterMetricFamily(
            "agent_fix_model_cost_dollars", "Cost of all model calls.", value=figures.cost / 1_000_000
        )
        yield CounterMetricFamily("agent_fix_model_calls", "Number of model calls.", value=figures.model_calls)
        answered = "Webhook requests since the receiver started, by response status."
        webhooks = CounterMetricFamily("agent_fix_webhooks", answered, labels=["answer"])
        for answer, count in sorted(self._answers.items()):
            webhooks.add_metric([answer], count)
        yield webhooks
        yield from self._outcomes()

    def _outcomes(self) -> Iterator[Metric]:
        repositories = _first((each.repository for each in self._totals.ended), MAX_REPOSITORIES)
        models = _first((each.model for each in self._totals.ended), MAX_MODELS)
        labels = ["repository", "kind", "model", "verdict", "state"]
        ended = CounterMetricFamily("agent_fix_jobs_ended", "Ended jobs.", labels=labels)
        cost = CounterMetricFamily("agent_fix_jobs_cost_dollars", "Cost of ended jobs.", labels=labels)
        count, spent = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
        for each in self._totals.ended:
            repository = each.repository if each.repository in repositories else OTHER
            model = each.model if each.model in models else OTHER
            values = (repository, each.kind, model, each.verdict or "none", each.state)
            count[values] += each.count
            spent[values] += each.cost
        for key in sorted(count):
            ended.add_metric(key, count[key])
            cost.add_metric(key, spent[key] / 1_000_000)
        yield ended
        yield cost
        yield _by("pull_requests", "Pull requests by outcome.", "state", self._totals.pulls)
        for name, text in HISTOGRAMS.items():
            family = HistogramMetricFamily(f"agent_fix_{name}", text, labels=["kind"])
            bounds = [f"{bound:g}" for bound in DISTRIBUTIONS[name][1]]
            for found in self._totals.distributions:
                if found.name == name:
                    buckets = zip([*bounds, "+Inf"], map(float, (*found.at_most, found.count)), strict=True)
                    family.add_metric([found.kind], list(buckets), found.sum)
            yield family


def render(figures: HealthFigures, answers: Mapping[str, int], totals: OutcomeTotals) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ServerMetrics(figures, answers, totals))
    return generate_latest(registry).decode()


def _one(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"agent_fix_{name}", text, value=value)


def _by(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(f"agent_fix_{name}", text, labels=[label])
    for key in sorted(values):
        family.add_metric([key], values[key])
    return family


def _first(names: Iterable[str], most: int) -> frozenset[str]:
    """The names that were seen first, so that no counter ever decreases."""
    return frozenset(islice(dict.fromkeys(names), most))
