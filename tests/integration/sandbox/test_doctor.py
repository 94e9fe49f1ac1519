"""`agent-fix doctor`: what it prints, what it says of every kind of sandbox, and that each repair is there."""

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.cli import main
from app.cli.doctor import WIDTH, report
from app.config.settings import read_settings
from app.core.errors import ExitCode, SandboxError
from app.core.sandbox_names import DEFAULT, SANDBOXES, described
from app.jobs.schema import prepare_local_tables
from app.jobs.store import JobStore
from app.jobs.tables import sqlite_engine
from app.pipeline.wiring.sandboxes import (
    PAID,
    cloud_sandbox_availability,
    sandbox_availability,
    sweep_everywhere,
    try_provider,
)
from app.sandbox.base import DoctorCheck, OnOutput, Sandbox, SandboxProvider, SandboxSpec
from app.sandbox.trials import TRIAL
from app.sandbox.unsandboxed import UnsandboxedProvider

GOOD = DoctorCheck("network", ok=True, detail="reached: nothing")
BAD = DoctorCheck("identity", ok=False, detail="uid 0", repair="Run agent-fix as an ordinary user.")
KINDS = [
    DoctorCheck("bubblewrap", ok=True, detail="Linux"),
    DoctorCheck("podman", ok=False, detail="none", repair="apt"),
]


class Refusing:
    """A provider that opens nothing, and knows why, or (`silent`) finds nothing wrong when it is asked."""

    name = "bubblewrap"

    def __init__(self, *, silent: bool = False) -> None:
        self.silent = silent

    async def check(self) -> tuple[DoctorCheck, ...]:
        return (GOOD,) if self.silent else (GOOD, BAD)

    async def open(self, spec: SandboxSpec, *, on_output: OnOutput | None = None) -> Sandbox:
        raise SandboxError("It did not start.", hint="Try again.")


class TestScreen:
    def test_all_is_well(self) -> None:
        lines = list(report("bubblewrap", [GOOD], KINDS))
        assert lines[0] == "sandbox: bubblewrap\n"
        assert lines[1].split() == ["ok", "network", "reached:", "nothing"]
        assert "\n1 of 1 properties hold." in lines
        assert "Jobs refuse to start." not in lines

    def test_each_failure_is_followed_by_its_repair(self) -> None:
        lines = list(report("bubblewrap", [GOOD, BAD], KINDS))
        at = next(number for number, line in enumerate(lines) if "FAIL" in line)
        assert lines[at + 1].strip() == f"repair: {BAD.repair}"
        assert lines[at + 1].index("repair") == lines[at].index("uid 0")
        assert "\n1 of 2 properties hold." in lines
        assert "Jobs refuse to start." in lines

    def test_every_kind_is_named_and_the_one_in_use_marked(self) -> None:
        text = "\n".join(report("bubblewrap", [GOOD], KINDS))
        assert "ready bubblewrap (used)" in text
        assert "podman               none" in text
        assert "repair: apt" in text

    def test_long_words_stay_in_their_column_and_commands_whole(self) -> None:
        command = "docker run --security-opt seccomp=unconfined"
        long = replace(BAD, detail="why " * 60, repair=f"{'or ' * 40}{command}")
        lines = list(report("bubblewrap", [long], KINDS))
        assert max(map(len, lines)) <= WIDTH
        assert "--security-opt" in " ".join(lines)


class TestKinds:
    async def test_a_sandbox_that_opens_is_usable_and_leaves_nothing(self, tmp_path: Path) -> None:
        provider: SandboxProvider = UnsandboxedProvider(tmp_path / "jobs")
        assert await try_provider(provider) == DoctorCheck("none", ok=True, detail=SANDBOXES["none"])
        assert list((tmp_path / "jobs").iterdir()) == []

    async def test_a_sandbox_that_does_not_open_shows_its_failed_checks(self) -> None:
        assert await try_provider(Refusing()) == DoctorCheck("bubblewrap", ok=False, detail="uid 0", repair=BAD.repair)

    async def test_the_opening_comment_is_used_if_nothing_newer_exists(self) -> None:
        told = DoctorCheck("bubblewrap", ok=False, detail="It did not start.", repair="Try again.")
        assert await try_provider(Refusing(silent=True)) == told

    def test_a_paid_sandbox_is_not_opened_unasked(self) -> None:
        assert not cloud_sandbox_availability("e2b", {}).ok
        assert "E2B_API_KEY" in cloud_sandbox_availability("e2b", {}).repair
        assert cloud_sandbox_availability("e2b", {"E2B_API_KEY": "k"}).ok

    async def test_each_is_reported_with_a_repair_if_it_is_not_usable(self, tmp_path: Path) -> None:
        settings = replace(read_settings(tmp_path / "state"), environment={"PATH": "/usr/bin:/bin"})
        found = await sandbox_availability(settings)
        assert [kind.name for kind in found] == list(SANDBOXES)
        assert all(kind.detail and (kind.ok or kind.repair) for kind in found)

    def test_every_kind_has_words_and_can_be_chosen(self) -> None:
        assert DEFAULT in SANDBOXES
        assert all(name in described() for name in SANDBOXES)
        assert set(PAID) <= set(SANDBOXES)


