"""Runners by name: our own, and every agent with a recipe."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import partial
from pathlib import Path

from app.agent.base import Runner
from app.agent.external.gateway import ModelSocket
from app.agent.external.recipe import AgentRecipe, recipes
from app.agent.external.runner import ExternalRunner
from app.agent.loop import NativeRunner, RunnerContext
from app.core.errors import AgentFixError, ExitCode

NATIVE = "native"
Factory = Callable[[RunnerContext], Runner]


def find_recipe(name: str, directory: Path | None = None) -> AgentRecipe | None:
    """The recipe of another agent; None for our own. Raises AgentFixError for an unknown name."""
    if name == NATIVE:
        return None
    known = recipes(directory)
    if name not in known:
        raise unknown_runner_error(name, known)
    return known[name]


def find_runner(recipe: AgentRecipe | None, model_socket: ModelSocket | None = None) -> Factory:
    """Our own runner, or one that starts the agent of `recipe` with its model behind `model_socket`."""
    if recipe is None:
        return NativeRunner
    if model_socket is None:
        raise ValueError(f"{recipe.name} has no connection to its model")
    return partial(ExternalRunner, recipe, model_socket=model_socket)


def unknown_runner_error(name: str, known: Iterable[str]) -> AgentFixError:
    names = (NATIVE, *sorted(known))
    similar = get_close_matches(name.casefold(), names, 1)
    meant = f"Did you mean {similar[0]}? " if similar else ""
    hint = f"{meant}Runners are: {', '.join(names)}."
    return AgentFixError(f"There is no runner {name!r}.", code=ExitCode.CONFIG, hint=hint)
