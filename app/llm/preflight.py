"""Checks a model before any paid call: its key, its name, and whether the endpoint answers."""

from collections.abc import Mapping
from typing import Literal

from app.llm.errors import ModelError
from app.llm.probe import ProbeTarget, probe
from app.llm.providers import Route, check_environment, check_name


async def preflight(route: Route, environment: Mapping[str, str], *, any_name: bool = False) -> None:
    """Raise `give_up` if the model cannot work; `any_name` if the user states the price of an unlisted model.

    A provider that cannot be checked from here (offline, behind a proxy) is accepted; a custom endpoint that does not
    answer is not.
    """
    check_environment(route, environment)
    if not any_name:
        check_name(route)
    base = route.base or route.known.home
    if not base or route.provider.startswith("azure"):
        return
    style: Literal["anthropic", "bearer"] = "anthropic" if route.provider == "anthropic" else "bearer"
    finding = await probe(ProbeTarget(base, route.key, style))
    local = bool(route.base) or not route.known.keys
    if finding == "unreachable" and local:
        raise ModelError(
            f"Nothing answers for {route.name} at {base}.",
            kind="give_up",
            reason="unreachable",
            hint=f"Start it, or correct {' or '.join(route.known.bases)}.",
        )
    if finding == "bad_key" and not (route.known.tokens and not route.key):
        keys = " or ".join(route.known.keys) or "its key"
        raise ModelError(
            f"The endpoint of {route.name} rejects the API key.",
            kind="give_up",
            reason="bad_key" if route.key else "no_key",
            hint=f"Check {keys} in the environment." if route.key else f"Set {keys} in the environment.",
        )
