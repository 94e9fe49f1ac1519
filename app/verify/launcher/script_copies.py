"""Makes copies of JavaScript and TypeScript tests that must pass, or must fail, whenever the original passes."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from random import Random
from typing import NamedTuple

from tree_sitter import Node, Tree

from app.repo.grammars import language_of, with_tree
from app.verify.frameworks import FrameworkName
from app.verify.launcher.base import CopiedTests
from app.verify.launcher.edits import ByteEdit, CopyNames, apply_edits, chosen, joined, written
from app.verify.launcher.script_alterations import alterations, body_of, failing_end, text_of

ALTERED_COPIES = 2
"""Maximum number of altered copies of one test."""

_TESTS = frozenset({b"test", b"it", b"specify"})
_SUITES = frozenset({b"describe", b"suite", b"context"})
# A test that may notice its own name, its file's, or its text: it is not renamed.
_NOTICES = re.compile(
    rb"__filename|import\.meta|[sS]napshot|currentTestName|getState|fullTitle|this\.test\b|\.stack\b|process\.argv"
    rb"|\b(?:t|context|task|ctx)\.name\b|golden|cassette|nock\.back|child_process|\.only\b"
)
_STEM = re.compile(r"^(?P<start>test-|test_)?(?P<name>.*?)(?P<end>(?:[._-](?:test|spec))?\.[cm]?[jt]sx?)$")


class _Found(NamedTuple):
    """A call of `test`: its statement, its title's string, its function's block or expression."""

    titles: tuple[str, ...]
    statement: Node
    title: Node
    body: Node


@dataclass
class ScriptCopies:
    """Makes copies of chosen tests. `contents` has their files."""

    framework: FrameworkName
    contents: Mapping[str, bytes]
    random: Random

    def __post_init__(self) -> None:
        self._names = CopyNames(self.random)

    def renamed(self, ids: Sequence[str]) -> CopiedTests:
        """Renamed copies, unchanged and altered, in new files; in place if the test may notice its name."""
        copies = [
            self._of_file(path, names, in_place=self._notices(path)) for path, names in self._by_file(ids).items()
        ]
        return joined([self._plain_failure(ids), *copies])

    def in_place(self, ids: Sequence[str]) -> CopiedTests:
        """Altered copies under their own names, in a separate run."""
        copies = [self._of_file(path, names, in_place=True) for path, names in self._by_file(ids).items()]
        return joined([self._plain_failure(ids), *copies])

    def _by_file(self, ids: Sequence[str]) -> dict[str, list[str]]:
        files: dict[str, list[str]] = {}
        for name in ids:
            path = name.partition("::")[0]
            if path in self.contents and language_of(path) in ("javascript", "typescript", "tsx"):
                files.setdefault(path, []).append(name)
        return files

    def _of_file(self, path: str, ids: Sequence[str], *, in_place: bool) -> CopiedTests:
        def make(tree: Tree) -> CopiedTests:
            # If a title occurs twice, it is unknown which of the two was meant.
            found: dict[str, list[_Found]] = {}
            for one in _tests(self.contents[path], tree.root_node, ()):
                found.setdefault(f"{path}::{self._separator.join(one.titles)}", []).append(one)
            tests = [(name, found[name][0]) for name in ids if len(found.get(name, ())) == 1]
            if not tests:
                return CopiedTests()
            return self._altered_in_place(path, tests) if in_place else self._elsewhere(path, tests)

        return with_tree(language_of(path) or "", self.contents[path], make) or CopiedTests()

    @property
    def _separator(self) -> str:
        return " " if self.framework == "mocha" else " > "

    def _elsewhere(self, path: str, tests: Sequence[tuple[str, _Found]]) -> CopiedTests:
        content, fresh = self.contents[path], self._fresh_path(path)
        edits: list[ByteEdit] = []
        same, altered = dict[str, str](), dict[str, str]()
        for name, test in tests:
            start, end = test.statement.start_byte, test.statement.end_byte
            for change in self._changes(content, test)[:ALTERED_COPIES]:
                title = self._names.fresh(" ")
                text = apply_edits(content, [*change, _retitled(test, title)], start, end)
                at = self.random.choice((start, end))
                edits.append(ByteEdit(at, at, text + b";\n" if at == start else b";\n" + text))
                altered[self._id(fresh, test, title)] = name
            title = self._names.fresh(" ")
            edits.append(_retitled(test, title))
            same[self._id(fresh, test, title)] = name
        return CopiedTests(files=(written(fresh, apply_edits(content, edits)),), same=same, altered=altered)

    def _altered_in_place(self, path: str, tests: Sequence[tuple[str, _Found]]) -> CopiedTests:
        edits = [edit for _, test in tests for edit in self._changes(self.contents[path], test)[0]]
        altered = {name: name for name, _ in tests}
        return CopiedTests(files=(written(path, apply_edits(self.contents[path], edits)),), altered=altered)

    def _changes(self, content: bytes, test: _Found) -> list[list[ByteEdit]]:
        found = list(alterations(content, test.body, self.random, node=self.framework == "node"))
        return chosen(found, self.random) or [[failing_end(content, test.body, self.random)]]

    def _id(self, path: str, test: _Found, title: str) -> str:
        return f"{path}::{self._separator.join([*test.titles[:-1], title])}"

    def _notices(self, path: str) -> bool:
        stem = _STEM.match(PurePosixPath(path).name)
        content = self.contents[path]
        return bool(_NOTICES.search(content)) or (stem is not None and f"{stem['name']}.test".encode() in content)

    def _plain_failure(self, ids: Sequence[str]) -> CopiedTests:
        path = ids[0].partition("::")[0]
        content = self.contents.get(path, b"")
        title, numbers = self._names.fresh(" "), self.random.sample(range(2, 60), 3)
        wrong = sum(numbers) + self.random.randint(1, 9)
        head = {"node": self._import(path, content), "vitest": 'import { test } from "vitest";\n'}.get(
            self.framework, ""
        )
        call = "it" if self.framework == "mocha" else "test"
        text = (
            f"{head}\n{call}('{title}', () => {{\n  const value = {' + '.join(map(str, numbers))};\n"
            f"  if (value !== {wrong}) throw new Error('expected {wrong}');\n}});\n"
        )
        fresh = self._fresh_path(path)
        return CopiedTests(files=(written(fresh, text.encode()),), failing=(f"{fresh}::{title}",))

    def _import(self, path: str, content: bytes) -> str:
        old = path.endswith((".cjs", ".cts")) or not re.search(rb"^\s*import\b", content, re.MULTILINE)
        if old and not path.endswith((".mjs", ".mts")):
            return "const test = require('node:test');\n"
        return "import test from 'node:test';\n"

    def _fresh_path(self, path: str) -> str:
        name = PurePosixPath(path).name
        found = _STEM.match(name)
        start, end = (found["start"] or "", found["end"]) if found else ("", PurePosixPath(path).suffix)
        return str(PurePosixPath(path).with_name(f"{start}{self._names.fresh('-')}{end}"))


def _tests(source: bytes, node: Node, around: tuple[str, ...]) -> Iterator[_Found]:
    """Every call of `test` as a statement, with the titles around it."""
    for statement in node.named_children:
        if statement.type != "expression_statement" or not statement.named_children:
            continue
        call = statement.named_children[0]
        if call.type == "await_expression" and call.named_children:
            call = call.named_children[0]
        title, body = _title(call), body_of(call) if call.type == "call_expression" else None
        function = call.child_by_field_name("function")
        if title is None or body is None or function is None:
            continue
        names = set(text_of(source, function).split(b"."))
        titles = (*around, text_of(source, title)[1:-1].decode("utf-8", "replace"))
        if names & _TESTS:
            yield _Found(titles, statement, title, body)
        if names & (_TESTS | _SUITES):
            yield from _tests(source, body, titles)


def _title(call: Node) -> Node | None:
    arguments = call.child_by_field_name("arguments") if call.type == "call_expression" else None
    first = next(iter(arguments.named_children), None) if arguments else None
    if first is None or first.type not in ("string", "template_string"):
        return None
    plain = all(child.type == "string_fragment" for child in first.named_children)
    return first if plain else None


def _retitled(test: _Found, title: str) -> ByteEdit:
    return ByteEdit(test.title.start_byte, test.title.end_byte, f"'{title}'".encode())
