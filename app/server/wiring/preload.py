"""Imports what a job's process needs, before there is a job."""

from app.config.settings import Settings
from app.llm.litellm import load
from app.llm.replay import PREFIX


def preload(settings: Settings) -> None:
    """Import for seconds, mostly the model library; a recorded model needs none."""
    loading = None if settings.model.startswith(PREFIX) else load()
    import app.jobs.engine  # noqa: F401, PLC0415  # beside the other

    if loading is not None:
        loading.result()
