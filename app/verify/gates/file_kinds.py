"""Gates on which files change: how many, how large, and of a kind that people can review (no binaries, links out …)."""

import posixpath
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from app.core.verification import GateResult
from app.verify.gates.candidate import LINK, CandidatePatch, ChangedPath, displayed_path, gate
from app.verify.gates.protected_paths import collision_key, components

MAX_BINARY = 100 * 1024
MAX_LINKS = 40
MAX_LINE = 5_000
MIN_BUNDLE = 20 * 1024
_PROGRAMS = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\0asm", b"!<arch>\n")
_COMPILED = re.compile(r"\.(?:pyc|pyo|pyd|so|dylib|dll|exe|class|jar|war|o|a|wasm|whl|egg|node)$", re.IGNORECASE)
_BUNDLED = re.compile(r"\.min\.(?:js|mjs|css)$|\.bundle\.js$", re.IGNORECASE)
_SCRIPT = re.compile(r"\.(?:[cm]?js|css)$", re.IGNORECASE)
MAX_FILES = 100
MAX_BYTES = 4 * 1024**2


def size(candidate: CandidatePatch) -> GateResult:
    """Blocks an empty patch and one with too many files or bytes, with the numbers; nothing is ever cut to fit."""
    files = len(candidate.deltas)
    weight = sum(len(delta.new) for delta in candidate.deltas if delta.new is not None)
    blocked = []
    if not files:
        blocked.append("the patch changes nothing")
    if files > MAX_FILES:
        blocked.append(f"{files} files are changed; the limit is {MAX_FILES}")
    if weight > MAX_BYTES:
        blocked.append(f"the changed files have {weight:,} bytes; the limit is {MAX_BYTES:,}")
    return gate("size", blocked=blocked)


def refused_files(candidate: CandidatePatch) -> GateResult:
    """Files in the work tree that cannot be part of a patch block the submission while they exist."""
    refusals = candidate.patch.refusals
    return gate("refused files", blocked=[f"{displayed_path(refusal.path)}: {refusal.reason}" for refusal in refusals])


def file_kinds(candidate: CandidatePatch) -> GateResult:
    """Blocks what cannot be reviewed or leads out of the tree; warns of executable bits and small binaries."""
    blocked, warned = [], []
    for delta in candidate.deltas:
        if delta.new is None:
            continue
        reason = _link(candidate, delta) if delta.is_symlink_now else _content(delta)
        reason = reason or _parent(candidate.modes, delta.path)
        if reason:
            blocked.append(f"{displayed_path(delta.path)}: {reason}")
        elif note := _note(delta):
            warned.append(f"{displayed_path(delta.path)}: {note}")
    blocked += _collisions(candidate)
    return gate("file kinds", blocked=blocked, warned=warned)


def _content(delta: ChangedPath) -> str:
    content = delta.new or b""
    if content.startswith(_PROGRAMS) or _COMPILED.search(delta.path):
        return "a compiled program"
    if delta.text is None and len(content) > MAX_BINARY:
        return f"binary, {len(content):,} bytes; the limit is {MAX_BINARY:,}"
    script = _SCRIPT.search(delta.path) and len(content) >= MIN_BUNDLE
    if _BUNDLED.search(delta.path) or (script and any(len(line) > MAX_LINE for _, line in delta.added)):
        return "a minified bundle; change its sources instead"
    return ""


def _note(delta: ChangedPath) -> str:
    if delta.mode == "100755" and delta.old_mode != "100755":
        return "is now executable"
    if delta.old_mode == LINK:
        return "was a symlink, is now a file"
    if not delta.is_symlink_now and delta.text is None:
        return f"binary, {len(delta.new or b''):,} bytes"
    return "a symlink" if delta.is_symlink_now else ""


def _parent(modes: Mapping[str, str], path: str) -> str:
    parents = (str(parent) for parent in PurePosixPath(path).parents)
    taken = next((parent for parent in parents if parent in modes), None)
    return f"its directory {displayed_path(taken)} is a file or a symlink" if taken else ""


def _collisions(candidate: CandidatePatch) -> list[str]:
    """New names that a case-insensitive or normalising file system cannot tell from others."""
    names: dict[str, set[str]] = {}
    for path in candidate.modes:
        names.setdefault(collision_key(path), set()).add(path)
    found = []
    for delta in candidate.deltas:
        others = names.get(collision_key(delta.path), set()) - {delta.path}
        if delta.created and others:
            found.append(
                f"{displayed_path(delta.path)}: differs from {displayed_path(min(others))} only in case or composition"
            )
    return found


def _link(candidate: CandidatePatch, delta: ChangedPath) -> str:
    """Allows only a relative link to a target inside, through any links of the resulting tree."""
    target = (delta.new or b"").decode(errors="surrogateescape")
    if not target or target.startswith("/") or "\\" in target or not target.isprintable() or ":" in target:
        return "a symlink whose target is not a plain relative path"
    links = _LinkResolver(candidate)
    resolved = links.resolve(posixpath.dirname(delta.path), target)
    if resolved is None:
        return "a symlink that leaves the repository or forms a loop"
    if any(part.startswith(".git") and part != ".github" for part in components(resolved)):
        return "a symlink into git's directory"
    return ""


class _LinkResolver:
    """Follows symlinks in the resulting tree as a kernel would."""

    def __init__(self, candidate: CandidatePatch) -> None:
        self._candidate = candidate
        self._new = {
            delta.path: delta.new for delta in candidate.deltas if delta.is_symlink_now and delta.new is not None
        }

    def resolve(self, directory: str, target: str) -> str | None:
        """Where a target leads from a directory; None for outside, cycles, and more than 40 links."""
        at = [part for part in directory.split("/") if part]
        left = target.split("/")[::-1]
        followed = 0
        while left:
            part = left.pop()
            if part in ("", "."):
                continue
            if part == "..":
                if not at:
                    return None
                at.pop()
                continue
            at.append(part)
            link = self._target("/".join(at))
            if link is not None:
                followed += 1
                if followed > MAX_LINKS or link.startswith("/"):
                    return None
                at.pop()
                left += link.split("/")[::-1]
        return "/".join(at)

    def _target(self, path: str) -> str | None:
        if self._candidate.modes.get(path) != LINK:
            return None
        content = self._new.get(path)
        return (self._candidate.base.read(path) if content is None else content).decode(errors="surrogateescape")
