"""The providers of models: the environment that each needs, as data, and how models are named."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import NamedTuple

from app.llm.base import ModelInfo
from app.llm.errors import ModelError
from app.llm.prices import DEFAULT_WINDOW, OLLAMA_WINDOW, ListedModel, Price, model_info, price_list


@dataclass(frozen=True, slots=True)
class Provider:
    """The requirements of one name prefix.

    Any one of `keys` or `tokens` is enough; all of `also` are required, and one of `bases` if `needs_base`. `tokens`
    are other credentials, which LiteLLM reads from the environment itself. `free_names` means that users choose the
    model names (deployments, local models, gateways); `home` is where models are listed.
    """

    keys: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()
    home: str = ""
    needs_base: bool = False
    free_names: bool = False


AWS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_PROFILE",
    "AWS_ROLE_ARN",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
OPENAI_BASES = ("OPENAI_API_BASE", "OPENAI_BASE_URL")
PROVIDERS: Mapping[str, Provider] = {
    "openai": Provider(("OPENAI_API_KEY",), bases=OPENAI_BASES, home="https://api.openai.com/v1"),
    "anthropic": Provider(
        ("ANTHROPIC_API_KEY",),
        ("ANTHROPIC_AUTH_TOKEN",),
        bases=("ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"),
        home="https://api.anthropic.com/v1",
    ),
    "gemini": Provider(("GEMINI_API_KEY", "GOOGLE_API_KEY"), bases=("GEMINI_API_BASE",)),
    "azure": Provider(("AZURE_API_KEY", "AZURE_AD_TOKEN"), bases=("AZURE_API_BASE",), needs_base=True, free_names=True),
    "azure_ai": Provider(("AZURE_AI_API_KEY",), bases=("AZURE_AI_API_BASE",), needs_base=True, free_names=True),
    "openrouter": Provider(("OPENROUTER_API_KEY",), bases=("OPENROUTER_API_BASE",), free_names=True),
    "mistral": Provider(("MISTRAL_API_KEY",), bases=("MISTRAL_API_BASE",), home="https://api.mistral.ai/v1"),
    "groq": Provider(("GROQ_API_KEY",), bases=("GROQ_API_BASE",), home="https://api.groq.com/openai/v1"),
    "deepseek": Provider(("DEEPSEEK_API_KEY",), bases=("DEEPSEEK_API_BASE",), home="https://api.deepseek.com/v1"),
    "xai": Provider(("XAI_API_KEY",), bases=("XAI_API_BASE",), home="https://api.x.ai/v1"),
    "bedrock": Provider(tokens=AWS, bases=("AWS_BEDROCK_RUNTIME_ENDPOINT",), free_names=True),
    "vertex_ai": Provider(also=("VERTEXAI_PROJECT", "VERTEXAI_LOCATION"), free_names=True),
    "cohere": Provider(("COHERE_API_KEY",)),
    "together_ai": Provider(("TOGETHERAI_API_KEY", "TOGETHER_API_KEY"), free_names=True),
    "fireworks_ai": Provider(("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY"), free_names=True),
    "cerebras": Provider(("CEREBRAS_API_KEY",)),
    "moonshot": Provider(("MOONSHOT_API_KEY",), bases=("MOONSHOT_API_BASE",)),
    "zai": Provider(("ZAI_API_KEY",)),
    "dashscope": Provider(("DASHSCOPE_API_KEY",), bases=("DASHSCOPE_API_BASE",), free_names=True),
    "deepinfra": Provider(("DEEPINFRA_API_KEY",), free_names=True),
    "perplexity": Provider(("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY")),
    "huggingface": Provider(("HF_TOKEN", "HUGGINGFACE_API_KEY"), free_names=True),
    "nvidia_nim": Provider(("NVIDIA_NIM_API_KEY",), bases=("NVIDIA_NIM_API_BASE",), free_names=True),
    "ollama": Provider(bases=("OLLAMA_API_BASE",), home="http://localhost:11434", free_names=True),
    "ollama_chat": Provider(bases=("OLLAMA_API_BASE",), home="http://localhost:11434", free_names=True),
    "lm_studio": Provider(bases=("LM_STUDIO_API_BASE",), needs_base=True, free_names=True),
    "hosted_vllm": Provider(bases=("HOSTED_VLLM_API_BASE",), needs_base=True, free_names=True),
    "litellm_proxy": Provider(
        ("LITELLM_PROXY_API_KEY",), bases=("LITELLM_PROXY_API_BASE",), needs_base=True, free_names=True
    ),
}


OLLAMA = frozenset({"ollama", "ollama_chat"})
_NO_KEY = "no-key"
"""Custom endpoints often need none, and the client wants one."""


class Route(NamedTuple):
    """Where a model's calls go. `base` is a custom endpoint or empty; `key` is the credential or empty."""

    provider: str
    model: str
    base: str = ""
    key: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    """For a gateway: sent only to a custom endpoint."""

    @property
    def known(self) -> Provider:
        return PROVIDERS.get(self.provider, Provider())

    @property
    def where(self) -> str:
        """What a person should check if nothing answers."""
        return " or ".join(self.known.bases) if self.base else "that the provider is up"

    @property
    def connection(self) -> Mapping[str, str | dict[str, str]]:
        """LiteLLM's arguments for a custom endpoint and the key. What the provider's `tokens` name, it finds itself."""
        key = self.key or (_NO_KEY if self.base and not self.known.tokens else "")
        headers = dict(self.headers) if self.base else {}
        given = (("api_base", self.base), ("api_key", key), ("extra_headers", headers))
        return {name: value for name, value in given if value}

    @property
    def name(self) -> str:
        """The model's name for LiteLLM."""
        return f"{self.provider}/{self.model}" if self.provider else self.model

    @property
    def listed_name(self) -> str:
        """The name without the word that selects another protocol (`openai/responses/NAME`)."""
        return f"{self.provider}/{self.model.removeprefix('responses/')}"

    @property
    def listed(self) -> ListedModel | None:
        """The model in LiteLLM's list."""
        return price_list().find(self.name) or price_list().find(self.listed_name)

    @property
    def wire_name(self) -> str:
        """The name used for calls: Ollama's older protocol knows tools only as words in a prompt."""
        return f"ollama_chat/{self.model}" if self.provider == "ollama" else self.name


