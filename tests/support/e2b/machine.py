"""A machine of the local E2B: a root file system in a directory, and real processes in it under bubblewrap."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from app.sandbox.bubblewrap.provider import usable_bwraps

BWRAP = str(usable_bwraps()[0])
SHOWN = ("/usr", "/etc/alternatives", "/etc/ssl")
NAMES = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf")
CHUNK = 32 * 1024
DEBIAN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(slots=True, eq=False)
class LocalMachine:
    """`network` is as the control plane was told it: while it allows a host, what begins inside shares our network."""

    id: str
    root: Path
    metadata: Mapping[str, str]
    network: dict[str, object]
    internet: bool | None
    token: str
    state: str = "running"
    alive: int = 0
    processes: dict[int, asyncio.subprocess.Process] = field(default_factory=dict)

    def furnish(self) -> None:
        """What E2B's base template has, as far as we use it."""
        for name in ("etc", "proc", "dev", "run", "var/lib", "var/tmp", "home", "root", "tmp", "opt/generous"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        (self.root / "opt/generous").chmod(0o777)
        for name in ("tmp", "var/tmp"):
            (self.root / name).chmod(0o1777)
        for name in ("bin", "sbin", "lib", "lib64"):
            if Path("/", name).exists():
                (self.root / name).symlink_to(f"usr/{name}")
        (self.root / "usr-local/bin").mkdir(parents=True)
        (self.root / "usr-local/bin/python").symlink_to("/usr/bin/python3")
        (self.root / "etc/debian_version").write_text("12.0\n")
        (self.root / "etc/passwd").write_text("root:x:0:0::/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n")
        (self.root / "etc/group").write_text("root:x:0:\nuser:x:1000:\n")

    def argv(self, words: list[str]) -> list[str]:
        reaches = bool(self.network.get("allowOut"))
        visible = (*SHOWN, *(NAMES if reaches else ()))
        shown = [word for path in visible if Path(path).exists() for word in ("--ro-bind", path, path)]
        return [
            *(BWRAP, "--bind", str(self.root), "/", *shown, "--dev", "/dev", "--proc", "/proc"),
            *("--ro-bind", str(self.root / "usr-local"), "/usr/local"),
            *(() if reaches else ("--unshare-net",)),
            *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--cap-add", "ALL"),
            *("--die-with-parent", "--new-session", "--clearenv", "--setenv", "HOME", "/root"),
            *("--setenv", "PATH", DEBIAN_PATH, "--chdir", "/", "--", *words),
        ]

    async def start(self, words: list[str]) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *self.argv(words),
            env={},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=CHUNK,
        )
        self.processes[process.pid] = process
        return process

    async def end(self) -> None:
        """All its processes, as when it is killed."""
        for process in list(self.processes.values()):
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def remove(self) -> None:
        shutil.rmtree(self.root)

    def write(self, path: str, content: bytes) -> None:
        """As root, like envd does for who asks as root."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        os.chown(target, 0, 0)


def copy(root: Path, place: Path) -> None:
    """With owners, links and times."""
    subprocess.run(["/bin/cp", "-a", str(root), str(place)], check=True)
