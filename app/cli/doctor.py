"""`agent-fix doctor`: tries to break each property of the sandbox, or examines a repository on GitHub."""

import argparse
import asyncio
import json
import re
import shutil
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from email.utils import parsedate_to_datetime
from functools import partial
from textwrap import wrap
from urllib.error import HTTPError, URLError

from app.cli.local_context import LocalContext
from app.config.settings import Settings, read_server_settings, read_settings
from app.core.checks import Check
from app.core.errors import AgentFixError, ExitCode, OutputError
from app.core.model_usage import usd
from app.llm.base import Message, Model, ModelRequest
from app.llm.errors import ModelError
from app.llm.prices import read_prices
from app.llm.registry import make_model
from app.pipeline.wiring.sandboxes import make_provider, sandbox_availability
from app.publish.markdown import duration
from app.repo.git_command import Git
from app.sandbox.base import DoctorCheck

GIT = (2, 34)
MIN_FREE = 2 * 1024**3
"""Bytes in the state directory: mirrors of repositories, and the work trees of jobs."""
MAX_SKEW = 120.0
"""Seconds; GitHub refuses an App's assertion from a clock that is further off, and signatures expire."""
ONE_TOKEN = 16
"""The smallest answer that every provider sells."""


async def check_machine(settings: Settings, model: str, *, ask: bool) -> Sequence[Check]:
    """In the order in which a fix needs them. With `ask`, the model answers once, which costs a fraction of a cent."""
    return (
        check_git(Git("--version").text()),
        check_disk(settings),
        *await asyncio.gather(
            check_model(settings, model, ask=ask),
            asyncio.to_thread(check_clock, settings.github_api_url),
        ),
    )


def check_git(version: str) -> Check:
    """From what `git --version` says."""
    found = re.search(r"(\d+)\.(\d+)", version)
    if found and (int(found[1]), int(found[2])) >= GIT:
        return Check("git", "ok", version.strip())
    return Check("git", "not ok", version.strip(), "Install git 2.34 or newer.")


def check_disk(settings: Settings) -> Check:
    """The free space where jobs are kept, and whether it can be written."""
    try:
        LocalContext(settings).prepare()
    except OutputError as error:
        return Check("disk", "not ok", error.message, error.hint)
    free = shutil.disk_usage(settings.state).free
    detail = f"{free / 1024**3:.1f} GiB free in {settings.state}"
    if free < MIN_FREE:
        return Check("disk", "not ok", detail, "Free 2 GiB, or choose another directory with --state DIR.")
    return Check("disk", "ok", detail)


def check_clock(address: str) -> Check:
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
        return Check("clock", "cannot tell", f"could not read the time from {address}")
    detail = f"{duration(abs(skew))} {'ahead of' if skew > 0 else 'behind'} {address}"
    if abs(skew) > MAX_SKEW:
        return Check("clock", "not ok", detail, "Synchronise this machine's clock, for example with NTP.")
    return Check("clock", "ok", detail if abs(skew) > 2 else f"agrees with {address}")


async def check_model(settings: Settings, name: str, *, ask: bool) -> Check:
    """Whether the model exists and its key is accepted; both are free, except for one answer with `ask`."""
    if not name:
        repair = "Set AGENT_FIX_MODEL or pass --model NAME, and set the key of its provider."
        return Check("model", "cannot tell", "no model is set", repair)
    try:
        model = make_model(name, environment=settings.model_environment, prices=read_prices(settings.prices))
        await model.check()
        if not ask:
            return Check("model", "ok", f"{name}: name and key are accepted; test it with --ask-model")
        return await _answer(name, model)
    except AgentFixError as error:
        return Check("model", "not ok", error.message, error.hint)


async def _answer(name: str, model: Model) -> Check:
    begun = time.monotonic()
    request = ModelRequest(messages=(Message(role="user", content="Answer with OK."),), max_tokens=ONE_TOKEN)
    try:
        usage = (await model.complete(request, key="doctor")).usage
    except ModelError as error:
        if error.reason not in {"length", "empty"}:
            raise
        return Check("model", "ok", f"{name} answers")
    cost = usd(usage.cost) if usage.cost else "price unknown"
    return Check("model", "ok", f"{name} answered in {duration(time.monotonic() - begun)}, {cost}")


WIDTH = 110
_CODES = {"git": ExitCode.INTERNAL, "disk": ExitCode.OUTPUT, "clock": ExitCode.INTERNAL, "model": ExitCode.MODEL}
"""For the first check of the machine that is not ok."""


