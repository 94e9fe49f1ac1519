"""The account at E2B: finds machines by our tag, creates, connects and ends them; every call has a time limit."""

import asyncio
import io
import logging
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, TypeVar

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
from app.sandbox.machine.execution import AGAIN

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
        wanted: dict[str, object] = {
            "allow_out": list(self.hosts),
            "deny_out": [EVERYTHING],
            "allow_public_traffic": False,
        }
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


logger = logging.getLogger(__name__)
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


class E2BPages(Protocol[T]):
    """What the library lists in pages."""

    @property
    def has_next(self) -> bool: ...

    def next_items(self) -> Coroutine[Any, Any, list[T]]: ...


class E2BCloud:
    """`scope` separates the machines of this installation from others with the same account."""

    def __init__(
        self,
        account: E2BAccount,
        scope: str,
        *,
        seconds: float = 60.0,
        upload_seconds: float = 600.0,
        renewal: float = RENEWAL,
        template: str = "",
    ) -> None:
        """`template` is what machines are made of; empty for E2B's own."""
        self.account = account
        self.template = template
        self.renewal = renewal
        self.scope = scope
        self.seconds = seconds
        self.upload_seconds = upload_seconds

    async def find(self, key: str = "") -> list[SandboxInfo]:
        """Our machines with that key, or all of ours: running or paused."""
        metadata = {TAG: self.scope, **({KEY: key} if key else {})}
        pages = AsyncSandbox.list(query=SandboxQuery(metadata=metadata), limit=100, **self.account.parameters)
        found = await self._all(pages, "asking for sandboxes")
        # Whatever a server does with a query, machines that are not ours are not touched.
        return [info for info in found if metadata.items() <= info.metadata.items()]

    async def create(self, key: str, snapshot: str = "") -> AsyncSandbox:
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
            machine = await bounded(making, "making a sandbox", seconds=self.seconds)
        except SandboxError as error:
            if snapshot or not self.template or not str(error.__cause__).startswith("404"):
                raise
            message = f"The E2B account has no template {self.template!r}."
            raise SandboxError(message, hint=TEMPLATE_HINT) from error
        await self.prove(machine, CLOSED)
        return machine

    async def connect(self, sandbox_id: str) -> AsyncSandbox:
        """Connect to a running or paused machine, which is resumed. Its policy must still be checked."""
        connecting = AsyncSandbox.connect(sandbox_id, timeout=LIFETIME, **self.account.parameters)
        return await bounded(connecting, "connecting to a sandbox", seconds=self.seconds)

    async def apply(self, machine: AsyncSandbox, policy: NetworkPolicy) -> None:
        """Send the policy and check that it is in force; otherwise kill the machine."""
        async with self.discarding(machine.sandbox_id):
            await bounded(machine.update_network(policy.as_update()), "setting its network", seconds=self.seconds)
        await self.prove(machine, policy)

    async def prove(self, machine: AsyncSandbox, policy: NetworkPolicy) -> None:
        """Read the policy back. Kills the machine and raises SandboxError if it differs."""
        async with self.discarding(machine.sandbox_id):
            info = await bounded(machine.get_info(), "reading its network back", seconds=self.seconds)
            refuse(policy.difference(info.allow_internet_access, dict(info.network or {})))

    async def extend_lifetime(self, machine: AsyncSandbox) -> None:
        await bounded(machine.set_timeout(LIFETIME), "prolonging its time", seconds=self.seconds)

    async def pause(self, machine: AsyncSandbox) -> None:
        """A paused machine costs nothing and keeps its files."""
        await bounded(machine.pause(), "pausing the sandbox", seconds=self.seconds)

    async def kill(self, sandbox_id: str) -> None:
        """End a machine. Idempotent."""
        try:
            await bounded(
                AsyncSandbox.kill(sandbox_id, **self.account.parameters), "ending the sandbox", seconds=self.seconds
            )
        except LostMachineError:
            return

    @asynccontextmanager
    async def discarding(self, sandbox_id: str) -> AsyncIterator[None]:
        """Kill that machine if the block fails."""
        async with AsyncExitStack() as unfinished:
            unfinished.push_async_callback(self.discard, sandbox_id)
            yield
            unfinished.pop_all()

    async def discard(self, sandbox_id: str) -> None:
        """Kill it after an error; if that fails too, its time to live ends it."""
        try:
            await self.kill(sandbox_id)
        except SandboxError as error:
            logger.warning("the sandbox %s could not be killed: %s", sandbox_id, error.message)

    async def upload(self, machine: AsyncSandbox, path: str, content: bytes | BinaryIO) -> None:
        """Write a file as root."""
        data = io.BytesIO(content) if isinstance(content, bytes) else content
        writing = machine.files.write(path, data, user="root", request_timeout=self.upload_seconds)
        await bounded(writing, "sending files", seconds=self.upload_seconds)

    async def snapshot(self, machine: AsyncSandbox, name: str) -> str:
        """The id for creating machines that start from this one."""
        taken = await bounded(machine.create_snapshot(name=name), "keeping the set-up", seconds=self.upload_seconds)
        return taken.snapshot_id

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


def refuse(difference: str) -> None:
    if difference:
        raise SandboxError(
            f"The network of the cloud sandbox is not as requested: {difference}.",
            hint="It was killed before anything entered it. Use --sandbox bubblewrap, or ask E2B.",
        )
