"""The account at E2B: finds machines by our tag, creates, connects and ends them; every call has a time limit."""

import asyncio
import io
import logging
import shlex
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, TypeVar

from e2b import AsyncSandbox
from e2b.connection_config import ApiParams
from e2b.exceptions import (
    AuthenticationException,
    NotFoundException,
    SandboxNotRunningException,
)
from e2b.sandbox.sandbox_api import SandboxInfo, SandboxNetworkOpts, SandboxNetworkUpdate, SandboxQuery, SnapshotInfo

from app.core.errors import AgentFixError, LostSandboxError, SandboxError, SetupError
from app.sandbox.egress.allow_list import address_of, is_internal_name, parse_rule
from app.sandbox.machine.base import AGAIN

if TYPE_CHECKING:
    from e2b.sandbox_async.commands.command_handle import AsyncCommandHandle

logger = logging.getLogger(__name__)
T = TypeVar("T")
SECONDS = 60.0
CANCEL_SECONDS = 5.0
"""How long a cancelled call may take to notice it."""
LOST = "The cloud sandbox is gone: it was killed, or its time ran out."


class LostMachineError(LostSandboxError):
    """The requested machine no longer exists."""


async def bounded(call: Coroutine[Any, Any, T], action: str, *, seconds: float = SECONDS) -> T:
    """The call's result. The SDK does not keep its own time limits on every Python, and raises bare exceptions.

    Raises SandboxError, or LostMachineError if the sandbox no longer exists.
    """
    task = asyncio.ensure_future(call)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=CANCEL_SECONDS)
    if not done:
        if task.done() and not task.cancelled():
            task.exception()  # reported as a time-out
        raise LostSandboxError(f"E2B did not answer within {seconds:.0f} s ({action}).", hint=AGAIN)
    error = task.exception()
    if error is None:
        return task.result()
    raise translated(error, action) from error


def translated(error: BaseException, action: str) -> BaseException:
    """As our own error; our errors and cancellations stay as they are."""
    match error:
        case AgentFixError():
            return error
        case SandboxNotRunningException() | NotFoundException():
            return LostMachineError(f"{LOST} ({action})", hint=AGAIN)
        case AuthenticationException():
            return SandboxError(f"E2B rejected the key ({action}).", hint="Set E2B_API_KEY to a valid key.")
        case Exception():
            return SandboxError(f"E2B failed ({action}): {str(error)[:300] or type(error).__name__}", hint=AGAIN)
        case _:
            return error


# Builds a cloud sandbox's network policy, and compares it with what the cloud reports.
# Nothing is reachable except a set-up's hosts while it runs. E2B's own defaults are open and an update clears what it
# leaves out, so each policy names everything.

EVERYTHING = "0.0.0.0/0"
_DEFAULT_DNS = ["8.8.8.8"]
"""The name server while hosts are allowed; E2B may or may not report it."""


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """Only `hosts` are reachable; nobody from outside reaches the sandbox without its token."""

    hosts: tuple[str, ...] = ()

    def at_creation(self) -> SandboxNetworkOpts:
        return {"allow_out": list(self.hosts), "deny_out": [EVERYTHING], "allow_public_traffic": False}

    def as_update(self) -> SandboxNetworkUpdate:
        return {"allow_out": list(self.hosts), "deny_out": [EVERYTHING], "rules": {}}

    def difference(self, internet: bool | None, network: Mapping[str, object]) -> str:
        """How the cloud's report differs from the policy; empty if it does not."""
        reported = {name: value for name, value in network.items() if value not in (None, [], {}, "")}
        reported.setdefault("allow_out", [])
        wanted: dict[str, object] = {**self.at_creation()}
        if reported.get("dns_servers") == _DEFAULT_DNS:
            del reported["dns_servers"]
        if internet and not self.hosts:
            return "the internet is allowed"
        names = sorted(wanted.keys() | reported.keys())
        return "; ".join(
            f"{name} is {reported.get(name)!r}, not {wanted.get(name)!r}"
            for name in names
            if _canonical(reported.get(name)) != _canonical(wanted.get(name))
        )


CLOSED = NetworkPolicy()


def during_setup(entries: Iterable[str]) -> NetworkPolicy:
    """The policy for these hosts, from SetupPlan.hosts. Raises SetupError for one that only this machine reaches."""
    hosts = []
    for entry in entries:
        host = parse_rule(entry).host
        if address_of(host) is not None or is_internal_name(host):
            raise SetupError(
                f"The set-up needs {entry}, which is on this machine or its network; a cloud sandbox cannot reach it.",
                hint="Configure a public package index, or use --sandbox bubblewrap.",
            )
        hosts.append(host)
    return NetworkPolicy(tuple(dict.fromkeys(hosts)))


def _canonical(value: object) -> object:
    return sorted(map(str, value)) if isinstance(value, list) else value


TAG = "agent-fix"
KEY = "agent-fix-key"
LIFETIME = 3600
"""Seconds that a machine lives after its last renewal; E2B then ends those that a dead process left."""
RENEWAL = 600.0
"""Seconds between two renewals of a machine's time to live."""
MAX_PAGES = 100
TEMPLATE_HINT = "Correct AGENT_FIX_E2B_TEMPLATE, or `e2b_template` in the repository's configuration."


