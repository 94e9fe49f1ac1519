"""`agent-fix serve`: runs the GitHub App, as a supervisor with three roles or as one role on this machine."""

import argparse
import asyncio
import logging
import os
import subprocess
import sys
from dataclasses import replace
from types import TracebackType

from app.config.roles import ROLES, Role
from app.config.settings import Settings, read_server_settings
from app.core import failpoints, log
from app.core.errors import ExitCode
from app.core.redaction import Redactor
from app.server.supervisor import RoleSpec, Supervisor, address_of, as_text, listen, only_supervisor, summary

logger = logging.getLogger(__name__)


def serve_command(arguments: argparse.Namespace) -> int:
    if arguments.setup:
        from app.server.app_setup import run_setup  # noqa: PLC0415  # imported only for the set-up page

        settings = read_server_settings(arguments.state)
        settings.check()
        return run_setup(settings)
    if arguments.prepare:
        return _prepare(read_server_settings(arguments.state, "receiver"))
    if arguments.role:
        return _serve_role(arguments.role, arguments)
    return serve_all(read_server_settings(arguments.state))


def serve_all(settings: Settings) -> int:
    """Check everything, then run every role until told to end."""
    settings.check(*ROLES)  # warnings are logged by the role that they concern
    _check_prices(settings)
    _begin_log(settings)
    with only_supervisor(settings), listen(settings.host, settings.port) as listener:
        prepared = subprocess.run(
            command("--prepare"), env=settings.for_role("receiver"), cwd=settings.state, check=False
        ).returncode
        if prepared != ExitCode.OK:  # it has said why
            return prepared
        _introduce(settings, address_of(listener))
        roles = [role_spec(role, settings, listener.fileno()) for role in ROLES]
        return asyncio.run(Supervisor(roles, settings.state).supervise())


def role_spec(role: Role, settings: Settings, listener: int) -> RoleSpec:
    if role == "receiver":
        words = command("--role", role, "--listening", str(listener))
        return RoleSpec(role, words, settings.for_role(role), files=(listener,))
    return RoleSpec(role, command("--role", role), settings.for_role(role))


def command(*words: str) -> tuple[str, ...]:
    """The command for this program, isolated (`-I`) so that no directory or variable can replace `app`."""
    return (sys.executable, "-I", "-m", "app", "serve", *words)


def _prepare(settings: Settings) -> int:
    """Create the tables once for all roles, in a separate process that frees the database libraries at its end."""
    from app.server.context import ServerContext  # noqa: PLC0415

    ServerContext(settings).prepare()
    return ExitCode.OK


def _check_prices(settings: Settings) -> None:
    """Check the price file now and report each wrong line and key, because no job could start with it."""
    if settings.prices is not None:
        from app.llm.prices import read_prices  # noqa: PLC0415

        read_prices(settings.prices)


def _serve_role(role: Role, arguments: argparse.Namespace) -> int:
    settings = read_server_settings(arguments.state, role)
    own = settings.for_role(role)
    if settings.environment.keys() - own.keys():  # started by hand, with variables that the role must not have
        further = ("--listening", str(arguments.listening)) if arguments.listening is not None else ()
        further += ("--job", arguments.job) if arguments.job else ()
        os.execve(sys.executable, command("--role", role, *further), own)  # noqa: S606  # no shell is wanted
    warnings = settings.check(role)
    if role == "worker":
        _check_prices(settings)
    _begin_log(settings)
    for warning in warnings:
        logger.warning(warning)
    failpoints.arm(settings.failpoint)
    settings = replace(settings, environment=own)
    match role:
        case "receiver":
            from app.server.receiver import run_receiver  # noqa: PLC0415  # each role imports only its own packages

            return run_receiver(settings, arguments.listening)
        case "worker" if arguments.job:
            from app.server.job_process import run_job  # noqa: PLC0415

            job, epoch, owner = arguments.job.split(":")
            return run_job(settings, job, int(epoch), owner)
        case "worker":
            from app.server.worker import run_worker  # noqa: PLC0415

            return run_worker(settings)
        case "publisher":
            from app.server.publisher import run_publisher  # noqa: PLC0415

            return run_publisher(settings)


def _begin_log(settings: Settings) -> None:
    log.configure(form=settings.log, redactor=Redactor(settings.secrets))
    sys.excepthook = _log_end


def _log_end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Log a process's uncaught error through the log, which masks secrets."""
    logger.critical("ended by an internal error", exc_info=(kind, error, trace))


def _introduce(settings: Settings, address: str) -> None:
    facts = summary(settings, address, ROLES)
    if settings.log == "json":
        logger.info(
            "serving", extra={f"serves_{name.replace('-', '_').lower()}": value for name, value in facts.items()}
        )
    else:
        print(as_text(facts), flush=True)
