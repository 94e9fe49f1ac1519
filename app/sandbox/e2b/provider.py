"""Opens sandboxes at E2B (found by tag, or created, filled and prepared), and stores set-ups there as snapshots.

A snapshot instead of a template of E2B's builder, because the builder runs its steps with open internet access, and a
repository's set-up is foreign code that may reach package hosts only.
"""

import hashlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from app.core.errors import SandboxError
from app.sandbox.base import (
    ENV,
    FORWARDER,
    FORWARDER_PROGRAM,
    NO_SETUP,
    SYSTEM_PATH,
    TOOLS,
    WORK_ENVIRONMENT,
    DoctorCheck,
    OnOutput,
    Sandbox,
    SandboxLimits,
    SandboxSpec,
    SetupPlan,
    base_variables,
)
from app.sandbox.e2b.cloud import (
    CLOSED,
    KEY,
    RENEWAL,
    SECONDS,
    TAG,
    E2BAccount,
    E2BCloud,
    E2BMachine,
    LostMachineError,
    during_setup,
)
from app.sandbox.host_directories import check_key
from app.sandbox.machine.base import (
    ARCHIVE,
    FINISH,
    OPEN,
    PLACE,
    PREPARE,
    UNPACK,
    PackedTree,
    keep_result,
    packing_tree,
    parse_result,
    prepare_arguments,
    reopen,
    step,
)
from app.sandbox.machine.sandbox import MachineSandbox
from app.sandbox.setup.run_commands import SetupResult, carry_out, to_repeat

logger = logging.getLogger(__name__)
DAYS = 30
"""How long a set-up is used before it is made again, to get new versions of unpinned packages and to limit storage."""


class SetupSnapshots:
    """A snapshot's name at E2B contains our scope, its day and its digest; `directory` holds the ids made here.

    So workers with the same scope share set-ups, and a snapshot is found and removed even if its maker is gone.
    """

    def __init__(self, cloud: E2BCloud, directory: Path, now: Callable[[], float] = time.time) -> None:
        self._cloud = cloud
        self._directory = directory
        self._now = now
        self._prefix = f"{TAG}-{cloud.scope[:12]}-"

    def note_use(self) -> None:
        """Also shows that there is something to sweep."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def find(self, setups: Sequence[SetupPlan]) -> str:
        """The id of their result; empty if there is none or it is too old."""
        record = self._record(setups)
        with suppress(FileNotFoundError):
            return "" if self._old(self._made(record)) else record.read_text("utf-8")
        try:
            listed = await self._listed()
        except SandboxError as error:  # a set-up that is not found is made again
            logger.warning("stored set-ups cannot be listed: %s", error.message)
            return ""
        digest = self._digest(setups)
        found = [(day, name) for name, day, made_of in listed if made_of == digest and not self._old(day)]
        return max(found)[1] if found else ""

    async def keep(self, machine: E2BMachine, setups: Sequence[SetupPlan]) -> None:
        """Let the next job start from this machine; on failure the next one prepares again."""
        name = f"{self._prefix}{self._today():%Y%m%d}-{self._digest(setups)}"
        try:
            snapshot = await machine.snapshot(name)
        except SandboxError as error:
            logger.warning("the set-up is not stored for the next job: %s", error.message)
            return
        record = self._record(setups)
        partial = record.with_suffix(".partial")
        partial.write_text(snapshot, "utf-8")
        os.utime(partial, (self._now(), self._now()))
        partial.rename(record)

    def forget(self, setups: Sequence[SetupPlan]) -> None:
        self._record(setups).unlink(missing_ok=True)

    async def sweep(self) -> int:
        """Remove those that are too old, whoever of this scope made them; returns how many."""
        old = {name for name, day, _ in await self._listed() if self._old(day)}
        records = [record for record in self._directory.glob("*") if self._old(self._made(record))]
        old |= {record.read_text("utf-8") for record in records if not record.suffix}
        for name in sorted(old):
            await self._cloud.remove_snapshot(name)
        for record in records:
            record.unlink(missing_ok=True)
        return len(old)

    async def _listed(self) -> list[tuple[str, date, str]]:
        """Id, day and digest of all snapshots with our name."""
        found = []
        for snapshot in await self._cloud.snapshots():
            for name in snapshot.names:
                plain = name.rpartition("/")[2].partition(":")[0]
                day, _, digest = plain.removeprefix(self._prefix).partition("-")
                with suppress(ValueError):
                    if plain.startswith(self._prefix):
                        made = datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC).date()
                        found.append((snapshot.snapshot_id, made, digest))
        return found

    def _digest(self, setups: Sequence[SetupPlan]) -> str:
        template = (f"template {self._cloud.template}",) if self._cloud.template else ()
        keys = "\n".join((*template, *(setup.key or repr(setup) for setup in setups)))
        return hashlib.sha256(keys.encode()).hexdigest()[:32]

    def _record(self, setups: Sequence[SetupPlan]) -> Path:
        return self._directory / self._digest(setups)

    def _made(self, record: Path) -> date:
        return datetime.fromtimestamp(record.stat().st_mtime, UTC).date()

    def _today(self) -> date:
        return datetime.fromtimestamp(self._now(), UTC).date()

    def _old(self, made: date) -> bool:
        return self._today() - made > timedelta(days=DAYS)


# Creates a machine at E2B: starts from a stored one, prepares and fills it, and only then marks it ready.
# base ─► another agent's programs (TOOLS), kept ─► the project's set-up (ENV), kept ─► the tree ─► ready

NUMBER = 1500
"""The uid of the agent's account."""
PREPARE_MACHINE = f"""{PREPARE}
find /usr/local /opt -xdev -perm /022 ! -type l -exec chmod go-w -- '{{}}' + 2> /dev/null || true
"""
"""What root executes must be writable by root only; a template may be lax about /usr/local, where its Python is."""


