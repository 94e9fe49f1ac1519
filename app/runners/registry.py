"""Runners by name."""

from collections.abc import Callable, Mapping

from app.errors import AgentFixError, ExitCode
from app.runners.base import Runner
from app.runners.native import NativeRunner, Surroundings

Factory = Callable[[Surroundings], Runner]

RUNNERS: Mapping[str, Factory] = {"native": NativeRunner}


def find_runner(name: str) -> Factory:
    """The factory of that name; an unknown name is the user's error and lists what there is."""
    try:
        return RUNNERS[name]
    except KeyError:
        known = ", ".join(sorted(RUNNERS))
        raise AgentFixError(
            f"There is no runner {name!r}.", code=ExitCode.CONFIG, hint=f"Runners are: {known}."
        ) from None
