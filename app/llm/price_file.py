"""The operator's own prices: a YAML or JSON file, model → dollars per million tokens, for models that no list knows.

openai/qwen3-coder: {input: 0.20, output: 0.80, cached: 0.02, context_window: 262144, max_output: 65536}
"""

from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from app.config.value_rules import unknown_key, wrong_value
from app.core.errors import AgentFixError, ExitCode
from app.core.strict_yaml import WHOLE_FILE, YamlDocument, YamlProblem, dotted, read_yaml
from app.core.text import one_line
from app.llm.prices import Price

_PRICES = TypeAdapter(dict[str, Price])
HINT = "Write `openai/NAME: {input: 0.20, output: 0.80}`, in dollars per million tokens."


def read_prices(path: Path | None) -> Mapping[str, Price]:
    """The file's prices by model name. Raises AgentFixError, which names each wrong line and key."""
    if path is None:
        return {}
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise AgentFixError(f"The price file {path} cannot be read: {reason}.", code=ExitCode.CONFIG) from error
    return parse_prices(content, str(path))


def parse_prices(content: bytes, source: str) -> Mapping[str, Price]:
    document = read_yaml(content)
    problems = list(document.problems)
    prices: Mapping[str, Price] = {}
    if isinstance(document.value, dict):
        try:
            prices = _PRICES.validate_python(document.value, strict=True)
        except ValidationError as error:
            problems += [_problem(details, document) for details in error.errors(include_url=False)]
    elif not problems:
        problems.append(YamlProblem(1, WHOLE_FILE, "must be a mapping of models to prices"))
    if problems:
        shown = [
            f"{source}:{line}: {one_line(key)[:120]}: {one_line(message)}" for line, key, message in sorted(problems)
        ]
        raise AgentFixError("\n".join(shown[:20]), code=ExitCode.CONFIG, hint=HINT)
    return prices


def _problem(details: ErrorDetails, document: YamlDocument) -> YamlProblem:
    path = details["loc"]
    while path not in document.lines:
        path = path[:-1]
    if details["type"] == "extra_forbidden":
        return YamlProblem(document.lines[path], dotted(path), unknown_key(str(path[-1]), Price.model_fields))
    return YamlProblem(document.lines[path], dotted(path), wrong_value(details))
