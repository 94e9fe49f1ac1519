"""Finds sources that only tests load: what base's fixtures, tests or test settings name, and no other source does."""

import json
import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from app.core.patch import Patch
from app.core.tree import Tree
from app.repo.grammars import language_of
from app.verify.gates.test_changes import configures_tests, test_settings
from app.verify.overlay import Overlay
from app.verify.test_paths import is_test_path

MAX_SIZE, MAX_FILES = 300_000, 3_000
_NAMED = re.compile(
    r"(?:^|[/_.-])(?:tests?|testing|test_?(?:utils?|kit|helpers?|support|data)|fixtures?|mocks?|fakes?|stubs?|dumm(?:y|ies)"
    r"|samples?|spec)(?=[/_.-])"
)
_PLUGIN = r"(?:-p[ =]?|pytest_plugins\b[^#]{{0,300}}?[\"']){}(?![\w.])"
_PACKAGES = frozenset({"__init__", "index", "mod", "lib"})
_WHOLE_DIRECTORIES = frozenset({".go"})
_IMPORTING = (
    r"(?:\b(?:import|from|require|use|mod|include|export|import_module)\b[^\n]*?|[\"'][\w@./-]*/)(?<![\w-]){}(?![\w-])"
)
_GROUPED = r"^\s*(?:[\w.]+\s+)?\"(?:[\w./-]+/)?{}\"\s*$"


def support_files(base: Tree, patch: Patch, tests: Iterable[bytes]) -> tuple[str, ...]:
    """The changed sources of which only base's tests or settings know; `tests` are files that may know them, too."""
    entries = base.entries()
    changed = [path for path in patch.paths() if path in entries and language_of(path) and not is_test_path(path)]
    if not changed:
        return ()
    small = [path for path, entry in entries.items() if entry.mode != "120000" and entry.size <= MAX_SIZE]
    settings = {path: _settings(path, text) for path, text in _texts(base, small) if _may_configure(path)}
    named = [path for path in changed if _NAMED.search(f"/{path}") or _is_named_by(path, settings.values())]
    if not named or len(small) > MAX_FILES:
        return ()
    theirs = [text.decode("utf-8", "replace") for text in tests]
    own = [text for path, text in _texts(base, small) if is_test_path(path)]
    head = Overlay(base, patch)
    sources = [
        (path, text)
        for path, text in _texts(head, [path for path in head.entries() if language_of(path)])
        if not is_test_path(path) and not configures_tests(path)
    ]
    return tuple(
        path
        for path in named
        if not any(_imports(path, text) for text in theirs)
        and not any(_imports(path, text) for other, text in sources if not _is_same_module(other, path))
        and (_is_named_by(path, settings.values()) or any(_imports(path, text) for text in own))
    )


def _texts(tree: Tree, paths: Iterable[str]) -> Iterable[tuple[str, str]]:
    for path, content in tree.read_many(paths).items():
        yield path, content.decode("utf-8", "replace")


def _may_configure(path: str) -> bool:
    return configures_tests(path) or test_settings(path, "") is not None


def _settings(path: str, text: str) -> str:
    found = None if configures_tests(path) else test_settings(path, text)
    return text if found is None else found if isinstance(found, str) else json.dumps(found)


def _is_named_by(path: str, settings: Iterable[str]) -> bool:
    """True if a setting names the file, by its path or as a plug-in's module."""
    place = PurePosixPath(path).with_suffix("")
    dotted = ".".join(place.parts).removesuffix(".__init__")
    file = re.compile(rf"(?<![\w-])(?:\.?/)?{re.escape(str(place))}(?![\w/-])")
    plugin = re.compile(_PLUGIN.format(re.escape(dotted)))
    return any(plugin.search(text) or ("/" in path and file.search(text)) for text in settings)


def _imports(path: str, text: str) -> bool:
    """True if a line may load the module, however it is written."""
    place = PurePosixPath(path)
    whole = place.suffix in _WHOLE_DIRECTORIES or place.stem in _PACKAGES
    name = re.escape(place.parent.name if whole else place.stem)
    return bool(name) and any(re.search(form.format(name), text, re.MULTILINE) for form in (_IMPORTING, _GROUPED))


def _is_same_module(one: str, other: str) -> bool:
    """True for a file itself, and for the files of one package of Go."""
    same = PurePosixPath(one).parent == PurePosixPath(other).parent
    return one == other or (same and PurePosixPath(one).suffix in _WHOLE_DIRECTORIES)
