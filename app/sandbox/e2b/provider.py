"""Opens sandboxes at E2B: finds them by tag, or creates, fills and prepares them."""

import hashlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

from e2b import AsyncSandbox

from app.core.errors import SandboxError
from app.sandbox.base import FORWARDER, DoctorCheck, OnOutput, Sandbox, SandboxLimits, SandboxSpec
from app.sandbox.bubblewrap.profile import SYSTEM_PATH
from app.sandbox.e2b.calls import LostMachineError
from app.sandbox.e2b.cloud import KEY, RENEWAL, E2BAccount, E2BCloud
from app.sandbox.e2b.creation import MachineCreation
from app.sandbox.e2b.policy import CLOSED
from app.sandbox.e2b.program import E2BMachine
from app.sandbox.e2b.sandbox import E2BSandbox
from app.sandbox.e2b.scripts import PREPARE_MACHINE, REOPEN, UNREADY, arguments
from app.sandbox.e2b.snapshots import SetupSnapshots
from app.sandbox.host_directories import KEY as KEY_FORM
from app.sandbox.machine.execution import PLACE
from app.sandbox.machine.steps import notes, step
from app.sandbox.setup.layer_build import FORWARDER_PROGRAM

KEY_REPAIR = "Set E2B_API_KEY to a key of your E2B account, or use --sandbox bubblewrap."
DOCTOR = "doctor"
PRINT_REACHABLE = (
    "import socket\n"
    "for family, address in ((socket.AF_INET, '1.1.1.1'), (socket.AF_INET6, '2606:4700:4700::1111'),"
    " (socket.AF_INET, '169.254.169.254')):\n"
    "    try:\n"
    "        with socket.socket(family) as line:\n"
    "            line.settimeout(3)\n"
    "            line.connect((address, 80))\n"
    "            print(address)\n"
    "    except OSError:\n"
    "        pass\n"
)
"""Prints each address that answers."""
PRINT_RIGHTS = f"""
id -u
ls {PLACE} 2> /dev/null
sudo -n id -u 2> /dev/null
library=$(python3 -c 'import os; print(os.__file__)')
for place in {" ".join(SYSTEM_PATH)} "$(realpath "$(command -v python3)")" "$library"; do
  [ ! -w "$place" ] || echo "$place"
done
"""
"""The account's number, and anything it may do that it should not."""
MEMORY_TAKEN = 512 * 1024**2
TAKE_MEMORY = f"print(len(b'x' * {MEMORY_TAKEN}))"
"""Written to, because a control group counts only used memory."""
HAS_MEMORY_GROUP = "[ ! -e /sys/fs/cgroup/cgroup.controllers ] || grep -cw memory /sys/fs/cgroup/cgroup.controllers"


