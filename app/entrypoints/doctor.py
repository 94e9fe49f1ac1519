"""`agent-fix doctor`: tries to break each property of the sandbox here and prints the exact repair."""

import argparse
import asyncio
import json

from app.bootstrap.sandboxes import make_provider
from app.errors import ExitCode
from app.settings import read_settings


def doctor_command(arguments: argparse.Namespace) -> int:
    settings = read_settings(arguments.state)
    provider = make_provider(arguments.sandbox, settings)
    checks = asyncio.run(provider.check())
    if arguments.json:
        rows = [{"name": c.name, "ok": c.ok, "detail": c.detail, "repair": c.repair} for c in checks]
        print(json.dumps({"sandbox": provider.name, "checks": rows}, indent=2))
    else:
        print(f"sandbox: {provider.name}\n")
        for check in checks:
            print(f"  {'ok  ' if check.ok else 'FAIL'}  {check.name:<28} {check.detail}")
            if not check.ok and check.repair:
                print(f"        repair: {check.repair}")
        broken = sum(not check.ok for check in checks)
        print(f"\n{len(checks) - broken} of {len(checks)} properties hold.")
        if broken:
            print("Jobs refuse to start.")
    return ExitCode.OK if all(check.ok for check in checks) else ExitCode.SANDBOX
