"""Control groups: real ones where this machine lets us, and every way in which there may be none."""

import os
import subprocess
from pathlib import Path

import pytest

from app.sandbox.base import SandboxLimits
from app.sandbox.bubblewrap import cgroup
from app.sandbox.bubblewrap.cgroup import Cgroup, make_cgroup, sweep
from app.sandbox.bubblewrap.command import limit_processors

LIMITS = SandboxLimits(memory=64 * 1024**2, processes=10)
VERSION_1 = "8:pids:/own\n4:memory:/own\n1:name=systemd:/\n0::/\n"
VERSION_2 = "0::/user.slice/session.scope\n"


def membership(tmp_path: Path, text: str) -> Path:
    (tmp_path / "self").write_text(text)
    return tmp_path / "self"


def test_a_real_group_has_the_limits_and_goes_away() -> None:
    group = make_cgroup(LIMITS)
    if group is None:
        pytest.skip("no writable control groups here")
    values = {path.name: path.read_text().strip() for place in group.directories for path in place.glob("*max")}
    values |= {
        path.name: path.read_text().strip() for place in group.directories for path in place.glob("*limit_in_bytes")
    }
    assert values["pids.max"] == str(LIMITS.processes + cgroup.OWN_PROCESSES)
    assert str(LIMITS.memory) in {values.get("memory.max"), values.get("memory.limit_in_bytes")}
    assert group.remove()
    assert not any(place.exists() for place in group.directories)
    assert group.remove()


@pytest.mark.parametrize(("events", "refused"), [("max 0\n", False), ("max 3\n", True), (None, False)])
def test_a_group_tells_whether_a_process_was_refused(tmp_path: Path, events: str | None, *, refused: bool) -> None:
    if events is not None:
        (tmp_path / "pids.events").write_text(events)
    assert Cgroup((tmp_path,)).refused() is refused


def test_two_groups_are_two() -> None:
    groups = [make_cgroup(LIMITS) for _ in range(2)]
    if groups[0] is None or groups[1] is None:
        pytest.skip("no writable control groups here")
    assert groups[0].directories != groups[1].directories
    assert all(group.remove() for group in groups if group is not None)


@pytest.mark.parametrize("text", ["", VERSION_1, VERSION_2, "nonsense", "0::/\n", "4:memory:/\n"])
def test_a_hierarchy_without_controllers_gives_none_and_keeps_nothing(tmp_path: Path, text: str) -> None:
    """Plain directories: they can be made, but have no file that limits anything."""
    mount = tmp_path / "cgroup"
    for place in ("memory/own", "pids/own", "user.slice/session.scope"):
        (mount / place).mkdir(parents=True)
    before = sorted(mount.rglob("*"))
    assert make_cgroup(LIMITS, mount=mount, own=membership(tmp_path, text)) is None
    assert sorted(mount.rglob("*")) == before


def test_no_hierarchy_at_all(tmp_path: Path) -> None:
    assert make_cgroup(LIMITS, mount=tmp_path / "absent", own=tmp_path / "absent") is None


def test_a_process_that_is_gone_cannot_join() -> None:
    group = make_cgroup(LIMITS)
    if group is None:
        pytest.skip("no writable control groups here")
    ended = subprocess.Popen(["/bin/true"])
    ended.wait()
    with pytest.raises(ProcessLookupError):
        group.join(ended.pid)
    assert group.remove()


def test_groups_of_dead_processes_are_swept_and_others_stay(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    dead, alive, other = (mount / "memory" / "own" / name for name in ("agent-fix-99999999-0", "agent-fix-1-0", "x"))
    for place in (dead, alive, other):
        place.mkdir(parents=True)
    sweep(mount=mount, own=membership(tmp_path, VERSION_1))
    assert not dead.exists()
    assert alive.exists()
    assert other.exists()
    sweep(mount=mount, own=tmp_path / "absent")


def test_processor_time_is_limited_where_the_machine_passes_that_on(tmp_path: Path) -> None:
    for controller in ("memory", "pids", "cpu,cpuacct"):
        (tmp_path / controller / "own").mkdir(parents=True)
    (tmp_path / "cpu,cpuacct" / "own" / "cpu.cfs_quota_us").touch()
    own = membership(tmp_path, VERSION_1 + "2:cpu,cpuacct:/own\n")
    group = Cgroup((tmp_path / "memory" / "own" / "agent-fix-1",))
    limited = cgroup._with_cpus(group, 3, tmp_path, own.read_text())
    (_, processors) = limited.directories
    assert (processors / "cpu.cfs_quota_us").read_text() == str(3 * cgroup.PERIOD)
    assert processors == tmp_path / "cpu,cpuacct" / "own" / "agent-fix-1"


def test_without_that_controller_the_other_limits_stay(tmp_path: Path) -> None:
    group = Cgroup((tmp_path / "agent-fix-1",))
    assert cgroup._with_cpus(group, 3, tmp_path, VERSION_2) == group


def test_a_process_is_kept_to_its_processors() -> None:
    there = os.sched_getaffinity(0)
    if len(there) < 2:
        pytest.skip("this machine has one processor")
    with subprocess.Popen(["sleep", "30"]) as process:
        limit_processors(process.pid, 1)
        assert len(os.sched_getaffinity(process.pid)) == 1
        limit_processors(process.pid, len(there))
        process.kill()
    assert os.sched_getaffinity(0) == there
