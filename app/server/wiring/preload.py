"""What a job's process imports sooner or later, imported before there is a job."""

from app.config.settings import Settings
from app.llm.litellm import load
from app.llm.replay import PREFIX


def preload(settings: Settings) -> None:
    """Seconds of imports, most of them the model library's; a recorded model needs none."""
    loading = None if settings.model.startswith(PREFIX) else load()
    import app.jobs.engine  # noqa: F401, PLC0415  # beside the other

    if loading is not None:
        loading.result()
