"""A model by its name: a recording, or whatever LiteLLM knows."""

from collections.abc import Mapping
from pathlib import Path

from app.model.base import Model
from app.model.litellm import LiteLLMModel
from app.model.prices import Price
from app.model.replay import PREFIX, RecordedModel, Recorder


def make_model(
    name: str,
    *,
    environment: Mapping[str, str],
    prices: Mapping[str, Price] | None = None,
    record: Path | None = None,
) -> Model:
    """The model called `name` (`provider/model`, or `recorded/FILE`), at no cost and without a request.

    `prices` are the user's own, by name, for models that no list knows. `record` also writes the answers to a file.
    """
    if name.startswith(PREFIX):
        return RecordedModel(Path(name.removeprefix(PREFIX)))
    model = LiteLLMModel(name, environment=environment, price=(prices or {}).get(name))
    return model if record is None else Recorder(model, record)
