"""Runners by name: our own, and every agent there is a recipe for."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from app.errors import AgentFixError, ExitCode
from app.runners.base import Runner
from app.runners.native import NativeRunner, Surroundings
from app.runners.outside import OutsideRunner
from app.runners.recipe import Recipe, recipes
from app.runners.way_out import WayOut

NATIVE = "native"
Factory = Callable[[Surroundings], Runner]


def runner_names(directory: Path | None = None) -> frozenset[str]:
    """Every runner that a job may ask for; `directory` holds the operator's own recipes."""
    return frozenset({NATIVE, *recipes(directory)})


def find_recipe(name: str, directory: Path | None = None) -> Recipe | None:
    """The recipe of another agent; None for our own. An unknown name is the user's error and lists what there is."""
    if name == NATIVE:
        return None
    known = recipes(directory)
    if name not in known:
        raise unknown(name, known)
    return known[name]


def find_runner(recipe: Recipe | None, way_out: WayOut | None = None) -> Factory:
    """Our own runner, or the one that starts the agent of `recipe`, whose model is at the end of `way_out`."""
    if recipe is None:
        return NativeRunner
    if way_out is None:
        raise ValueError(f"{recipe.name} has no way to its model")
    return partial(OutsideRunner, recipe, way_out=way_out)


def unknown(name: str, known: Iterable[str]) -> AgentFixError:
    names = ", ".join((NATIVE, *sorted(known)))
    return AgentFixError(f"There is no runner {name!r}.", code=ExitCode.CONFIG, hint=f"Runners are: {names}.")
