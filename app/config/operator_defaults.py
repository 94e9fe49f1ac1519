"""Reads the operator's defaults: a file like a repository's, whose values count if a repository sets none.

What the operator locks counts in any case. `AGENT_FIX_DEFAULTS` names the file, or holds its text.
"""

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from app.config.repository import BudgetConfig, IterateConfig, RepoConfig, parse_as
from app.core.errors import ConfigError
from app.core.record import Record

DEFAULTS: Final = "AGENT_FIX_DEFAULTS"
RUNNER: Final = "AGENT_FIX_RUNNER"
FALLBACKS: Final = "AGENT_FIX_FALLBACKS"
SECTIONS: Final[dict[str, type[Record]]] = {"budget": BudgetConfig, "iterate": IterateConfig}
ADDED: Final = frozenset({"protected_paths"})
"""Keys to which a repository only adds."""


def lockable_keys() -> Iterator[str]:
    for name in RepoConfig.model_fields:
        yield name
        if name in SECTIONS:
            yield from (f"{name}.{inner}" for inner in SECTIONS[name].model_fields)


def _key(value: str) -> str:
    known = list(lockable_keys())
    if value not in known:
        similar = difflib.get_close_matches(value, known, 1)
        raise ValueError(f"`{value}` is not a known key" + (f"; did you mean `{similar[0]}`?" if similar else ""))
    return value


class OperatorDefaults(RepoConfig):
    """The keys of a repository's file, and those that a repository cannot change."""

    lock: tuple[Annotated[str, AfterValidator(_key)], ...] = Field(
        default=(),
        description="Keys that neither a repository nor a command can change: `model`, `budget.usd`.",
    )

    def locks(self, key: str) -> bool:
        return key in self.lock or key.partition(".")[0] in self.lock

    def apply_to(self, config: RepoConfig) -> RepoConfig:
        """The repository's configuration, with these values if it has none or may have none."""
        if not self.model_fields_set:
            return config
        overruled: list[str] = []
        values: dict[str, Any] = {}
        for name in RepoConfig.model_fields:
            ours, theirs = getattr(self, name), getattr(config, name)
            if name in SECTIONS:
                keys = type(ours).model_fields
                values[name] = type(ours)(
                    **{key: self._chosen(f"{name}.{key}", ours, theirs, overruled) for key in keys}
                )
            elif name in ADDED:
                values[name] = tuple(dict.fromkeys((*ours, *theirs)))
            else:
                values[name] = self._chosen(name, self, config, overruled)
        merged = config.model_copy(update=values)
        merged._overruled = tuple(overruled)
        return merged

    def _chosen(self, key: str, ours: Any, theirs: Any, overruled: list[str]) -> Any:
        """The value of one key: the repository's if it sets one and may."""
        name = key.rpartition(".")[2]
        own, other = getattr(ours, name), getattr(theirs, name)
        if self.locks(key):
            if name in theirs.model_fields_set and other != own:
                overruled.append(key)
            return own
        return other if name in theirs.model_fields_set or name not in ours.model_fields_set else own


NO_DEFAULTS: Final = OperatorDefaults()


def parse_defaults(value: str) -> OperatorDefaults:
    """From a file's path or, if it has a line end or a colon and a blank, from the text itself. Raises ConfigError."""
    if "\n" in value or ": " in value:
        return parse_as(OperatorDefaults, value.encode(), DEFAULTS)
    try:
        content = Path(value).expanduser().read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise ConfigError(f"{value[:200]} cannot be read: {reason}") from error
    return parse_as(OperatorDefaults, content, value)


def with_variables(defaults: OperatorDefaults, runner: str, fallbacks: str) -> OperatorDefaults:
    """`AGENT_FIX_RUNNER` and `AGENT_FIX_FALLBACKS` (with commas) for the same keys. Raises ConfigError."""
    names = [name.strip() for name in fallbacks.split(",") if name.strip()]
    lines = [f"runner: '{runner}'"] if runner else []
    lines += [f"fallbacks: [{', '.join(map(repr, names))}]"] if names else []
    if not lines:
        return defaults
    found = parse_as(OperatorDefaults, "\n".join(lines).encode(), f"{RUNNER}, {FALLBACKS}")
    return defaults.model_copy(update={name: getattr(found, name) for name in found.model_fields_set})
