"""Builds a job's models with their budget: which is used for what, and at which prices."""

from collections.abc import Sequence
from pathlib import Path

from app.config.settings import Settings
from app.core.job import Job, Progress
from app.llm.base import Model
from app.llm.budgeted_model import JobModels
from app.llm.circuit_breaker import CircuitBreakers, process_breakers
from app.llm.ledger import Ledger
from app.llm.prices import read_prices
from app.llm.registry import make_model, record_to, takes_reasoning


def make_budgeted_models(
    job: Job,
    settings: Settings,
    ledger: Ledger,
    progress: Progress,
    *,
    fallbacks: Sequence[str] = (),
    record: Path | None = None,
    breakers: CircuitBreakers | None = None,
) -> JobModels:
    """Raises AgentFixError if the operator's prices cannot be read. All answers go to `record`, if there is one."""
    environment, prices = settings.model_environment, read_prices(settings.prices)
    main = job.main_model

    def plain(name: str) -> Model:
        """Only the main model must accept a reasoning setting; others get it if they are known to accept one."""
        wanted = job.reasoning if name == main or takes_reasoning(name, environment) else ""
        return make_model(name, environment=environment, prices=prices, reasoning=wanted)

    def make(name: str) -> Model:
        model = plain(name)
        return model if record is None else record_to(record, model, of=plain(main).info)

    return JobModels(job.chosen, make, ledger, progress, fallbacks=fallbacks, breakers=breakers or process_breakers())
