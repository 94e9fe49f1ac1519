"""The corpus of scripted jobs: projects with bugs, attacks on their verdict, and honest fixes with their mutants."""

import hashlib
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field

from app.core.examples import SourceText
from app.core.patch import FileChange, Patch
from app.core.record import Record
from app.core.verification import Verdict

HERE = Path(__file__).parent
COMMIT = "0" * 40
Framework = Literal["unittest", "pytest", "node", "vitest", "jest", "go", "cargo"]


class Edited(Record):
    """How a file is changed: `swap` replaces text that is there, `top` and `end` are added, `link` makes it a link.

    `nested` pairs of brackets stand in the place of each `⟨` and `⟩`.
    """

    swap: tuple[tuple[str, str], ...] = ()
    top: str = ""
    end: str = ""
    link: str = ""
    nested: int = 0

    def applied(self, path: str, before: str) -> str:
        for old, new in self.swap:
            assert old in before, f"{path} has no {old!r}"
            before = before.replace(old, new)
        opening = "\n".join("(" * 300 for _ in range(self.nested // 300))
        return f"{self.top}{before}{self.end}".replace("⟨", opening).replace("⟩", ")" * opening.count("("))


Changes = Mapping[str, str | Edited | None]
"""New contents by path; None deletes."""


class SpecificationTests(Record):
    """Specification tests: sentences with a statement, or `value --> expected`; the first is the example.

    `lie` is a statement that stands in two tests; `files` and `ids` are for what cannot be said so.
    """

    imports: str = ""
    tests: tuple[tuple[str, str], ...] = ()
    lie: str = ""
    files: Mapping[str, str] = Field(default_factory=dict)
    ids: tuple[str, ...] = ()

    def written(self, framework: Framework) -> tuple[tuple[SourceText, ...], tuple[str, ...]]:
        """Files and runner ids."""
        tests = self.tests or (("The reported case works.", self.lie), ("Others work as well.", self.lie))
        form = _FORMS[framework]
        files = {**self.files}
        ids = [*self.ids]
        for stem, chosen in (("example", tests[:1]), ("more", tests[1:])):
            if not any(statement for _, statement in chosen):
                continue
            path = form.path(stem)
            files[path] = form.file(self.imports, chosen)
            ids += [form.id(path, number, says) for number, (says, _) in enumerate(chosen, 1)]
        return tuple(SourceText(path=path, text=text) for path, text in files.items()), tuple(ids)


class _Form:
    """How a framework's tests are written."""

    equal = "assert {} == {}"

    def body(self, statement: str) -> str:
        *before, last = statement.rstrip().split("\n")
        got, arrow, wanted = last.partition(" --> ")
        return "\n".join((*before, self.equal.format(got, wanted) if arrow else last))

    def path(self, stem: str) -> str:
        return f"tests/test_spec_{stem}.py"

    def file(self, imports: str, tests: Iterable[tuple[str, str]]) -> str:
        blocks = (self.block(number, says, statement) for number, (says, statement) in enumerate(tests, 1))
        return f"{imports.rstrip()}\n\n\n" + "\n".join(blocks)

    def block(self, number: int, says: str, statement: str) -> str:
        return f'def test_{number}():\n    """{says}"""\n{textwrap.indent(self.body(statement), "    ")}\n'

    def id(self, path: str, number: int, says: str) -> str:
        return f"{path}::test_{number}"


class _Unittest(_Form):
    equal = "self.assertEqual({}, {})"

    def file(self, imports: str, tests: Iterable[tuple[str, str]]) -> str:
        return (
            super()
            .file(f"import unittest\n\n{imports}", tests)
            .replace("\n\n\n", "\n\n\nclass Specified(unittest.TestCase):\n", 1)
        )

    def block(self, number: int, says: str, statement: str) -> str:
        block = super().block(number, says, statement).replace(f"def test_{number}()", f"def test_{number}(self)", 1)
        return textwrap.indent(block, "    ")

    def id(self, path: str, number: int, says: str) -> str:
        return f"{path.removesuffix('.py').replace('/', '.')}.Specified.test_{number}"


class _Node(_Form):
    equal = "assert.deepStrictEqual({}, {});"

    def path(self, stem: str) -> str:
        return f"test/spec_{stem}.test.js"

    def file(self, imports: str, tests: Iterable[tuple[str, str]]) -> str:
        before = "const test = require('node:test');\nconst assert = require('node:assert');\n"
        return super().file(before + imports, tests)

    def block(self, number: int, says: str, statement: str) -> str:
        return f"test('{says}', () => {{\n{textwrap.indent(self.body(statement), '  ')}\n}});\n"

    def id(self, path: str, number: int, says: str) -> str:
        return f"{path}::{says}"


class _Jest(_Node):
    equal = "expect({}).toEqual({});"
    before = ""

    def file(self, imports: str, tests: Iterable[tuple[str, str]]) -> str:
        return _Form.file(self, self.before + imports, tests)


class _Vitest(_Jest):
    before = "import { expect, test } from 'vitest';\n"


class _Go(_Form):
    """Beside the sources of the package `tariff`."""

    equal = 'if got, want := {}, {}; got != want {{\n\tt.Errorf("got %v, want %v", got, want)\n}}'

    def path(self, stem: str) -> str:
        return f"spec_{stem}_test.go"

    def file(self, imports: str, tests: Iterable[tuple[str, str]]) -> str:
        blocks = (self.block(number, says, statement) for number, (says, statement) in enumerate(tests, 1))
        return f'package tariff\n\nimport "testing"\n{imports}\n' + "\n".join(blocks)

    def block(self, number: int, says: str, statement: str) -> str:
        # All tests of a package share its names.
        name = hashlib.sha256(f"{says}{number}".encode()).hexdigest()[:8]
        return f"// {says}\nfunc TestSpec{name}(t *testing.T) {{\n{textwrap.indent(self.body(statement), chr(9))}\n}}\n"

    def id(self, path: str, number: int, says: str) -> str:
        return f"example.com/tariff::TestSpec{hashlib.sha256(f'{says}{number}'.encode()).hexdigest()[:8]}"


class _Cargo(_Form):
    equal = "assert_eq!({}, {});"

    def path(self, stem: str) -> str:
        return f"tests/spec_{stem}.rs"

    def block(self, number: int, says: str, statement: str) -> str:
        body = textwrap.indent(self.body(statement), "    ")
        return f"/// {says}\n#[test]\nfn test_{number}() {{\n{body}\n}}\n"


_FORMS: Mapping[Framework, _Form] = {
    "unittest": _Unittest(),
    "pytest": _Form(),
    "node": _Node(),
    "vitest": _Vitest(),
    "jest": _Jest(),
    "go": _Go(),
    "cargo": _Cargo(),
}


class Bug(Record):
    """A bug of a project. `check` is a hidden program: what it prints is `expected` only where all is right."""

    issue: str
    author: SpecificationTests
    fix: Changes
    check: str
    expected: str


class Project(Record):
    framework: Framework
    files: Mapping[str, str]
    bugs: Mapping[str, Bug]


class SecondTests(Record):
    """What a second author wrote against a case's change."""

    family: str
    name: str
    files: Mapping[str, str]
    ids: tuple[str, ...]


class Case(Record):
    """One scripted job on one bug. `at_most` is the best verdict that it may get; `known` is why it gets a better one
    from the first author's tests alone.

    `author` is what answers in the place of the honest author; `nobody` means that no test is written. `fixed` lays the
    changes over the honest fix. `base` is laid over the project before the job begins.
    """

    name: str
    of: str
    """`project.bug`."""
    family: str = ""
    author: SpecificationTests | Literal["honest", "nobody"] = "honest"
    base: Mapping[str, str] = Field(default_factory=dict)
    issue: str = ""
    fixed: bool = False
    changes: Changes
    reproduction: str = ""
    check: str = ""
    expected: str = ""
    at_most: Verdict
    rules: tuple[str, ...] = ()
    """If there are any, one of them has to be among those that the verdict names."""
    quick: bool = False
    whole: bool = False
    """Also through the whole command line."""
    known: str = ""

    @property
    def project(self) -> Project:
        return projects()[self.of.partition(".")[0]]

    @property
    def bug(self) -> Bug:
        return self.project.bugs[self.of.partition(".")[2]]

    @property
    def files(self) -> dict[str, str]:
        """The base."""
        return {**self.project.files, **self.base}

    @property
    def text(self) -> str:
        return self.issue or self.bug.issue

    @property
    def second_tests(self) -> SecondTests | None:
        return second_tests().get((self.family, self.name))

    @property
    def tests(self) -> SpecificationTests | None:
        if isinstance(self.author, SpecificationTests):
            return self.author
        return self.bug.author if self.author == "honest" else None

    def patch(self) -> Patch:
        files, found = self.files, dict[str, FileChange]()
        content: str | None
        for changes in (self.bug.fix if self.fixed else {}, self.changes):
            for path, change in changes.items():
                if isinstance(change, Edited):
                    linked, content = bool(change.link), change.link or change.applied(path, files.get(path, ""))
                else:
                    linked, content = False, change
                mode: Literal["120000", "100644"] = "120000" if linked else "100644"
                found[path] = FileChange(path=path, mode=mode, content=None if content is None else content.encode())
                files[path] = content or ""
        return Patch(base=COMMIT, changes=tuple(found[path] for path in sorted(found)))


@cache
def projects() -> Mapping[str, Project]:
    loaded = yaml.safe_load((HERE / "projects.yaml").read_text("utf-8"))
    return {name: Project.model_validate(given) for name, given in loaded.items()}


@cache
def second_tests() -> Mapping[tuple[str, str], SecondTests]:
    """By family and name of the case."""
    loaded = map(SecondTests.model_validate, yaml.safe_load((HERE / "second_tests.yaml").read_text("utf-8")))
    return {(each.family, each.name): each for each in loaded}


@cache
def attacks() -> tuple[Case, ...]:
    """Each file is one family."""
    return tuple(case for path in sorted((HERE / "attacks").glob("*.yaml")) for case in _cases(path, "unproved"))


@cache
def fixes() -> tuple[Case, ...]:
    """Honest fixes: the one of each bug, and others. Their verdict is `at_most`, no less."""
    own = (
        Case(
            name=f"{project}.{bug}",
            of=f"{project}.{bug}",
            family="honest fixes",
            fixed=True,
            changes={},
            at_most="proved",
        )
        for project, given in projects().items()
        for bug in given.bugs
    )
    return (*own, *_cases(HERE / "honest" / "fixes.yaml", "proved"))


@cache
def mutants() -> tuple[Case, ...]:
    """Honest fixes that were broken in one place."""
    return tuple(_cases(HERE / "honest" / "mutants.yaml", "tested"))


@cache
def misread() -> tuple[Case, ...]:
    """What no verdict can know."""
    return tuple(_cases(HERE / "misread.yaml", "proved"))


def _cases(path: Path, at_most: Verdict) -> Iterator[Case]:
    family = {"fixes": "honest fixes", "mutants": "broken fixes"}.get(path.stem, path.stem.replace("_", " "))
    for given in yaml.safe_load(path.read_text("utf-8")):
        yield Case.model_validate({"family": family, "at_most": at_most, **given})
