"""A job's models behind its account: which is asked for what, and at whose prices."""

from collections.abc import Sequence
from pathlib import Path

from app.job import Job, Progress
from app.model.base import Model
from app.model.breaker import of_this_process
from app.model.budget import Ledger
from app.model.meters import Meters
from app.model.pricefile import read_prices
from app.model.registry import make_model, record_to, takes_reasoning
from app.settings import Settings


def make_meters(
    job: Job,
    settings: Settings,
    ledger: Ledger,
    progress: Progress,
    *,
    fallbacks: Sequence[str] = (),
    record: Path | None = None,
) -> Meters:
    """Raises AgentFixError where the operator's prices cannot be read. All answers go to `record`, if there is one."""
    environment, prices = settings.model_environment, read_prices(settings.prices)
    main = job.main_model

    def plain(name: str) -> Model:
        """Only the main model has to take a word on reasoning; others get it where they are known to take one."""
        wanted = job.reasoning if name == main or takes_reasoning(name, environment) else ""
        return make_model(name, environment=environment, prices=prices, reasoning=wanted)

    def make(name: str) -> Model:
        model = plain(name)
        return model if record is None else record_to(record, model, of=plain(main).info)

    return Meters(job.chosen, make, ledger, progress, fallbacks=fallbacks, breakers=of_this_process())
