"""`agent-fix doctor`: tries to break each property of the sandbox, or examines a repository on GitHub."""

import argparse
import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from textwrap import wrap

from app.config.settings import Settings, read_server_settings, read_settings
from app.core.errors import AgentFixError, ExitCode
from app.pipeline.wiring.sandbox_availability import SandboxAvailability, sandbox_availability
from app.pipeline.wiring.sandboxes import make_provider
from app.sandbox.base import DoctorCheck

WIDTH = 110


def doctor_command(arguments: argparse.Namespace) -> int:
    if arguments.github:
        return github_command(arguments)
    settings = read_settings(arguments.state)
    name = arguments.sandbox or settings.sandbox
    checks, kinds = asyncio.run(_examine(name, settings))
    if arguments.json:
        document = {
            "sandbox": name,
            "checks": [{"name": c.name, "ok": c.ok, "detail": c.detail, "repair": c.repair} for c in checks],
            "sandboxes": [kind.as_json() for kind in kinds],
        }
        print(json.dumps(document, indent=2))
    else:
        print("\n".join(report(name, checks, kinds)))
    return ExitCode.OK if all(check.ok for check in checks) else ExitCode.SANDBOX


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


async def _examine(name: str, settings: Settings) -> tuple[Sequence[DoctorCheck], Sequence[SandboxAvailability]]:
    """Examine one kind after the other, so that one does not slow down the measurements of another."""
    checks = await make_provider(name, settings).check()
    return checks, await sandbox_availability(settings)


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