@dataclass(frozen=True, slots=True)
class E2BAccount:
    """How to reach E2B; empty addresses mean E2B's own."""

    key: str
    api: str = ""
    sandboxes: str = ""
    domain: str = ""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "E2BAccount":
        names = ("E2B_API_KEY", "E2B_API_URL", "E2B_SANDBOX_URL", "E2B_DOMAIN")
        return cls(*(environment.get(name, "").strip() for name in names))

    @property
    def parameters(self) -> ApiParams:
        return ApiParams(
            api_key=self.key,
            api_url=self.api or None,
            sandbox_url=self.sandboxes or None,
            domain=self.domain or None,
            debug=False,
        )


WAITING = 16
"""Chunks of the library, of up to 4 MB each, that may wait to be read."""


@dataclass(slots=True)
class BufferedOutput:
    """Output that was not read yet; an empty chunk marks the end."""

    chunks: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    space: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(WAITING))

    async def add(self, text: str) -> None:
        """Called by the library; waiting here makes the sandbox wait."""
        await self.space.acquire()
        self.chunks.put_nowait(text)

    async def read(self) -> str:
        word = await self.chunks.get()
        if word:
            self.space.release()
        else:
            self.chunks.put_nowait("")
        return word


class E2BProgram:
    """An `app.sandbox.machine.base.MachineProgram`."""

    def __init__(self, handle: "AsyncCommandHandle[None]", output: BufferedOutput, seconds: float) -> None:
        self._handle = handle
        self._output = output
        self._seconds = seconds
        self._end: asyncio.Future[Any] = asyncio.ensure_future(handle.wait())
        self._end.add_done_callback(lambda _: output.chunks.put_nowait(""))

    async def read(self) -> bytes:
        return (await self._output.read()).encode("utf-8", "replace")

    async def write(self, content: bytes) -> None:
        await bounded(self._handle.send_stdin(content), "writing to a command", seconds=self._seconds)

    async def ended(self) -> None:
        await asyncio.wait({self._end})
        await bounded(self._handle.wait(), "executing a command", seconds=self._seconds)

    async def kill(self) -> None:
        await bounded(self._handle.kill(), "ending a command", seconds=self._seconds)

    async def release(self) -> None:
        if not self._end.done():
            with suppress(SandboxError):
                await bounded(self._handle.disconnect(), "leaving a command", seconds=self._seconds)
        self._end.cancel()
        await asyncio.wait({self._end})
        _ = self._end.cancelled() or self._end.exception()  # marks the exception as retrieved


class E2BMachine:
    """An `app.sandbox.machine.base.Machine`, whose time to live is renewed while it is used."""

    namespaces = True
    limits_commands = True
    text = True
    filters: Mapping[str, bytes] = MappingProxyType({})

    def __init__(self, cloud: "E2BCloud", sandbox: AsyncSandbox) -> None:
        self.sandbox = sandbox
        self._cloud = cloud
        self._renewed = time.monotonic()

    @property
    def id(self) -> str:
        return self.sandbox.sandbox_id

    @property
    def call_seconds(self) -> float:
        return min(SECONDS, self._cloud.seconds)

    async def start(self, argv: Sequence[str]) -> E2BProgram:
        output = BufferedOutput()
        starting = self.sandbox.commands.run(
            f"exec {shlex.join(argv)}",
            background=True,
            user="root",
            stdin=True,
            timeout=0,
            on_stdout=output.add,
            retain_output=False,
        )
        handle = await bounded(starting, "starting a command", seconds=self.call_seconds)
        return E2BProgram(handle, output, self.call_seconds)

    async def upload(self, path: str, content: bytes | BinaryIO) -> None:
        data = io.BytesIO(content) if isinstance(content, bytes) else content
        seconds = self._cloud.upload_seconds
        writing = self.sandbox.files.write(path, data, user="root", request_timeout=seconds)
        await bounded(writing, "sending files", seconds=seconds)

    async def apply(self, policy: NetworkPolicy) -> None:
        """Send the policy and check that it is in force; otherwise kill the machine."""
        async with self._cloud.discarding(self.id):
            update = self.sandbox.update_network(policy.as_update())
            await bounded(update, "setting its network", seconds=self._cloud.seconds)
        await self.prove(policy)

    async def prove(self, policy: NetworkPolicy) -> None:
        """Read the policy back. Kills the machine and raises SandboxError if it differs."""
        async with self._cloud.discarding(self.id):
            info = await bounded(self.sandbox.get_info(), "reading its network back", seconds=self._cloud.seconds)
            difference = policy.difference(info.allow_internet_access, dict(info.network or {}))
            if difference:
                raise SandboxError(
                    f"The network of the cloud sandbox is not as requested: {difference}.",
                    hint="It was killed before anything entered it. Use --sandbox bubblewrap, or ask E2B.",
                )

    @asynccontextmanager
    async def kept_alive(self, seconds: float) -> AsyncIterator[None]:
        """Renew its time now if needed, and repeatedly: other agents work for longer than the maximum."""
        age = time.monotonic() - self._renewed
        if age > self._cloud.renewal or age + seconds > LIFETIME:
            await self._renew()
        renewing = asyncio.create_task(self._renew_repeatedly())
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.wait({renewing})

    async def _renew_repeatedly(self) -> None:
        while True:
            await asyncio.sleep(self._cloud.renewal)
            with suppress(SandboxError):  # a command in a lost machine reports that itself
                await self._renew()

    async def _renew(self) -> None:
        await bounded(self.sandbox.set_timeout(LIFETIME), "prolonging its time", seconds=self._cloud.seconds)
        self._renewed = time.monotonic()

    async def suspend(self) -> None:
        """A paused machine costs nothing and keeps its files."""
        with suppress(LostMachineError):
            await bounded(self.sandbox.pause(), "pausing the sandbox", seconds=self._cloud.seconds)

    async def remove(self) -> None:
        await self._cloud.kill(self.id)

    async def snapshot(self, name: str) -> str:
        """The id for creating machines that start from this one."""
        taking = self.sandbox.create_snapshot(name=name)
        return (await bounded(taking, "keeping the set-up", seconds=self._cloud.upload_seconds)).snapshot_id


