"""`agent-fix keys`: creates, lists and deletes keys for the API, on the machine that has the server's database."""

import argparse
import os
import re

from app.config.settings import read_settings
from app.core.errors import AgentFixError, ExitCode
from app.jobs.accounts import ApiKeys
from app.jobs.trigger_log import AuditLog
from app.server.context import existing_server_context

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_RESERVED = frozenset({"agent-fix", "dashboard", "operator"})
"""Names of authors of plans and of entries in the audit log that are not keys."""


def keys_command(arguments: argparse.Namespace) -> int:
    settings = read_settings(arguments.state)
    server_context = existing_server_context(settings)
    keys = ApiKeys(server_context.engine, server_context.clock)
    audit = AuditLog(server_context.engine, server_context.clock)
    who = settings.environment.get("USER") or f"uid {os.getuid()}"
    match arguments.action:
        case "create":
            if not _NAME.fullmatch(arguments.name):
                raise AgentFixError("A key's name may contain only letters, digits, and . _ -", code=ExitCode.USAGE)
            if arguments.name.casefold() in _RESERVED:
                raise AgentFixError(f"{arguments.name} is reserved for agent-fix itself.", code=ExitCode.USAGE)
            scopes = sorted(arguments.scope or ["read"])
            print(keys.create(arguments.name, scopes))
            audit.record(who, "terminal", "create key", detail=f"{arguments.name} ({' '.join(scopes)})")
        case "delete":
            if not keys.delete(arguments.name):
                raise AgentFixError(f"There is no key named {arguments.name}.", code=ExitCode.USAGE)
            audit.record(who, "terminal", "delete key", detail=arguments.name)
            print(f"The key {arguments.name} is deleted.")
        case _:
            for each in keys.all():
                print(f"{each.name:<41}{' '.join(sorted(each.scopes)):<17}{each.created_at:%Y-%m-%d}")
    return ExitCode.OK