async def checks(cloud: E2BCloud) -> tuple[DoctorCheck, ...]:
    """Creates a machine and kills it."""
    if not cloud.account.key:
        return (DoctorCheck("key", ok=False, detail="E2B_API_KEY is not set", repair=KEY_REPAIR),)
    try:
        await cloud.find(DOCTOR)
    except SandboxError as error:
        return (DoctorCheck("account", ok=False, detail=error.message, repair=error.hint or KEY_REPAIR),)
    account = DoctorCheck("account", ok=True, detail="the key is valid")
    try:
        machine = await cloud.create(DOCTOR)
    except SandboxError as error:
        repair = error.hint or "Check the limits of your E2B account."
        return (account, DoctorCheck("start", ok=False, detail=error.message, repair=repair))
    closed = DoctorCheck("network policy", ok=True, detail="as requested: nothing is reachable")
    sandbox = E2BSandbox(cloud, machine, DOCTOR, SandboxLimits(memory=MEMORY_TAKEN // 4))
    try:
        await step(E2BMachine(cloud, machine), PREPARE_MACHINE, *arguments(0))
        grouped = (await step(E2BMachine(cloud, machine), f"{HAS_MEMORY_GROUP} || true")).strip() == "1"
        open_wide = E2BSandbox(cloud, machine, DOCTOR, SandboxLimits(), network=True)
        return (account, closed, await _network(open_wide), await _account(sandbox), await _memory(sandbox, grouped))
    except SandboxError as error:
        repair = "The default template of your account needs bash, python3, tar, find and util-linux."
        return (account, closed, DoctorCheck("commands", ok=False, detail=error.message, repair=repair))
    finally:
        await sandbox.destroy()


async def _memory(sandbox: E2BSandbox, grouped: bool) -> DoctorCheck:
    """The machine itself has a limit above this one, which E2B enforces."""
    taken = await sandbox.exec(["python3", "-I", "-c", TAKE_MEMORY], timeout=60)
    how = "for its processes together, by a control group" if grouped else "for each of its processes"
    return DoctorCheck(
        "memory",
        ok=not taken.ok,
        detail=f"a command is limited: {how}" if not taken.ok else "a command got four times its limit",
        repair="Use a template whose memory is no more than a job may use.",
    )


async def _network(sandbox: E2BSandbox) -> DoctorCheck:
    """The machine's own network; a job's commands have none, whatever this reaches."""
    reached = await sandbox.exec(["python3", "-I", "-c", PRINT_REACHABLE], timeout=30)
    answering = ", ".join(reached.output.decode(errors="replace").split())
    return DoctorCheck(
        "network",
        ok=reached.ok and not answering,
        detail=f"reached {answering}" if answering else "no address answers",
        repair="Do not use this account: its sandboxes have network access. Use --sandbox bubblewrap.",
    )


async def _account(sandbox: E2BSandbox) -> DoctorCheck:
    rights = await sandbox.exec(["/bin/sh", "-c", PRINT_RIGHTS])
    words = rights.output.decode(errors="replace").split()
    return DoctorCheck(
        "account inside",
        ok=len(words) == 1 and words != ["0"],
        detail=f"commands run as user {words[0] if words else '?'}, "
        + (f"which may use or write {', '.join(words[1:])[:200]}" if words[1:] else "without more rights"),
        repair="Use E2B's base template, or --sandbox bubblewrap.",
    )


Found = tuple[AsyncSandbox, tuple[str, ...]]
"""A machine, and what failed in its set-up."""
logger = logging.getLogger(__name__)


class E2BProvider:
    """`scope` separates this installation from others with the same account; `caches` holds the names of set-ups."""

    name = "e2b"

    def __init__(
        self,
        account: E2BAccount,
        *,
        scope: str,
        caches: Path,
        template: str = "",
        seconds: float = 60.0,
        upload_seconds: float = 600.0,
        renewal: float = RENEWAL,
        now: Callable[[], float] = time.time,
    ) -> None:
        ours = hashlib.sha256(scope.encode()).hexdigest()[:32]
        self._cloud = E2BCloud(
            account, ours, seconds=seconds, upload_seconds=upload_seconds, renewal=renewal, template=template
        )
        self._kept = SetupSnapshots(self._cloud, caches / "e2b", now)

    async def check(self) -> tuple[DoctorCheck, ...]:
        return await checks(self._cloud)

    async def open(self, spec: SandboxSpec, *, on_output: OnOutput | None = None) -> Sandbox:
        if not KEY_FORM.fullmatch(spec.key):
            raise SandboxError(f"A sandbox key may only contain letters, digits and ._:@=+-, not {spec.key!r}.")
        if not self._cloud.account.key:
            raise SandboxError("E2B_API_KEY is not set.", hint=KEY_REPAIR)
        self._kept.note_use()
        found = await self._reopen(spec.key)
        machine, left_out = found or await MachineCreation(self._cloud, self._kept, spec, on_output).machine()
        if spec.model_socket is not None:
            await self._cloud.upload(machine, FORWARDER, FORWARDER_PROGRAM.read_bytes())
        sandbox = E2BSandbox(self._cloud, machine, spec.key, spec.limits, spec.setup, model_socket=spec.model_socket)
        sandbox.left_out = left_out
        return sandbox

    async def sweep(self, ended: Callable[[str], bool]) -> int:
        """Kill the machines of ended jobs, and remove old set-ups; returns how many."""
        gone = [info for info in await self._cloud.find() if ended(info.metadata.get(KEY, ""))]
        for info in gone:
            await self._cloud.kill(info.sandbox_id)
        return len(gone) + await self._kept.sweep()

    async def _reopen(self, key: str) -> Found | None:
        """The machine of that key, if it was completed; an incomplete one is killed."""
        found = None
        for info in await self._cloud.find(key):
            reached = await self._reach(info.sandbox_id, key) if found is None else None
            if reached is None:
                await self._cloud.kill(info.sandbox_id)
            found = found or reached
        return found

    async def _reach(self, sandbox_id: str, key: str) -> Found | None:
        try:
            machine = await self._cloud.connect(sandbox_id)
            answer = await step(E2BMachine(self._cloud, machine), REOPEN)
        except LostMachineError:
            return None
        if answer.strip() == UNREADY:
            logger.warning("the sandbox %s was never finished; it is created again", key)
            return None  # its network may still be open, because its set-up was interrupted
        await self._cloud.prove(machine, CLOSED)
        return machine, notes(answer)
