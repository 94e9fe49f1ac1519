"""Real git repositories for tests, made with the git command and an environment that no machine leaks into."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/dev/null",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "Ada Author",
    "GIT_AUTHOR_EMAIL": "ada@users.noreply.example",
    "GIT_AUTHOR_DATE": "1700000000 +0000",
    "GIT_COMMITTER_NAME": "Ada Author",
    "GIT_COMMITTER_EMAIL": "ada@users.noreply.example",
    "GIT_COMMITTER_DATE": "1700000000 +0000",
}


def git(
    repository: Path, *arguments: str, stdin: bytes = b"", check: bool = True, env: Mapping[str, str] | None = None
) -> str:
    """Execute git the ordinary way, as a user would; returns standard output without the last newline."""
    # A temporary directory may belong to another user than the one who tests.
    command = ["git", "-c", "safe.directory=*", "-C", str(repository), *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, env={**ENVIRONMENT, **(env or {})}, check=False)
    assert done.returncode == 0 or not check, done.stderr.decode()
    return done.stdout.decode("utf-8", "surrogateescape").removesuffix("\n")


def make_repository(path: Path, files: Mapping[str, str | bytes] | None = None) -> Path:
    """A repository on branch `main` with one commit of `files`."""
    path.mkdir(parents=True)
    git(path, "init", "-q", "--initial-branch=main", "--template=")
    commit_files(path, files or {"README.md": "# Sample\n"})
    return path


def commit_files(repository: Path, files: Mapping[str, str | bytes], message: str = "change") -> str:
    """Write files, commit everything, return the commit's id."""
    for name, content in files.items():
        target = repository / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
    git(repository, "add", "-A", "-f")
    git(repository, "commit", "-q", "--allow-empty", "-m", message)
    return git(repository, "rev-parse", "HEAD")


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a directory with its mode and bytes (or link target): to show that nothing changed."""
    seen: dict[str, tuple[int, bytes]] = {}
    for path in sorted(root.rglob("*")):
        if path.is_symlink():
            seen[str(path.relative_to(root))] = (path.lstat().st_mode, str(path.readlink()).encode())
        elif path.is_file():
            seen[str(path.relative_to(root))] = (path.stat().st_mode, path.read_bytes())
    return seen
