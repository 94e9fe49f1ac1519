"""Replaces a patch's changes of tests and test settings by the base's own, and finds sources that only tests load."""

import difflib
import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, cast

from app.core.patch import LINK, FileChange, Mode, Patch, Tree
from app.core.text import plain
from app.core.verification import ExistingTestChange
from app.verify.gates.candidate import as_text
from app.verify.gates.changes_of_tests import PACKAGE_KEYS, configures_tests, removed_tests, settings_of_tests
from app.verify.overlay import Overlay
from app.verify.paths_of_tests import is_test_file, is_test_path
from app.verify.rust_tests import files_of_tests, with_test_items

MAX_DIFF = 6_000
_NOT_LOADED = "unittest.loader._FailedTest."
_HEADER = re.compile(r"^\[{1,2}([^\[\]\n]+)\]{1,2}[ \t]*(?:#.*)?$", re.MULTILINE)
_SECTIONS = re.compile(
    r"tool\.(?:pytest|tox|nox|coverage)\b|project\.entry-points|tool:pytest|pytest|aliases"
    r"|options\.entry_points|nosetests|coverage:run"
)


def under_base_rules(base: Tree, patch: Patch, also: Collection[str] = ()) -> Patch:
    """The patch without its changes of existing tests, fixtures and test settings, and without new settings.

    In `package.json`, `pyproject.toml` and `setup.cfg` only the test settings come from the base, and the whole file if
    it is or becomes a link; in Rust sources, the items that only a build of tests has. `also` are sources that come
    from the base as well.
    """
    entries = base.entries()
    also = {*also, *_rust_tests(base, patch)}
    changes = []
    for change in patch.changes:
        path, entry = change.path, entries.get(change.path)
        tests = is_test_path(path) or configures_tests(path) or path in also
        link = entry is not None and LINK in (change.mode, entry.mode)
        if entry is None and tests:
            continue
        if entry is not None and (tests or (link and settings_of_tests(path, "") is not None)):
            changes.append(FileChange(path=path, mode=cast("Mode", entry.mode), content=base.read(path)))
        elif entry is not None and change.content is not None and not link:
            content = _ruled(path, base.read(path), change.content)
            changes.append(change.model_copy(update={"content": content}))
        elif entry is None and path.endswith(".rs") and change.content is not None and change.mode != LINK:
            changes.append(change.model_copy(update={"content": with_test_items(b"", change.content)}))
        else:
            changes.append(change)
    return patch.model_copy(update={"changes": tuple(changes)})


def _rust_tests(base: Tree, patch: Patch) -> set[str]:
    """The changed Rust files that are loaded only in a build of tests: on the base, or on the head if they are new."""
    changed = {path for path in patch.paths() if path.endswith(".rs") and not is_test_path(path)}
    if not changed:
        return changed
    new = changed.difference(base.entries())
    return _loaded_by_tests(base, changed) | (_loaded_by_tests(Overlay(base, patch), new) if new else new)


def _loaded_by_tests(tree: Tree, paths: set[str]) -> set[str]:
    """Those of the Rust files that a file beside them or up to two directories above loads only in a build of tests."""
    around = {str(parent) for path in paths for parent in list(PurePosixPath(path).parents)[:3]}
    near = [
        path
        for path, entry in tree.entries().items()
        if path.endswith(".rs") and entry.mode != LINK and str(PurePosixPath(path).parent) in around
    ]
    texts = tree.read_many(near)
    return {one for path, text in texts.items() if b"test" in text for one in files_of_tests(path, text)} & paths