def doctor_command(arguments: argparse.Namespace) -> int:
    if arguments.github:
        return github_command(arguments)
    settings = read_settings(arguments.state)
    name = arguments.sandbox or settings.sandbox
    machine, checks, kinds = asyncio.run(_examine(name, settings, arguments))
    if arguments.json:
        document = {
            "machine": [asdict(each) for each in machine],
            "sandbox": name,
            "checks": [{"name": c.name, "ok": c.ok, "detail": c.detail, "repair": c.repair} for c in checks],
            "sandboxes": [{"name": k.name, "usable": k.ok, "detail": k.detail, "repair": k.repair} for k in kinds],
        }
        print(json.dumps(document, indent=2))
    else:
        print("\n".join(machine_lines(machine)))
        print("\n".join(report(name, checks, kinds)))
        missing = [each.name for each in machine if each.state == "not ok"]
        missing += [] if all(each.ok for each in checks) else [name]
        print(f"\nNot ready: {', '.join(missing)}; see above." if missing else "\nReady: `agent-fix fix ISSUE.md`.")
    if not all(check.ok for check in checks):
        return ExitCode.SANDBOX
    broken = [each.name for each in machine if each.state == "not ok"]
    return _CODES[broken[0]] if broken else ExitCode.OK


def github_command(arguments: argparse.Namespace) -> int:
    """Whether agent-fix can work in a repository."""
    from app.server.github_access import examine  # noqa: PLC0415  # GitHub's client is imported where it is needed

    owner, _, name = arguments.github.partition("/")
    settings = read_server_settings(arguments.state, "publisher")
    settings.check()
    found = asyncio.run(examine(settings, owner, name))
    if arguments.json:
        print(json.dumps({"repository": arguments.github, "findings": [asdict(each) for each in found]}, indent=2))
    else:
        for each in found:
            print("\n".join(_entry(each.state, each.name, each.detail, each.repair, width=11)))
    return ExitCode.GITHUB if any(each.state == "not ok" for each in found) else ExitCode.OK


async def _examine(
    name: str, settings: Settings, arguments: argparse.Namespace
) -> tuple[Sequence[Check], Sequence[DoctorCheck], Sequence[DoctorCheck]]:
    """Examine one after the other, so that one does not slow down the measurements of another."""
    say = partial(print, file=sys.stderr, flush=True)
    say("Checking git, disk, clock and model …")
    machine = await check_machine(settings, arguments.model or settings.model, ask=arguments.ask_model)
    say(f"Checking the sandbox {name}, and which others work; this takes up to a minute …")
    checks = await make_provider(name, settings).check()
    return machine, checks, await sandbox_availability(settings)


def machine_lines(checks: Sequence[Check]) -> Iterator[str]:
    """What a fix needs besides the sandbox."""
    yield "this machine\n"
    for check in checks:
        yield from _entry(check.state, check.name, check.detail, check.repair, width=11)
    yield ""


def report(name: str, checks: Sequence[DoctorCheck], kinds: Sequence[DoctorCheck]) -> Iterator[str]:
    """The lines of the screen."""
    yield f"sandbox: {name}\n"
    broken = [check for check in checks if not check.ok]
    for check in checks:
        yield from _entry("ok" if check.ok else "FAIL", check.name, check.detail, check.repair)
    yield f"\n{len(checks) - len(broken)} of {len(checks)} properties hold."
    if broken:
        yield "Jobs refuse to start."
    yield "\nOn this machine\n"
    for kind in kinds:
        chosen = f"{kind.name} (used)" if kind.name == name else kind.name
        yield from _entry("ready" if kind.ok else "-", chosen, kind.detail, kind.repair)
    yield "\nUse another one with --sandbox NAME, or with AGENT_FIX_SANDBOX=NAME for a server."


def _entry(mark: str, name: str, detail: str, repair: str, width: int = 5) -> Iterator[str]:
    """Wrapped lines are indented to their own column."""
    head = f"  {mark:<{width}} {name:<20} "
    indent = " " * len(head)
    repaired = _lines(f"repair: {repair}", WIDTH - len(head)) if repair else []
    first, *rest = [*_lines(detail, WIDTH - len(head)), *repaired]
    yield head + first
    yield from (indent + line for line in rest)


def _lines(text: str, width: int) -> list[str]:
    """Wrap lines, but never inside commands and paths, so that they can be copied."""
    return wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
