"""Creates a model by its name: a recording, or any model that LiteLLM knows."""

from collections.abc import Mapping
from pathlib import Path

from app.core.model_usage import Reasoning
from app.llm.base import Model, ModelInfo
from app.llm.litellm import LiteLLMModel
from app.llm.prices import Price
from app.llm.providers import operator_price, route
from app.llm.replay import PREFIX, ModelRecorder, RecordedModel


def make_model(
    name: str,
    *,
    environment: Mapping[str, str],
    prices: Mapping[str, Price] | None = None,
    reasoning: Reasoning = "",
) -> Model:
    """Create the model called `name` (`provider/model`, or `recorded/FILE`), at no cost and without a request.

    `prices` are the operator's own, by the model's name with or without its provider. The model's own check decides
    whether it accepts `reasoning`.
    """
    if name.startswith(PREFIX):
        return RecordedModel(Path(name.removeprefix(PREFIX)))
    price = operator_price(name, environment, prices or {})
    return LiteLLMModel(name, environment=environment, price=price, reasoning=reasoning)


def record_to(path: Path, model: Model, *, of: ModelInfo) -> Model:
    """Wrap the model so that its answers are also written to a file, under the name of the job's main model `of`."""
    return model if isinstance(model, RecordedModel) else ModelRecorder(model, path, of=of)


def takes_reasoning(name: str, environment: Mapping[str, str]) -> bool:
    """True if a model is known to accept a reasoning setting."""
    listed = route(name, environment).listed
    return listed is not None and listed.reasoning
