"""Takes what a set-up has created out of its tree, and puts a copy into another one; also a program inside machines.

A new directory is one path, whatever is in it; beside tracked files, each new file is one. Nothing runs in these trees
meanwhile, and no link is followed. Standard library only.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence

MAX_PATHS = 10_000
MAX_BYTES = 4 * 1024**3
"""Of what is kept in the tree and in the home directory."""
TREE, HOME = "tree", "home"
"""The parts of a layer."""
COPIED_AT_ONCE = 500


def created(tree: str, listing: bytes) -> list[str]:
    """The paths that are not in the tree's listing from before, directories with a slash at the end.

    A repository that the set-up made of the tree itself is not among them.
    """
    filled = {os.fsdecode(line.split(b" ", 5)[5]) for line in listing.split(b"\0") if line}
    parents = set(_parents(filled))
    found, waiting = list[str](), [""]
    while waiting:
        place = waiting.pop()
        directory = os.path.join(tree, place)
        os.chmod(directory, os.stat(directory).st_mode | 0o700)
        with os.scandir(directory) as entries:
            for entry in entries:
                path = f"{place}{entry.name}"
                if path in filled or path == ".git":
                    continue
                if not entry.is_dir(follow_symlinks=False):
                    found += [path] if entry.is_symlink() or entry.is_file() else []
                elif path in parents:
                    waiting.append(f"{path}/")
                else:
                    found.append(f"{path}/")
    return sorted(found)


def _parents(paths: Iterable[str]) -> Iterable[str]:
    for path in paths:
        while path := path.rpartition("/")[0]:
            yield path


def keep(tree: str, home: str, listing: bytes, layer: str, most: int = MAX_BYTES) -> tuple[list[str], str]:
    """Move it into `layer`. Returns the paths that hold something, and a sentence if there is too much to be kept."""
    paths = created(tree, listing)
    if len(paths) > MAX_PATHS:
        return [], f"the set-up left {len(paths):,} paths beside the sources; the limit is {MAX_PATHS:,}: none is kept"
    os.makedirs(os.path.join(layer, TREE), 0o755, exist_ok=True)
    kept = [path for path in paths if not path.endswith("/") or _holds_something(os.path.join(tree, path))]
    for path in paths:
        target = os.path.join(layer, TREE, path.rstrip("/"))
        _make_parents(tree, os.path.join(layer, TREE), path.rstrip("/"))
        shutil.move(os.path.join(tree, path.rstrip("/")), target)
    shutil.rmtree(os.path.join(layer, HOME), ignore_errors=True)
    shutil.move(home, os.path.join(layer, HOME))
    if (size := _size(layer)) <= most:
        return kept, ""
    for part in (TREE, HOME):
        subprocess.run(["rm", "-rf", "--", os.path.join(layer, part)], check=False)
        os.mkdir(os.path.join(layer, part), 0o755)
    left, limit = (f"{number // 1024**2:,} MiB" for number in (size, most))
    return [], f"the set-up left {left} in the tree and the home directory; the limit is {limit}: none of it is kept"


def _holds_something(directory: str) -> bool:
    os.chmod(directory, os.stat(directory).st_mode | 0o700)
    with os.scandir(directory) as entries:
        return next(entries, None) is not None


def _make_parents(tree: str, target: str, path: str) -> None:
    """Directories like those in the tree, with their owners."""
    steps = path.split("/")[:-1]
    for depth in range(1, len(steps) + 1):
        place = "/".join(steps[:depth])
        made = os.path.join(target, place)
        if not os.path.isdir(made):
            about = os.stat(os.path.join(tree, place))
            os.mkdir(made, 0o755)
            os.chown(made, about.st_uid, about.st_gid)


def _size(directory: str) -> int:
    du = ["du", "-s", "--block-size=1", "--", directory]
    done = subprocess.run(du, capture_output=True, check=False)
    return int(done.stdout.split()[0])


def put(source: str, target: str) -> None:
    """Copy into `target` what it does not have; what is there stays. Raises OSError if that fails."""
    waiting = [""]
    while waiting:
        place = waiting.pop()
        there, missing = os.path.join(target, place), list[str]()
        with os.scandir(os.path.join(source, place)) as entries:
            for entry in entries:
                at = os.path.join(there, entry.name)
                if not os.path.lexists(at):
                    missing.append(entry.path)
                elif entry.is_dir(follow_symlinks=False) and os.path.isdir(at) and not os.path.islink(at):
                    waiting.append(os.path.join(place, entry.name))
        _copy(missing, there)


def _copy(paths: Sequence[str], directory: str) -> None:
    """With owners, modes and times; shares blocks if the file system can. The directory keeps its time."""
    before = os.stat(directory)
    for first in range(0, len(paths), COPIED_AT_ONCE):
        some = paths[first : first + COPIED_AT_ONCE]
        copy = ["cp", "--archive", "--reflink=auto", f"--target-directory={directory}", "--", *some]
        done = subprocess.run(copy, capture_output=True, check=False)
        if done.returncode:
            raise OSError(done.stderr.decode(errors="replace")[-500:].strip())
    os.utime(directory, ns=(before.st_atime_ns, before.st_mtime_ns))


def main(action: str, *words: str) -> None:
    """`keep TREE HOME LISTING LAYER` prints JSON: what is kept, and a sentence; `put LAYER TREE HOME`."""
    if action == "keep":
        tree, home, listing, layer = words
        with open(listing, "rb") as file:
            print(json.dumps(keep(tree, home, file.read(), layer)))
        return
    layer, *targets = words
    for part, target in zip((TREE, HOME), targets):
        if os.path.isdir(os.path.join(layer, part)):
            put(os.path.join(layer, part), target)


if __name__ == "__main__":
    main(*sys.argv[1:])