@dataclass(frozen=True)
class JudgedPatch:
    """A patch as it is, and under the base's rules."""

    base: Tree
    patch: Patch
    ruled: Patch

    @classmethod
    def of(cls, base: Tree, patch: Patch, also: Collection[str] = ()) -> "JudgedPatch":
        return cls(base, patch, under_base_rules(base, patch, also))

    @cached_property
    def overridden_changes(self) -> tuple[FileChange, ...]:
        """What the patch changes and the base has differently."""
        ruled = {change.path: change for change in self.ruled.changes}
        return tuple(change for change in self.patch.changes if ruled.get(change.path) != change)

    @cached_property
    def changes_only_tests(self) -> bool:
        """True if the patch changes only tests and their settings."""
        entries = self.base.entries()
        return all(
            change.path in entries
            and (change.mode, change.content) == (entries[change.path].mode, self.base.read(change.path))
            for change in self.ruled.changes
        )

    @cached_property
    def changes_settings(self) -> bool:
        """True if the patch may change how untouched tests end."""
        kept = {*self.base.entries(), *self.ruled.paths()}
        return any(
            not is_test_file(change.path) and (change.path in kept or configures_tests(change.path))
            for change in self.overridden_changes
        )

    @cached_property
    def test_files(self) -> tuple[str, ...]:
        return tuple(
            change.path for change in self.overridden_changes if is_test_file(change.path) and not change.deleted
        )

    def removed(self) -> tuple[ExistingTestChange, ...]:
        """Files from which tests were removed. Blocking."""
        entries = self.base.entries()
        found = []
        for change in self.overridden_changes:
            if is_test_file(change.path) and change.path in entries:
                before = as_text(self.base.read(change.path)) or ""
                gone = removed_tests(before, as_text(change.content or b"") or "")
                if gone or change.deleted:
                    found.append(ExistingTestChange(path=change.path, removed=gone, diff=self._diff(change)))
        return tuple(found)

    def changed(
        self, tests: Sequence[str], removed: Sequence[ExistingTestChange] = ()
    ) -> tuple[ExistingTestChange, ...]:
        """The files without whose changes these tests fail, or the suite if no test is named. Blocking.

        New test files count only if nothing else explains it: one can change what others test. `removed` are files that
        are listed anyway.
        """
        entries = self.base.entries()
        overridden = {change.path: change for change in self.overridden_changes}
        changes = {
            path: change for path, change in overridden.items() if path in entries or configures_tests(path)
        } or overridden
        failing: dict[str, list[str]] = {} if tests else {path: [] for path in changes}
        for name in tests:
            own = [path for path in changes if _stands_in(name, path)]
            shared = [path for path in changes if path in entries and not is_test_file(path)]
            for path in own or shared or changes:
                failing.setdefault(path, []).append(name)
        found = {one.path: one for one in removed}
        for path, names in failing.items():
            one = found.get(path) or ExistingTestChange(
                path=path, added=path not in entries, diff=self._diff(changes[path])
            )
            found[path] = one.model_copy(update={"failing": tuple(names)})
        return tuple(found.values())

    def _diff(self, change: FileChange) -> str:
        old = as_text(self.base.read(change.path)) if change.path in self.base.entries() else ""
        lines = difflib.unified_diff(
            (old or "").splitlines(),
            (as_text(change.content or b"") or "").splitlines(),
            f"a/{change.path}",
            f"b/{change.path}",
            lineterm="",
            n=2,
        )
        text = plain("\n".join(lines))
        return text if len(text) <= MAX_DIFF else text[:MAX_DIFF].rpartition("\n")[0] + "\n…"


def loaded_tests(name: str, passing: Collection[str]) -> bool:
    """True if `name` is a test file that could not be loaded, and tests of this file are among `passing`."""
    file = name.removeprefix(_NOT_LOADED)
    if file == name and not is_test_file(file):
        return False
    return any(other.startswith((f"{file}::", f"{file}.")) for other in passing)


def _stands_in(name: str, path: str) -> bool:
    """True if a test's id names this file, by its path or as a dotted module."""
    module = f"{path.removesuffix('.py').replace('/', '.')}."
    return name.startswith(f"{path}::") or name == path or module in f".{name.removeprefix(_NOT_LOADED)}."


def _ruled(path: str, old: bytes, new: bytes) -> bytes:
    if path.endswith(".rs"):
        return with_test_items(old, new)
    before, after = as_text(old), as_text(new)
    settings = settings_of_tests(path, before or "")
    if settings is None or before is None or settings == settings_of_tests(path, after or ""):
        return new
    if path.endswith(".json"):
        return _package(before, after or "").encode()
    merged = _with_sections(before, after or "")
    return merged.encode() if settings_of_tests(path, merged) == settings else old


def _package(before: str, after: str) -> str:
    """The new package.json with the old scripts and test settings; the old one if either cannot be parsed.

    New names of its own files stay if they mean the same under every condition: no test of the base can use them.
    """
    try:
        old, new = json.loads(before), json.loads(after)
    except (ValueError, RecursionError):
        return before
    if not isinstance(old, dict) or not isinstance(new, dict):
        return before
    kept: dict[str, Any] = {key: value for key, value in new.items() if key not in PACKAGE_KEYS}
    kept |= {key: old[key] for key in PACKAGE_KEYS if key in old}
    names, known = (document.get("imports") for document in (new, old))
    if isinstance(names, dict) and isinstance(known, dict | None):
        plain = {name: place for name, place in names.items() if isinstance(place, str)}
        kept |= {"imports": merged} if (merged := {**plain, **(known or {})}) else {}
    scripts, own = (document.get("scripts") for document in (new, old))
    own = own if isinstance(own, dict) else {}
    added = {key: text for key, text in scripts.items() if "test" not in key} if isinstance(scripts, dict) else {}
    kept["scripts"] = {**added, **own}
    return json.dumps(kept, indent=2) + "\n"


def _with_sections(before: str, after: str) -> str:
    kept = [text for name, text in _sections(after) if not _SECTIONS.match(name)]
    own = [text for name, text in _sections(before) if _SECTIONS.match(name)]
    return "\n".join([*(text.rstrip("\n") + "\n" for text in (*kept, *own) if text.strip())])


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """The name and text of each table or section; the part before the first one has no name."""
    starts = [(0, ""), *((found.start(), found[1].strip()) for found in _HEADER.finditer(text))]
    for (start, name), (end, _) in zip(starts, [*starts[1:], (len(text), "")], strict=True):
        yield name, text[start:end]