def route(name: str, environment: Mapping[str, str]) -> Route:
    """Resolve a model's name as people write it: `gpt-4o`, `anthropic/claude-…`, `my-local-model` at a custom base.

    The part before the first slash is always a provider.
    """
    prefix, _, rest = name.partition("/")
    listed = price_list().find(name)
    if rest and (prefix in PROVIDERS or prefix in price_list().providers):
        provider, model = prefix, rest
    elif listed is not None and listed.provider in PROVIDERS and not _set(environment, OPENAI_BASES):
        provider, model = listed.provider, name
    elif rest:  # an error if LiteLLM does not know it either (`LiteLLMModel.check`)
        provider, model = prefix, rest
    else:
        provider, model = _maker(name, environment), name
    known = PROVIDERS.get(provider, Provider())
    headers = tuple(_headers(environment.get(f"{provider.upper()}_CUSTOM_HEADERS", "")))
    return Route(provider, model, _set(environment, known.bases), _set(environment, known.keys), headers)


def _headers(text: str) -> Iterator[tuple[str, str]]:
    """Lines of `Name: value`."""
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip():
            yield name.strip(), value.strip()


def operator_price(name: str, environment: Mapping[str, str], prices: Mapping[str, Price]) -> Price | None:
    """The operator's price of the model that people call `name`, also under its other names."""
    found = route(name, environment)
    return next((prices[each] for each in (name, found.name, found.listed_name) if each in prices), None)


def model_properties(found: Route, price: Price | None) -> ModelInfo:
    """A model's properties: from the operator's price, else LiteLLM's list, else cautious sizes without a price."""
    window = OLLAMA_WINDOW if found.provider in OLLAMA else DEFAULT_WINDOW
    info = model_info(found.name, found.listed.info if found.listed else None, price, window=window)
    return replace(info, endpoint=found.base)


def _maker(name: str, environment: Mapping[str, str]) -> str:
    """The provider of a name that LiteLLM's table has only with a prefix, or not at all; OpenAI if that is not clear.

    Those who host other people's models do not count. Behind a custom endpoint, any name may speak OpenAI's protocol.
    """
    if _set(environment, OPENAI_BASES):
        return "openai"
    for providers in price_list().providers_of(name):
        makers = [each for each in providers if each in PROVIDERS and not PROVIDERS[each].free_names]
        with_key = [each for each in makers if _set(environment, PROVIDERS[each].keys + PROVIDERS[each].tokens)]
        same_name = [each for each in makers if name.startswith(each)]
        for candidates in (makers, same_name, with_key):
            if len(candidates) == 1:
                return candidates[0]
    return "openai"


def check_environment(route: Route, environment: Mapping[str, str]) -> None:
    """Raise an error if a variable that the provider needs is missing."""
    known = PROVIDERS.get(route.provider)
    if known is None:
        return
    missing = [name for name in known.also if not environment.get(name)]
    if known.needs_base and not route.base:
        missing += known.bases[:1]
    keyless = bool(route.base) and route.provider == "openai"
    wanted = known.keys + known.tokens
    if wanted and not keyless and not _set(environment, wanted):
        missing.append(" or ".join(wanted[:2]))
    if missing:
        raise ModelError(
            f"{route.name} needs {' and '.join(missing)} in the environment.",
            kind="give_up",
            reason="no_key",
            hint="Set it and start again. No request was sent, so nothing was charged.",
        )


def check_name(route: Route) -> None:
    """Raise an error for a name that the provider does not have, with the most similar names that it does."""
    known = PROVIDERS.get(route.provider)
    if route.base or known is None or known.free_names or route.listed is not None:
        return
    similar = price_list().similar_names(route.name)
    raise ModelError(
        f"The model {route.name!r} is unknown.",
        kind="give_up",
        reason="unknown_model",
        hint=f"Did you mean {', '.join(similar)}?" if similar else "Write provider/model, such as openai/gpt-4o.",
    )


def unknown_provider(route: Route, known: Iterable[str]) -> ModelError:
    similar = get_close_matches(route.provider.casefold(), {*known, *PROVIDERS, *price_list().providers}, 2, 0.7)
    meant = f"Did you mean {' or '.join(f'{name}/{route.model}' for name in similar)}? " if similar else ""
    return ModelError(
        f"LiteLLM does not know the provider {route.provider!r} of {route.name!r}.",
        kind="give_up",
        reason="unknown_model",
        hint=f"{meant}For a model at your own endpoint (OPENAI_API_BASE), write openai/{route.name}.",
    )


def _set(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")
