"""Builds a set-up's result as an image, in a separate container over a temporary tree; stored under the set-up's
key."""

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from app.core.errors import SandboxError
from app.core.scratch import scratch
from app.sandbox.base import ENV, CompletedCommand, OnOutput, SandboxSpec, SetupPlan
from app.sandbox.command import SandboxCommand
from app.sandbox.container.engine import ContainerEngine, discard
from app.sandbox.container.image import FILL, SCOPE, ContainerImage, ContainerSpec, arguments
from app.sandbox.container.sandbox import ContainerMachine, ContainerSandbox
from app.sandbox.egress.proxy import EgressProxy
from app.sandbox.egress.upstream import Upstream
from app.sandbox.machine.base import Machine
from app.sandbox.machine.packing import PackedTree, packing_tree
from app.sandbox.machine.socket_tunnel import socket_tunnel
from app.sandbox.machine.steps import CLEAR, COLLECT, NOTHING_ELSE, OPEN, SEAL, note_left_out, step
from app.sandbox.setup.layer_build import COMMAND_SECONDS, PORT, carry_out
from app.sandbox.setup.layers import exclusive_lock

MAX_SIZE = 4 * 1024**2
PLACE = "/run/agent-fix-files"
SYSTEM_CERTIFICATES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/ssl/ca-bundle.pem"),
    Path("/etc/ssl/cert.pem"),
)
"""Where distributions and macOS keep the machine's trusted certificates."""
CERTIFICATE_VARIABLES = (
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"),
    *("CARGO_HTTP_CAINFO", "PIP_CERT"),
)
"""Variables that name what a client trusts; no repository can set them."""
CERTIFICATES = frozenset({*CERTIFICATE_VARIABLES, "SSL_CERT_DIR", "npm_config_cafile"})
"""Variables that name a file of this machine, which commands after the set-up cannot use."""


async def copy_certificates(machine: Machine, environment: Mapping[str, str]) -> dict[str, str]:
    """A set-up's variables, with copies of the files that name certificates, or the system's if none is named."""
    variables = {name: value for name, value in environment.items() if name not in CERTIFICATES}
    for name in sorted(CERTIFICATES & environment.keys()):
        content = await asyncio.to_thread(_file, Path(environment[name]))
        if content is not None:
            variables[name] = f"{PLACE}/{name}"
            await machine.upload(variables[name], content)
    trusted = await asyncio.to_thread(_first, SYSTEM_CERTIFICATES)
    if trusted is not None:
        await machine.upload(f"{PLACE}/system", trusted)
        variables = {**dict.fromkeys(CERTIFICATE_VARIABLES, f"{PLACE}/system"), **variables}
    return variables


def _first(paths: Sequence[Path]) -> bytes | None:
    return next((content for path in paths if (content := _file(path)) is not None), None)


