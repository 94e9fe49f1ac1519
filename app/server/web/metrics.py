"""A server's health figures in Prometheus' text format."""

from collections.abc import Iterator, Mapping

from app import __version__
from app.jobs.health import HealthFigures

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(figures: HealthFigures, answers: Mapping[str, int]) -> str:
    """`answers` counts the receiver's answers to webhooks since its start, by word."""
    return "".join(_lines(figures, answers))


def _lines(figures: HealthFigures, answers: Mapping[str, int]) -> Iterator[str]:
    yield from _family("info", "gauge", "The running version.", {f'version="{_escaped(__version__)}"': 1})
    yield from _labelled("jobs", "gauge", "Jobs by state.", "state", figures.jobs)
    yield from _one("queue_oldest_seconds", "Age of the job that has been queued longest.", figures.oldest_queued)
    stalled = figures.stalled.seconds if figures.stalled else 0.0
    yield from _one("stalled_oldest_seconds", "How long a job has waited although a worker is free for it.", stalled)
    yield from _one(
        "deliveries_undone", "Webhook deliveries that are stored but not processed.", figures.deliveries_undone
    )
    yield from _one("deliveries_oldest_seconds", "Age of the oldest of them.", figures.oldest_delivery)
    yield from _one("deliveries_dead", "Webhook deliveries that were given up.", figures.deliveries_dead)
    yield from _labelled("effects", "gauge", "Effects by state.", "state", figures.outbox)
    yield from _one("effects_oldest_due_seconds", "How long the oldest effect has been due.", figures.oldest_effect)
    yield from _one("model_cost_dollars_total", "Cost of all model calls.", figures.cost / 1_000_000, "counter")
    yield from _one("model_calls_total", "Number of model calls.", figures.model_calls, "counter")
    text = "Webhook requests since the receiver started, by response status."
    yield from _labelled("webhooks_total", "counter", text, "answer", answers)


def _one(name: str, text: str, value: float, kind: str = "gauge") -> Iterator[str]:
    yield from _family(name, kind, text, {"": value})


def _labelled(name: str, kind: str, text: str, label: str, values: Mapping[str, int]) -> Iterator[str]:
    yield from _family(name, kind, text, {f'{label}="{_escaped(key)}"': values[key] for key in sorted(values)})


def _family(name: str, kind: str, text: str, values: Mapping[str, float]) -> Iterator[str]:
    yield f"# HELP agent_fix_{name} {text}\n# TYPE agent_fix_{name} {kind}\n"
    for labels, value in values.items():
        yield f"agent_fix_{name}{{{labels}}} {value:.10g}\n" if labels else f"agent_fix_{name} {value:.10g}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