TRIED_AND_DIED = """
import asyncio, os, sys
from pathlib import Path
from app.pipeline.wiring.sandboxes import try_provider
from app.sandbox.unsandboxed import UnsandboxedProvider

class Deadly(UnsandboxedProvider):
    async def open(self, spec, *, on_output=None):
        await super().open(spec, on_output=on_output)
        os._exit(9)

asyncio.run(try_provider(Deadly(Path(sys.argv[1]))))
"""


async def test_the_sandbox_of_a_trial_is_swept_if_its_process_was_killed(tmp_path: Path) -> None:
    """A worker tries its sandbox when it starts; one that is being tried elsewhere stays."""
    settings, found = read_settings(tmp_path / "state"), tmp_path / "state" / "sandboxes"
    command = [sys.executable, "-c", TRIED_AND_DIED, str(found)]
    died = await asyncio.to_thread(subprocess.run, command, check=False)
    assert (died.returncode, len(list(found.iterdir()))) == (9, 1)
    database = sqlite_engine(tmp_path / "state" / "jobs.db")
    prepare_local_tables(database)
    store = JobStore(database, lambda: datetime.now(UTC))

    class Sweeping(UnsandboxedProvider):
        async def open(self, spec: SandboxSpec, *, on_output: OnOutput | None = None) -> Sandbox:
            opened = await super().open(spec, on_output=on_output)
            assert await asyncio.to_thread(sweep_everywhere, settings, store) == 1
            assert [path.name for path in found.iterdir()] == [spec.key]
            return opened

    assert (await try_provider(Sweeping(found))).ok
    assert list(found.iterdir()) == []
    database.dispose()


SWEEP = """
import sys
from pathlib import Path
from app.config.settings import read_settings
from app.pipeline.wiring.sandboxes import sweep_trials

print(sweep_trials(read_settings(Path(sys.argv[1]))))
"""


def test_a_sandbox_that_cannot_be_removed_does_not_keep_the_others(tmp_path: Path) -> None:
    """Something is mounted in it."""
    names = [f"{TRIAL}1-{number}.elsewhere:7:1-00000000" for number in range(3)]
    busy, *others = (tmp_path / "sandboxes" / name for name in sorted(names))
    for directory in (busy / "in", *others):
        directory.mkdir(parents=True)
    script = 'mount -t tmpfs none "$0" && exec "$@"'
    words = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, str(busy / "in")]
    swept = subprocess.run(
        [*words, sys.executable, "-c", SWEEP, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert (swept.stdout, [path.exists() for path in (busy, *others)]) == ("2\n", [True, False, False])


def test_the_command_ends_by_what_the_chosen_one_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--sandbox", "none", "--json", "--state", str(tmp_path / "state")])
    told = json.loads(capsys.readouterr().out)
    assert code == ExitCode.SANDBOX
    assert told["sandbox"] == "none"
    assert [check["name"] for check in told["checks"]] == ["isolation"]
    assert [kind["name"] for kind in told["sandboxes"]] == list(SANDBOXES)


def test_no_sandbox_on_another_system_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """In a process that is told that it runs on a Mac once all is imported."""
    program = (
        "import asyncio, sys; from pathlib import Path; from app.sandbox.base import SandboxSpec\n"
        "from app.sandbox.unsandboxed import UnsandboxedProvider\n"
        "sys.platform = 'darwin'\n"
        "asyncio.run(UnsandboxedProvider(Path(sys.argv[1])).open(SandboxSpec('k', fill=lambda _: None)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith("SandboxError: --sandbox none works on Linux only.")
    assert list(tmp_path.iterdir()) == []