def _file(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.is_absolute() and path.is_file() and path.stat().st_size <= MAX_SIZE else None
    except (OSError, ValueError):
        return None


logger = logging.getLogger(__name__)
REPOSITORY = "agent-fix-setup"
UNUSED_SECONDS = 14 * 24 * 3600
MIN_NUMBER, NUMBERS = 20_000, 40_000


@dataclass(frozen=True, slots=True)
class ImageBuilder:
    """Builds images: `marks` is a directory with a file for each stored set-up, whose time is that of its last use."""

    engine: ContainerEngine
    image: ContainerImage
    scope: str
    marks: Path
    upstream: Upstream

    @asynccontextmanager
    async def new_container(self, wanted: ContainerSpec) -> AsyncIterator[ContainerMachine]:
        """A started and checked container, with nothing of the project yet; removed after an error."""
        machine = ContainerMachine(self.engine, wanted.name)
        finished = False
        try:
            await self.engine.create(wanted.arguments())
            await prove(self.engine, wanted)
            await self.engine.start(wanted.name)
            yield machine
            finished = True
        finally:
            if not finished:
                await discard(self.engine, wanted.name)

    async def image_with(
        self,
        base: str,
        spec: SandboxSpec,
        setup: SetupPlan | None,
        *,
        target: str = ENV,
        on_output: OnOutput | None = None,
    ) -> str:
        """The image with the set-up's result in `target`, made from `base`; `base` itself if there is nothing to do.

        Raises SetupError with the command, its exit code and the end of its output.
        """
        if setup is None or not setup.commands:
            return base
        facts = await self.engine.image(base)
        what = f"{self.scope} {(facts or {}).get('Id')} {setup.key or setup!r} {target}"
        name = hashlib.sha256(what.encode()).hexdigest()[:32]
        own = f"{name}-{hashlib.sha256(spec.key.partition('.')[0].encode()).hexdigest()[:8]}"
        async with exclusive_lock(self.marks / f"{name}.lock"):
            for kept in (name, own):
                if await self.engine.image(f"{REPOSITORY}:{kept}") is not None:
                    (self.marks / kept).touch()
                    return f"{REPOSITORY}:{kept}"
            kept = await self._build(base, replace(spec, setup=setup), target, (name, own), on_output)
            (self.marks / kept).touch()
        return f"{REPOSITORY}:{kept}"

    async def _build(
        self, base: str, spec: SandboxSpec, target: str, names: tuple[str, str], on_output: OnOutput | None
    ) -> str:
        """The name it is stored under: the second one, for this job alone, if a part failed."""
        setup = spec.setup or SetupPlan()
        wanted = ContainerSpec(
            f"agent-fix-setup-{secrets.token_hex(8)}",
            self.scope,
            spec.key,
            base,
            spec.limits,
            quota=self.engine.name == "docker",
        )
        async with packing_tree(spec.fill) as tree, self.new_container(wanted) as machine:
            await fill(machine, FILL, arguments(uid_of(wanted), tree.files), tree)
            await step(machine, OPEN, target)
            failed = await self._carry_out(machine, spec, setup, on_output)
            if target == ENV:
                await step(machine, COLLECT, *setup.directories)
                await note_left_out(machine, failed)
            else:
                await step(machine, SEAL, target)
            await step(machine, f"{CLEAR}; {NOTHING_ELSE}")
            changes = [f"LABEL {SCOPE}={self.scope}"]
            kept = names[bool(failed)]
            await self.engine.commit(wanted.name, f"{REPOSITORY}:{kept}", changes)
        await discard(self.engine, wanted.name)
        return kept

    async def _carry_out(
        self, machine: ContainerMachine, spec: SandboxSpec, setup: SetupPlan, on_output: OnOutput | None
    ) -> tuple[str, ...]:
        """The only time when anything is reachable: the named hosts, through our proxy."""
        proxy = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), f"http://127.0.0.1:{PORT}")
        direct = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
        variables = {**proxy, **direct, **await copy_certificates(machine, dict(setup.environment))}
        sandbox = ContainerSandbox(machine, spec.key, spec.limits, self.image.variables())

        async def execute(command: str) -> CompletedCommand:
            words = ["/bin/bash", "-e", "-o", "pipefail", "-c", command]
            return await sandbox.prepare(SandboxCommand(words, COMMAND_SECONDS, env=variables, on_output=on_output))

        with scratch("egress") as private:
            socket = private / "egress.sock"
            async with (
                EgressProxy(
                    socket, setup.hosts, upstream=self.upstream.url, no_proxy=self.upstream.no_proxy
                ) as proxy_server,
                socket_tunnel(machine, str(PORT), socket),
            ):
                return await carry_out(setup, execute, lambda: proxy_server.explanation)


async def forget_unused(engine: ContainerEngine, scope: str, marks: Path) -> int:
    """Remove the stored set-ups of `scope` that have been unused for long; returns how many.

    One without a mark gets one, so that losing the caches does not remove images early.
    """
    for image in await engine.images(f"{SCOPE}={scope}"):
        repository, _, name = image.rpartition(":")
        if repository.rpartition("/")[2] == REPOSITORY and not (marks / name).exists():
            (marks / name).touch()
    removed = 0
    for mark in await asyncio.to_thread(_unused, marks):
        try:
            await engine.remove_image(f"{REPOSITORY}:{mark.name}")
        except SandboxError as error:  # a container still uses it; the next sweep tries again
            logger.info("the set-up %s stays: %s", mark.name, error.message)
            continue
        mark.unlink(missing_ok=True)
        mark.with_suffix(".lock").unlink(missing_ok=True)
        removed += 1
    return removed


def _unused(marks: Path) -> list[Path]:
    oldest = time.time() - UNUSED_SECONDS
    kept = (path for path in marks.glob("*") if path.suffix != ".lock")
    return [path for path in kept if path.stat().st_mtime < oldest]


async def fill(machine: ContainerMachine, script: str, words: Sequence[str], tree: PackedTree) -> str:
    """The output of a script that gets the tree on its stdin."""
    tree.archive.seek(0)
    return await machine.feed(["bash", "-euo", "pipefail", "-c", script, "fill", *words], tree.archive)


async def prove(engine: ContainerEngine, wanted: ContainerSpec) -> None:
    """Raises SandboxError if the engine created a container with other properties than requested."""
    description = await engine.container(wanted.name)
    difference = wanted.difference(description) if description is not None else "it is gone"
    if difference:
        raise SandboxError(
            f"{engine.title} created a container with other properties than requested: {difference}.",
            hint=f"Check {engine.title}'s configuration: its defaults may add to what a container gets.",
        )


def uid_of(wanted: ContainerSpec) -> int:
    """The uid of its commands: process limits count by uid over all containers, so each has its own."""
    digest = hashlib.sha256(f"{wanted.scope} {wanted.name}".encode()).digest()
    return MIN_NUMBER + int.from_bytes(digest[:4], "big") % NUMBERS
