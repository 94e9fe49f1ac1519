"""A root file system for containers, made of this machine's own programs, because no registry of images is asked."""

import io
import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = (
    *("bash", "sh", "env", "cat", "ls", "echo", "true", "false", "sleep", "head", "tail", "seq", "stat", "find", "tar"),
    *("gzip", "git", "python3", "setpriv", "setsid", "sha256sum", "printf", "mkdir", "mv", "rm", "cp", "ln", "chmod"),
    *("chown", "install", "dirname", "realpath", "id", "wc", "tr", "grep", "sed", "touch", "kill", "mount", "unshare"),
    *(
        "sort",
        "uniq",
        "cut",
        "date",
        "test",
        "expr",
        "dd",
        "prlimit",
        "base64",
        "tee",
        "xargs",
        "rmdir",
        "diff",
        "mktemp",
        "nl",
        "sha1sum",
        "timeout",
        "nproc",
        "uname",
    ),
)
DIRECTORIES = ("usr", "usr/bin", "usr/lib", "usr/sbin", "etc", "var", "var/lib", "root", "home", "run", "proc", "sys")
SHARED = ("tmp", "var/tmp")
LINKS = ("bin", "sbin", "lib", "lib64")
ACCOUNTS = {"etc/passwd": b"root:x:0:0::/root:/bin/bash\n", "etc/group": b"root:x:0:\n"}
LEFT_OUT = re.compile(r"/(?:__pycache__|test|tests|idlelib|lib2to3|tkinter|config-3[^/]*)(?:/|$)")
ABOUT_PYTHON = "import json, sysconfig; print(json.dumps(sysconfig.get_path('stdlib')))"
ENDS_THREADS = "libgcc_s.so.1"
"""The C library looks for it only when a thread ends."""
PATH = "/usr/bin:/bin:/usr/sbin:/sbin"


class NoImageError(Exception):
    """This machine lacks a program that an image needs."""


def make_root(archive: Path) -> None:
    """Some fifty megabytes. Its Python is the system's own."""
    programs = [Path(found) for name in PROGRAMS if (found := shutil.which(name, path=PATH))]
    python = shutil.which("python3", path=PATH)
    if python is None:
        raise NoImageError("this machine has no Python below /usr/bin")
    asked = subprocess.run([python, "-I", "-c", ABOUT_PYTHON], capture_output=True, check=True)
    library = Path(json.loads(asked.stdout))
    modules = sorted((library / "lib-dynload").glob("*.so"))
    with tarfile.open(archive, "w") as tar:
        for name in (*DIRECTORIES, *SHARED):
            directory = tarfile.TarInfo(name)
            directory.type, directory.mode = tarfile.DIRTYPE, 0o1777 if name in SHARED else 0o755
            tar.addfile(directory)
        for name in LINKS:
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(link)
        for name, content in ACCOUNTS.items():
            file = tarfile.TarInfo(name)
            file.size, file.mode = len(content), 0o644
            tar.addfile(file, io.BytesIO(content))
        added: set[str] = set()
        for path in (*programs, *_libraries([*programs, *modules])):
            _add(tar, path, added)
        tar.add(library, str(library).lstrip("/"), filter=lambda info: None if LEFT_OUT.search(info.name) else info)


def _libraries(programs: list[Path]) -> Iterator[Path]:
    """What the loader finds for them. A script needs none."""
    told = subprocess.run(["ldd", *(str(path.resolve()) for path in programs)], capture_output=True, check=False)
    found = {Path(match[1]) for match in re.finditer(r"(/\S+) \(0x", told.stdout.decode())}
    yield from sorted(found)
    yield from (place / ENDS_THREADS for place in {path.parent for path in found} if (place / ENDS_THREADS).exists())


def _add(tar: tarfile.TarFile, path: Path, added: set[str]) -> None:
    """At its real place, and what it links to."""
    real = path.parent.resolve() / path.name
    if str(real) in added:
        return
    added.add(str(real))
    tar.add(real, str(real).lstrip("/"), recursive=False)
    if real.is_symlink():
        _add(tar, real.parent / real.readlink(), added)