class E2BPages(Protocol[T]):
    """What the library lists in pages."""

    @property
    def has_next(self) -> bool: ...

    def next_items(self) -> Coroutine[Any, Any, list[T]]: ...


@dataclass(frozen=True, slots=True)
class E2BCloud:
    """`scope` separates the machines of this installation from others with the same account.

    `template` is what machines are made of; empty for E2B's own.
    """

    account: E2BAccount
    scope: str
    seconds: float = SECONDS
    upload_seconds: float = 600.0
    renewal: float = RENEWAL
    template: str = ""

    async def find(self, key: str = "") -> list[SandboxInfo]:
        """Our machines with that key, or all of ours: running or paused."""
        metadata = {TAG: self.scope, **({KEY: key} if key else {})}
        pages = AsyncSandbox.list(query=SandboxQuery(metadata=metadata), limit=100, **self.account.parameters)
        found = await self._all(pages, "asking for sandboxes")
        # Whatever a server does with a query, machines that are not ours are not touched.
        return [info for info in found if metadata.items() <= info.metadata.items()]

    async def create(self, key: str, snapshot: str = "") -> E2BMachine:
        """A new machine without network, of the template or a snapshot, checked; killed if the check fails."""
        making = AsyncSandbox.create(
            snapshot or self.template or None,
            timeout=LIFETIME,
            metadata={TAG: self.scope, KEY: key},
            allow_internet_access=False,
            network=CLOSED.at_creation(),
            lifecycle={"on_timeout": "kill"},
            **self.account.parameters,
        )
        try:
            machine = E2BMachine(self, await bounded(making, "making a sandbox", seconds=self.seconds))
        except SandboxError as error:
            if snapshot or not self.template or not str(error.__cause__).startswith("404"):
                raise
            message = f"The E2B account has no template {self.template!r}."
            raise SandboxError(message, hint=TEMPLATE_HINT) from error
        await machine.prove(CLOSED)
        return machine

    async def connect(self, sandbox_id: str) -> E2BMachine:
        """Connect to a running or paused machine, which is resumed. Its policy must still be checked."""
        connecting = AsyncSandbox.connect(sandbox_id, timeout=LIFETIME, **self.account.parameters)
        return E2BMachine(self, await bounded(connecting, "connecting to a sandbox", seconds=self.seconds))

    async def kill(self, sandbox_id: str) -> None:
        """End a machine. Idempotent."""
        killing = AsyncSandbox.kill(sandbox_id, **self.account.parameters)
        with suppress(LostMachineError):
            await bounded(killing, "ending the sandbox", seconds=self.seconds)

    @asynccontextmanager
    async def discarding(self, sandbox_id: str) -> AsyncIterator[None]:
        """Kill that machine if the block fails."""
        finished = False
        try:
            yield
            finished = True
        finally:
            if not finished:
                try:
                    await self.kill(sandbox_id)
                except SandboxError as error:  # its time to live ends it
                    logger.warning("the sandbox %s could not be killed: %s", sandbox_id, error.message)

    async def snapshots(self) -> list[SnapshotInfo]:
        """All snapshots of the account."""
        pages = AsyncSandbox.list_snapshots(limit=100, **self.account.parameters)
        return await self._all(pages, "asking for kept set-ups")

    async def remove_snapshot(self, snapshot_id: str) -> None:
        """Remove a snapshot. Idempotent."""
        removing = AsyncSandbox.delete_snapshot(snapshot_id, **self.account.parameters)
        await bounded(removing, "removing a kept set-up", seconds=self.seconds)

    async def _all(self, pages: "E2BPages[T]", action: str) -> list[T]:
        found: list[T] = []
        for _ in range(MAX_PAGES):
            found += await bounded(pages.next_items(), action, seconds=self.seconds)
            if not pages.has_next:
                break
        return found
