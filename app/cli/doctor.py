"""`agent-fix doctor`: tries to break each property of the sandbox, or examines a repository on GitHub."""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from textwrap import wrap

from app.cli.machine_checks import MachineCheck, check_machine
from app.config.settings import Settings, read_server_settings, read_settings
from app.core.errors import AgentFixError, ExitCode
from app.pipeline.wiring.sandbox_availability import SandboxAvailability, sandbox_availability
from app.pipeline.wiring.sandboxes import make_provider
from app.sandbox.base import DoctorCheck

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
            "machine": [each.as_json() for each in machine],
            "sandbox": name,
            "checks": [{"name": c.name, "ok": c.ok, "detail": c.detail, "repair": c.repair} for c in checks],
            "sandboxes": [kind.as_json() for kind in kinds],
        }
        print(json.dumps(document, indent=2))
    else:
        print("\n".join(machine_lines(machine)))
        print("\n".join(report(name, checks, kinds)))
    if not all(check.ok for check in checks):
        return ExitCode.SANDBOX
    broken = [each.name for each in machine if each.state == "not ok"]
    return _CODES[broken[0]] if broken else ExitCode.OK


def github_command(arguments: argparse.Namespace) -> int:
    """Whether agent-fix can work in a repository."""
    from app.server.wiring.examining import examine  # noqa: PLC0415  # GitHub's client is imported where it is needed

    owner, slash, name = arguments.github.partition("/")
    if not (owner and slash and name) or "/" in name:
        raise AgentFixError(f"{arguments.github!r} is not a repository.", hint="Use --github OWNER/NAME.")
    found = asyncio.run(examine(read_server_settings(arguments.state, "publisher"), owner, name))
    if arguments.json:
        print(json.dumps({"repository": arguments.github, "findings": [asdict(each) for each in found]}, indent=2))
    else:
        for each in found:
            print("\n".join(_entry(each.state, each.name, each.detail, each.repair, width=11)))
    return ExitCode.GITHUB if any(each.state == "not ok" for each in found) else ExitCode.OK


async def _examine(
    name: str, settings: Settings, arguments: argparse.Namespace
) -> tuple[Sequence[MachineCheck], Sequence[DoctorCheck], Sequence[SandboxAvailability]]:
    """Examine one after the other, so that one does not slow down the measurements of another."""
    say = partial(print, file=sys.stderr, flush=True)
    say("Checking git, disk, clock and model …")
    machine = await check_machine(settings, arguments.model or settings.model, ask=arguments.ask_model)
    say(f"Checking the sandbox {name}, and which others work; this takes up to a minute …")
    checks = await make_provider(name, settings).check()
    return machine, checks, await sandbox_availability(settings)


def machine_lines(checks: Sequence[MachineCheck]) -> Iterator[str]:
    """What a fix needs besides the sandbox."""
    yield "this machine\n"
    for check in checks:
        yield from _entry(check.state, check.name, check.detail, check.repair, width=11)
    yield ""


def report(name: str, checks: Sequence[DoctorCheck], kinds: Sequence[SandboxAvailability]) -> Iterator[str]:
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
        yield from _entry("ready" if kind.usable else "-", chosen, kind.detail, kind.repair)
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