def variables(setup: SetupPlan) -> dict[str, str]:
    """Every variable of a command, without those of the single command."""
    return {**base_variables(*SYSTEM_PATH), **dict(setup.environment)}


@dataclass(frozen=True, slots=True)
class MachineCreation:
    """Creates one machine for `spec`."""

    cloud: E2BCloud
    kept: SetupSnapshots
    spec: SandboxSpec
    on_output: OnOutput | None = None

    async def machine(self) -> "Found":
        """A ready machine; it is killed after an error."""
        setups = [setup for setup in (self.spec.tools, self.spec.setup) if setup.commands]
        machine, done = await self._start_machine(setups)
        async with self.cloud.discarding(machine.id):
            for number, setup in enumerate(setups[done:], done + 1):
                target = TOOLS if setup is self.spec.tools else ENV
                if not to_repeat(await self._set_up(machine, setup, target)):
                    await self.kept.keep(machine, setups[:number])
            async with packing_tree(self.spec.begin_work) as tree:
                return machine, parse_result(await self._fill(machine, FINISH, tree))

    async def _start_machine(self, setups: Sequence[SetupPlan]) -> tuple[E2BMachine, int]:
        """A machine, and how many of the set-ups it already contains."""
        gone = []
        for done in range(len(setups), 0, -1):
            snapshot = await self.kept.find(setups[:done])
            if not snapshot:
                continue
            try:
                machine = await self.cloud.create(self.spec.key, snapshot)
            except SandboxError as error:
                logger.info("the stored set-up cannot be used: %s", error.message)
                gone.append(setups[:done])
            else:
                return machine, done
        machine = await self.cloud.create(self.spec.key)
        for unusable in gone:
            self.kept.forget(unusable)
        return machine, 0

    async def _fill(self, machine: E2BMachine, script: str, tree: PackedTree, *target: str) -> str:
        """The output of a script that is run after the machine was prepared and filled."""
        await machine.upload(ARCHIVE, tree.archive)
        arguments = prepare_arguments(NUMBER, tree.files, *target)
        return await step(machine, f"{PREPARE_MACHINE}{UNPACK}{script}", *arguments)

    async def _set_up(self, machine: E2BMachine, setup: SetupPlan, target: str) -> tuple[str, ...]:
        """Fill `target`, for the project (ENV) over a tree that is deleted afterwards; returns what failed."""
        if target == ENV:
            async with packing_tree(self.spec.fill) as tree:
                await self._fill(machine, OPEN, tree, target)
        else:
            await step(machine, f"{PREPARE_MACHINE}{OPEN}", *prepare_arguments(NUMBER, 0, target))
        sandbox = MachineSandbox(machine, self.spec.key, self.spec.limits, variables(setup), network=True)
        policy = during_setup(setup.hosts)
        # The only time when anything is reachable: the named hosts. A machine that fails meanwhile is ended.
        if policy != CLOSED:
            await machine.apply(policy)
        failed = await carry_out(setup, sandbox, self.on_output)
        if policy != CLOSED:
            await machine.apply(CLOSED)
        return await keep_result(machine, target, failed)


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
    environment = {**variables(NO_SETUP), **WORK_ENVIRONMENT}
    sandbox = MachineSandbox(machine, DOCTOR, SandboxLimits(memory=MEMORY_TAKEN // 4), environment, network=False)
    open_wide = MachineSandbox(machine, DOCTOR, SandboxLimits(), environment, network=True)
    try:
        await step(machine, PREPARE_MACHINE, *prepare_arguments(NUMBER, 0))
        grouped = (await step(machine, f"{HAS_MEMORY_GROUP} || true")).strip() == "1"
        return (account, closed, await _network(open_wide), await _account(sandbox), await _memory(sandbox, grouped))
    except SandboxError as error:
        repair = "The default template of your account needs bash, python3, tar, find and util-linux."
        return (account, closed, DoctorCheck("commands", ok=False, detail=error.message, repair=repair))
    finally:
        await sandbox.destroy()


async def _memory(sandbox: Sandbox, grouped: bool) -> DoctorCheck:
    """The machine itself has a limit above this one, which E2B enforces."""
    taken = await sandbox.exec(["python3", "-I", "-c", TAKE_MEMORY], timeout=60)
    how = "for its processes together, by a control group" if grouped else "for each of its processes"
    return DoctorCheck(
        "memory",
        ok=not taken.ok,
        detail=f"a command is limited: {how}" if not taken.ok else "a command got four times its limit",
        repair="Use a template whose memory is no more than a job may use.",
    )


async def _network(sandbox: Sandbox) -> DoctorCheck:
    """The machine's own network; a job's commands have none, whatever this reaches."""
    reached = await sandbox.exec(["python3", "-I", "-c", PRINT_REACHABLE], timeout=30)
    answering = ", ".join(reached.output.decode(errors="replace").split())
    return DoctorCheck(
        "network",
        ok=reached.ok and not answering,
        detail=f"reached {answering}" if answering else "no address answers",
        repair="Do not use this account: its sandboxes have network access. Use --sandbox bubblewrap.",
    )


async def _account(sandbox: Sandbox) -> DoctorCheck:
    rights = await sandbox.exec(["/bin/sh", "-c", PRINT_RIGHTS])
    words = rights.output.decode(errors="replace").split()
    return DoctorCheck(
        "account inside",
        ok=len(words) == 1 and words != ["0"],
        detail=f"commands run as user {words[0] if words else '?'}, "
        + (f"which may use or write {', '.join(words[1:])[:200]}" if words[1:] else "without more rights"),
        repair="Use E2B's base template, or --sandbox bubblewrap.",
    )


Found = tuple[E2BMachine, SetupResult]
"""A machine, and what is known of its set-up."""


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
        seconds: float = SECONDS,
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
        check_key(spec.key)
        if not self._cloud.account.key:
            raise SandboxError("E2B_API_KEY is not set.", hint=KEY_REPAIR)
        self._kept.note_use()
        found = await self._reopen(spec.key)
        machine, result = found or await MachineCreation(self._cloud, self._kept, spec, on_output).machine()
        if spec.model_socket is not None:
            await machine.upload(FORWARDER, FORWARDER_PROGRAM.read_bytes())
        return MachineSandbox(
            machine,
            spec.key,
            spec.limits,
            {**variables(spec.setup), **WORK_ENVIRONMENT},
            result=result,
            model_socket=spec.model_socket,
            network=False,
        )

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
            result = await reopen(machine)
        except LostMachineError:
            return None
        if result is None:
            logger.warning("the sandbox %s was never finished; it is created again", key)
            return None  # its network may still be open, because its set-up was interrupted
        await machine.prove(CLOSED)
        return machine, result
