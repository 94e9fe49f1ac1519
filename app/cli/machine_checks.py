"""What a fix needs of this machine besides a sandbox: git, a model and its key, disk, and a clock that is right."""

import asyncio
import re
import shutil
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Literal
from urllib.error import HTTPError, URLError

from app.config.settings import Settings
from app.core.errors import AgentFixError
from app.llm.base import Message, Model, ModelRequest
from app.llm.errors import ModelError
from app.llm.ledger import usd
from app.llm.price_file import read_prices
from app.llm.registry import make_model
from app.publish.plaintext import duration
from app.repo.git_command import Git

GIT = (2, 34)
MIN_FREE = 2 * 1024**3
"""Bytes in the state directory: mirrors of repositories, and the work trees of jobs."""
MAX_SKEW = 120.0
"""Seconds; GitHub refuses an App's assertion from a clock that is further off, and signatures expire."""
ONE_TOKEN = 16
"""The smallest answer that every provider sells."""


@dataclass(frozen=True, slots=True)
class MachineCheck:
    """`cannot tell` where something is not set, or nobody answers."""

    name: str
    state: Literal["ok", "not ok", "cannot tell"]
    detail: str
    repair: str = ""

    def as_json(self) -> dict[str, str]:
        return asdict(self)


async def check_machine(settings: Settings, model: str, *, ask: bool) -> Sequence[MachineCheck]:
    """In the order in which a fix needs them. With `ask`, the model answers once, which costs a fraction of a cent."""
    return (
        check_git(Git("--version").text()),
        check_disk(settings.state),
        *await asyncio.gather(
            check_model(settings, model, ask=ask),
            asyncio.to_thread(check_clock, settings.github_api_url),
        ),
    )


def check_git(version: str) -> MachineCheck:
    """From what `git --version` says."""
    found = re.search(r"(\d+)\.(\d+)", version)
    if found and (int(found[1]), int(found[2])) >= GIT:
        return MachineCheck("git", "ok", version.strip())
    return MachineCheck("git", "not ok", version.strip(), "Install git 2.34 or newer.")


def check_disk(state: Path) -> MachineCheck:
    """The free space where jobs are kept, and whether it can be written."""
    place = next((each for each in (state, *state.parents) if each.exists()), state)
    try:
        free = shutil.disk_usage(place).free
        state.mkdir(parents=True, exist_ok=True)
        (state / ".writable").touch()
    except OSError as error:
        repair = "Choose another directory with --state DIR or AGENT_FIX_STATE_DIR."
        return MachineCheck("disk", "not ok", f"{state} cannot be written: {error.strerror}", repair)
    detail = f"{free / 1024**3:.1f} GiB free in {state}"
    if free < MIN_FREE:
        return MachineCheck("disk", "not ok", detail, "Free 2 GiB, or choose another directory with --state DIR.")
    return MachineCheck("disk", "ok", detail)


def check_clock(address: str) -> MachineCheck:
    """Our time beside the one in an answer of this server. Blocking."""
    try:
        sent = time.time()
        request = urllib.request.Request(address, method="HEAD", headers={"user-agent": "agent-fix"})  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310  # the address is the operator's
                date = answer.headers.get("date", "")
        except HTTPError as error:
            date = error.headers.get("date", "")
            error.close()
        skew = (sent + time.time()) / 2 - parsedate_to_datetime(date).timestamp()
    except (URLError, OSError, ValueError, TypeError):
        return MachineCheck("clock", "cannot tell", f"{address} did not say what time it is")
    detail = f"{duration(abs(skew))} {'ahead of' if skew > 0 else 'behind'} {address}"
    if abs(skew) > MAX_SKEW:
        return MachineCheck("clock", "not ok", detail, "Set this machine's clock, best by NTP.")
    return MachineCheck("clock", "ok", detail if abs(skew) > 2 else f"agrees with {address}")


async def check_model(settings: Settings, name: str, *, ask: bool) -> MachineCheck:
    """Whether the model exists and its key is accepted; both are free, except for one answer with `ask`."""
    if not name:
        repair = "Set AGENT_FIX_MODEL or pass --model NAME, and set the key of its provider."
        return MachineCheck("model", "cannot tell", "no model is set", repair)
    try:
        model = make_model(name, environment=settings.model_environment, prices=read_prices(settings.prices))
        await model.check()
        if not ask:
            return MachineCheck("model", "ok", f"{name}: name and key are accepted; test it with --ask-model")
        return await _answer(name, model)
    except AgentFixError as error:
        return MachineCheck("model", "not ok", error.message, error.hint)


async def _answer(name: str, model: Model) -> MachineCheck:
    begun = time.monotonic()
    request = ModelRequest(messages=(Message(role="user", content="Answer with OK."),), max_tokens=ONE_TOKEN)
    try:
        usage = (await model.complete(request, key="doctor")).usage
    except ModelError as error:
        if error.reason not in {"length", "empty"}:
            raise
        return MachineCheck("model", "ok", f"{name} answers")
    cost = usd(usage.cost) if usage.cost else "price unknown"
    return MachineCheck("model", "ok", f"{name} answered in {duration(time.monotonic() - begun)}, {cost}")
