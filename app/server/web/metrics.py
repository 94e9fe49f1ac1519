"""A server's figures in Prometheus' text format."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from app import __version__
from app.jobs.health import HealthFigures
from app.jobs.outcomes import Outcome

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
MAX_REPOSITORIES: Final = 100
MAX_MODELS: Final = 30
OTHER: Final = "other"
"""The label of all repositories or models beyond those that were seen first."""
_SECONDS: Final = (5.0, 15.0, 30.0, 60.0, 300.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0)
_TOKENS: Final = (10_000.0, 30_000.0, 100_000.0, 300_000.0, 1_000_000.0, 3_000_000.0, 10_000_000.0)
_DOLLARS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 25.0, 50.0)
HISTOGRAMS: Final[Mapping[str, tuple[str, Sequence[float], Callable[[Outcome], float | None]]]] = {
    "first_reaction_seconds": (
        "From the request to the first reaction on GitHub.",
        _SECONDS,
        lambda each: each.reaction_seconds,
    ),
    "pull_request_seconds": (
        "From the request to the draft pull request.",
        _SECONDS,
        lambda each: each.pull_request_seconds,
    ),
    "job_tokens": ("Tokens of an ended job.", _TOKENS, lambda each: float(each.tokens)),
    "job_cost_dollars": ("Cost of an ended job.", _DOLLARS, lambda each: each.cost / 1_000_000),
}


class ServerMetrics(Collector):
    """The current metrics. All values come from the database, so every process reports the same.

    `answers` counts the receiver's answers to webhooks since its start, by word.
    """

    def __init__(self, figures: HealthFigures, answers: Mapping[str, int], ended: Sequence[Outcome]) -> None:
        self._figures = figures
        self._answers = answers
        self._ended = ended

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
        repositories = _first((each.repository for each in self._ended), MAX_REPOSITORIES)
        models = _first((each.model for each in self._ended), MAX_MODELS)
        labels = ["repository", "kind", "model", "verdict", "state"]
        ended = CounterMetricFamily("agent_fix_jobs_ended", "Ended jobs.", labels=labels)
        cost = CounterMetricFamily("agent_fix_jobs_cost_dollars", "Cost of ended jobs.", labels=labels)
        count, spent = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
        for each in self._ended:
            repository = each.repository if each.repository in repositories else OTHER
            model = each.model if each.model in models else OTHER
            values = (repository, each.kind, model, each.verdict or "none", each.state)
            count[values] += 1
            spent[values] += each.cost
        for key in sorted(count):
            ended.add_metric(key, count[key])
            cost.add_metric(key, spent[key] / 1_000_000)
        pulls = {(each.repository, each.pull): each.pull_state for each in self._ended if each.pull_state}
        yield ended
        yield cost
        yield _by("pull_requests", "Pull requests by outcome.", "state", Counter(pulls.values()))
        for name, (text, bounds, value) in HISTOGRAMS.items():
            found = [(each.kind, figure) for each in self._ended if (figure := value(each)) is not None]
            yield _histogram(name, text, bounds, found)


def render(figures: HealthFigures, answers: Mapping[str, int], ended: Sequence[Outcome] = ()) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ServerMetrics(figures, answers, ended))
    return generate_latest(registry).decode()


def _one(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"agent_fix_{name}", text, value=value)


def _by(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(f"agent_fix_{name}", text, labels=[label])
    for key in sorted(values):
        family.add_metric([key], values[key])
    return family


def _histogram(name: str, text: str, bounds: Sequence[float], found: Sequence[tuple[str, float]]) -> Metric:
    """By kind of task only: with every label it would have as many series as jobs."""
    family = HistogramMetricFamily(f"agent_fix_{name}", text, labels=["kind"])
    for kind in sorted({kind for kind, _ in found}):
        values = [value for its, value in found if its == kind]
        buckets = [(f"{bound:g}", float(sum(value <= bound for value in values))) for bound in bounds]
        family.add_metric([kind], [*buckets, ("+Inf", float(len(values)))], sum(values))
    return family


def _first(names: Iterable[str], most: int) -> frozenset[str]:
    """The names that were seen first, so that no counter ever decreases."""
    return frozenset(islice(dict.fromkeys(names), most))
