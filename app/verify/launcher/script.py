"""Runs chosen tests of node --test, vitest, jest and mocha, with our own reporter in the framework's main process.

Copies of the tests must pass, or must fail, whenever the original passes.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from random import Random
from typing import NamedTuple

from tree_sitter import Node

from app.core.text import plain
from app.repo.grammars import language_of, with_tree
from app.verify.frameworks import NPM_QUIET, REPORTER_OPTIONS, FrameworkName
from app.verify.launcher.base import (
    AFTER_END,
    UNKNOWN_FORM,
    Alteration,
    ByteEdit,
    CopiedTests,
    CopiesOfTests,
    Launcher,
    LauncherReport,
    LocatedTest,
    ReplayProgram,
    StepEnd,
    SupervisorAnswer,
    SupervisorStep,
    always_reached,
    different_digits,
    different_number,
    different_text,
    exit_code_problem,
    written,
)
from app.verify.reports import CaseResult, Outcomes, json_line
from app.verify.sources.parsed_sources import text_of

_REPORTERS = Path(__file__).with_name("reporters")
_OLD = "const fs = require('node:fs');\nconst crypto = require('node:crypto');\n"
_NEW = "import fs from 'node:fs';\nimport crypto from 'node:crypto';\nimport { inspect } from 'node:util';\n"
_ENVIRONMENT = {**NPM_QUIET, "NO_COLOR": "1"}
_IMPORT = re.compile(r"^import (?P<names>[^'\";]+?) from (?P<module>'[^'\n]+'|\"[^\"\n]+\");?[ \t]*$", re.MULTILINE)
_EFFECT = re.compile(r"^import (?P<module>'[^'\n]+'|\"[^\"\n]+\");?[ \t]*$", re.MULTILINE)
_LOADS = "await load("
_MODULE = re.compile(r"^\s*(?:import|export)\b|\bawait import\(|\bimport\.meta\b", re.MULTILINE)
REPLAY_TIMEOUT = 120.0
OTHER_ENVIRONMENT: Mapping[str, str] = {
    "TZ": "America/St_Johns",
    "LANG": "sv_SE.UTF-8",
    "LC_ALL": "sv_SE.UTF-8",
    "TERM": "xterm",
    "NODE_ENV": "production",
}
"""A time zone west of Greenwich with summer time, and a language with an order and numbers of its own."""
REPLAY_PAUSE = 2.0
"""Seconds after which the tests are called once more."""
_FROM_INPUT = """(() => {
  const given = require('node:fs').readFileSync(0, 'utf8');
  const program = given.slice(given.indexOf('\\n') + 1);
  (0, eval)(program)(JSON.parse(given.split('\\n', 1)[0]), program);
})();"""
"""A script that calls the function in its input, whose first line is the channel's: an argument is at most 128 KiB."""
_PLAIN_SCRIPT = re.compile(r"\.[cm]?js$")
_TAIL = 4_000


@dataclass(frozen=True)
class ScriptLauncher(Launcher):
    """Runs whole test files; only the results of the chosen tests count."""

    @cached_property
    def files(self) -> Mapping[str, str]:
        new = self.suite.framework in ("node", "vitest")
        texts = [
            (_REPORTERS / name).read_text("utf-8") for name in ("channel.js", "text.js", f"{self.suite.framework}.js")
        ]
        return {f"reporter.{'mjs' if new else 'cjs'}": "\n".join([_NEW if new else _OLD, *texts])}

    @property
    def _reporter_options(self) -> str:
        """What asks the framework for our reporter."""
        return REPORTER_OPTIONS[self.suite.framework].format(reporter="{place}/" + next(iter(self.files)))

    def steps(self, ids: Sequence[str], watch: Sequence[str], timeout: float) -> tuple[SupervisorStep, ...]:
        framework: FrameworkName = self.suite.framework
        paths = dict.fromkeys(name.partition("::")[0].removeprefix(self.suite.start) for name in ids)
        by_path = " --runTestsByPath" if framework == "jest" else ""
        command = f"{self.suite.narrowed} {self._reporter_options}{by_path} {shlex.join(paths)}"
        environment = dict(_ENVIRONMENT)
        measured = [path for path in watch if _PLAIN_SCRIPT.search(path)]
        if measured and framework in ("node", "mocha"):  # the others change the text before it is executed
            environment["NODE_V8_COVERAGE"] = "{place}/coverage"
        step = SupervisorStep(
            argv=("bash", "-c", command),
            timeout=timeout,
            env=environment,
            channel=True,
            coverage=tuple(measured) if "NODE_V8_COVERAGE" in environment else (),
        )
        return (step,)

    def program(self, command: str, timeout: float) -> tuple[SupervisorStep, ...]:
        environment = dict(_ENVIRONMENT)
        if self.suite.framework == "node":  # a script may have paths, and more than one command
            environment["NODE_OPTIONS"] = self._reporter_options
        else:
            start, chosen = self.suite.narrowed, command.removeprefix(self.suite.narrowed)
            if command == self.suite.command:
                start, chosen = self.suite.unnarrowed or start, ""
            command = f"{start} {self._reporter_options}{chosen}"
        return (SupervisorStep(argv=("bash", "-c", command), timeout=timeout, env=environment, channel=True),)

    def read(self, ids: Sequence[str], answer: SupervisorAnswer, watch: Sequence[str]) -> LauncherReport:
        (ended,) = answer.steps
        reports = ScriptReports(ended, " " if self.suite.framework == "mocha" else " > ")
        outcomes = {name: reports.outcomes(name, ended.output) for name in ids}
        lines = dict(ended.lines)
        return LauncherReport(
            outcomes=outcomes,
            problem=ended.problem or reports.problem or reports.disagreement(ended),
            hanging=next((name for name, found in outcomes.items() if not found), "") if ended.timed_out else "",
            executed=tuple((path, lines.get(path, ())) for path in watch) if lines else (),
            measured=any(lines.values()),
        )

    def read_all(self, answer: SupervisorAnswer) -> LauncherReport:
        (ended,) = answer.steps
        reports = ScriptReports(ended, " " if self.suite.framework == "mocha" else " > ")
        problem = ended.problem or reports.problem or reports.contradiction(ended)
        return LauncherReport(outcomes=reports.all_of_it(), problem=problem)

    def sources(self, ids: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name.partition("::")[0] for name in ids))

    def group(self, name: str) -> str:
        return name.partition("::")[0]

    @property
    def why_not_replayed(self) -> str:
        if self.suite.framework == "mocha":
            return "tests of mocha are not called without it."
        where = self.suite.directory
        return f"JavaScript tests below the top ({where}) are not called without their framework." if where else ""

    def replay(self, ids: Sequence[str], contents: Mapping[str, bytes], seconds: float) -> ReplayProgram | None:
        framework = self.suite.framework
        if self.why_not_replayed:
            return None
        paths = dict.fromkeys(name.partition("::")[0] for name in ids)
        source = _replay_source if framework == "node" else _loading_source
        texts = {path: source(contents.get(path, b"")) for path in paths if _PLAIN_SCRIPT.search(path)}
        by_path = {path: [name for name in ids if name.startswith(f"{path}::")] for path, text in texts.items() if text}
        if not by_path:
            return None
        files = [
            {"path": path, "text": texts[path], "loads": _LOADS in texts[path] and framework != "node", "ids": names}
            for path, names in by_path.items()
        ]
        program = Path(__file__).with_name("script_replay.js").read_text("utf-8")
        steps = []
        for shifted, environment in ((False, {}), (True, OTHER_ENVIRONMENT)):
            job = {"framework": framework, "files": files, "seconds": seconds, "pause": REPLAY_PAUSE}
            text = f"((route, program) => {{\nconst job = {json.dumps({**job, 'shifted': shifted})};\n{program}}})"
            argv, timeout = ("node", "-e", _FROM_INPUT), REPLAY_TIMEOUT + 10 * seconds
            steps.append(SupervisorStep(argv=argv, timeout=timeout, env=environment, input=text, channel=True))
        chosen_ids = tuple(name for names in by_path.values() for name in names)
        return ReplayProgram(ids=chosen_ids, paths=tuple(by_path), steps=tuple(steps))

    def copier(self, contents: Mapping[str, bytes], random: Random) -> "ScriptCopies":
        return ScriptCopies(self.suite.framework, contents, random)


def _replay_source(content: bytes) -> str:
    """The text of a test file, with `import` lines of whole modules as calls of `require`; empty if it needs more."""
    text = _IMPORT.sub(_required, content.decode("utf-8", "replace"))
    return "" if _MODULE.search(text) else text


def _loading_source(content: bytes) -> str:
    """The text of a test file with `import` lines that await modules; empty if it needs more."""
    text = _IMPORT.sub(_loaded, content.decode("utf-8", "replace"))
    text = _EFFECT.sub(rf"{_LOADS}\g<module>);", text)
    return "" if _MODULE.search(text) else text


def _loaded(found: re.Match[str]) -> str:
    names, module = found["names"].strip(), f"({_LOADS}{found['module']}))"
    default, _, others = (part.strip() for part in names.partition(","))
    if not re.fullmatch(r"[\w$]+", default):
        default, others = "", names
    lines = [f"const {default} = {module}.default;"] if default else []
    if others.startswith("{"):
        lines.append(f"const {re.sub(r' as ', ': ', others)} = {module};")
    elif others:
        lines.append(f"const {others.removeprefix('* as ')} = {module};")
    return " ".join(lines)


def _required(found: re.Match[str]) -> str:
    names, module = found["names"].strip(), found["module"]
    if names.startswith("{"):
        return f"const {re.sub(r' as ', ': ', names)} = require({module});"
    name = names.removeprefix("* as ").strip()
    require = "require" if name != names else "require.default"
    return f"const {name} = {require}({module});" if re.fullmatch(r"[\w$]+", name) else found[0]


class ScriptReports:
    """The messages of one execution."""

    def __init__(self, ended: StepEnd, separator: str) -> None:
        self._separator = separator
        self._tests: dict[str, list[CaseResult]] = {}
        self._files: dict[str, str] = {}
        self._ended = False
        self.problem = ""
        for text in ended.messages:
            self._read(text)

    def _read(self, text: str) -> None:
        message = json_line(text)
        if self._ended:
            self.problem = self.problem or AFTER_END
        match message:
            case ["test", str(file), list(titles), "passed" | "failed" | "skipped" as status, str(failure)]:
                name = f"{file}::{self._separator.join(map(str, titles))}"
                self._tests.setdefault(name, []).append(CaseResult(status, failure))
            case ["file", str(file), str(failure)]:
                self._files[file] = failure
            case ["end"]:
                self._ended = True
            case _:
                self.problem = self.problem or UNKNOWN_FORM

    def all_of_it(self) -> dict[str, Outcomes]:
        found = {name: tuple((name, outcome) for outcome in each) for name, each in self._tests.items()}
        errors = {path: ((path, CaseResult("error", text, plain=False)),) for path, text in self._files.items()}
        return {**errors, **found}

    def outcomes(self, name: str, output: bytes) -> Outcomes:
        if name in self._tests:
            return tuple((name, outcome) for outcome in self._tests[name])
        file = name.partition("::")[0]
        below = [
            (one, outcome) for one, found in self._tests.items() if one.startswith(f"{name}::") for outcome in found
        ]
        if below or file not in self._files:
            return tuple(below)
        # The report only says that the file failed; the output has the reason.
        text = f"{self._files[file]}\n{plain(output[-4 * _TAIL :].decode(errors='replace'))[-_TAIL:]}"
        return ((name, CaseResult("error", text, plain=False)),)

    @property
    def _failed(self) -> bool:
        return bool(self._files) or any(one.status == "failed" for found in self._tests.values() for one in found)

    def contradiction(self, ended: StepEnd) -> str:
        """Why these cannot be all results of a suite; its exit code may have other reasons than tests."""
        return exit_code_problem(ended, finished=self._ended, failed=self._failed, complete=False)

    def disagreement(self, ended: StepEnd) -> str:
        """Why these cannot be the results of chosen tests.

        The exit code is the framework's own count of failures, and also says what no test reports: tested code that
        hides a failure from our reporter, or fails once the tests are over, leaves another code than 0. So nothing
        excuses one here; the command of chosen tests leaves out what else fails (limits of coverage, `posttest`).
        """
        if not self._ended and not self._tests:
            return ""  # nothing at all was reported: the framework itself may not have started
        return exit_code_problem(ended, finished=self._ended, failed=self._failed, complete=bool(self._tests))


_EQUALITIES = frozenset({"equal", "strictEqual", "deepEqual", "deepStrictEqual", "eql"})
_MATCHERS = frozenset({"toBe", "toEqual", "toStrictEqual", "toHaveLength", "equal", "equals", "eql", "eq"})
_ASSERT = re.compile(rb"(?:t\.|chai\.|context\.)?assert(?:\.strict)?(?:\.(?P<name>\w+))?")
_SNAPSHOT = re.compile(rb"[sS]napshot|\bexpect\.|\.(?:poll|soft)\b")
_WAITED = re.compile(rb"\.(?:resolves|rejects|eventually)\b")
_FUNCTIONS = frozenset(
    {"arrow_function", "function_expression", "function_declaration", "method_definition", "class_body"}
)
_ENDING = frozenset({"return_statement", "throw_statement", "break_statement", "continue_statement"})
OTHER = b"Symbol()"
"""Equal to nothing else."""


def body_of(call: Node) -> Node | None:
    """The block, or the one expression, of the function that a call of `test` or `describe` gets last."""
    arguments = call.child_by_field_name("arguments")
    functions = [node for node in arguments.named_children if node.type in _FUNCTIONS] if arguments else []
    return functions[-1].child_by_field_name("body") if functions else None


def reached(body: Node) -> Iterator[Node]:
    """Statements, or the one expression, that are always executed, as far as that is certain."""
    return always_reached(body, _ENDING, _FUNCTIONS) if body.type == "statement_block" else iter([body])


def _of_assert(source: bytes, call: Node, random: Random, *, waited: bool, node: bool) -> Iterator[Alteration]:
    """`node`: `assert` is Node's own, of which more is known."""
    function = call.child_by_field_name("function")
    found = _ASSERT.fullmatch(text_of(source, function)) if function else None
    arguments = _arguments(call)
    if found is None or function is None or not arguments:
        return
    name = (found["name"] or b"ok").decode()
    if name == "ok":
        start, end = arguments[0].start_byte, arguments[0].end_byte
        yield Alteration("inverse", [ByteEdit(start, start, b"!("), ByteEdit(end, end, b")")])
    elif name in _EQUALITIES and len(arguments) >= 2:
        yield from _other_value(source, (arguments[1], arguments[0]), random)
    inverse = {"throws": "doesNotThrow", "doesNotThrow": "throws"} if not node else {"throws": "doesNotThrow"}
    inverse |= {"match": "doesNotMatch", "doesNotMatch": "match"} if node else {}
    inverse |= {"rejects": "doesNotReject"} if node and waited else {}
    if name in inverse:
        end = function.end_byte
        yield Alteration("inverse", [ByteEdit(end - len(name), end, inverse[name].encode())])


def _of_expect(source: bytes, expression: Node, random: Random, *, waited: bool) -> Iterator[Alteration]:
    """`expect(x).toBe(y)` of jest and vitest, and chai's `expect(x).to.equal(y)` and `expect(x).to.be.true`."""
    root = expression
    while root.type in ("call_expression", "member_expression"):
        below = root.child_by_field_name("function") or root.child_by_field_name("object")
        if below is None or below.type == "identifier":
            break
        root = below
    chain = text_of(source, expression)[root.end_byte - expression.start_byte :]
    later = _WAITED.search(chain)
    if root.type != "call_expression" or _SNAPSHOT.search(text_of(source, expression)) or (later and not waited):
        return
    if expression.type == "call_expression" and b".not." not in chain:
        function = expression.child_by_field_name("function")
        matcher = function.child_by_field_name("property") if function else None
        arguments = _arguments(expression)
        if matcher is not None and text_of(source, matcher).decode() in _MATCHERS and arguments:
            yield from _other_value(source, (arguments[0],), random)
    if (negation := chain.find(b".not.")) >= 0:
        start = root.end_byte + negation
        yield Alteration("inverse", [ByteEdit(start, start + len(b".not"), b"")])
    else:
        at = root.end_byte + (later.end() if later else 0)
        yield Alteration("inverse", [ByteEdit(at, at, b".not")])


def _arguments(call: Node) -> list[Node]:
    arguments = call.child_by_field_name("arguments")
    found = [node for node in arguments.named_children if node.type != "comment"] if arguments else []
    return [] if any(node.type == "spread_element" for node in found) else found


def _other_value(source: bytes, sides: Sequence[Node], random: Random) -> Iterator[Alteration]:
    """Replace a literal side by another constant; without one, compare the other side with a symbol."""
    for side in sides:
        constants = list(_constants(source, side))
        if constants:
            one = random.choice(constants)
            yield Alteration("value", [ByteEdit(one.start_byte, one.end_byte, _changed(text_of(source, one), random))])
            return
    yield Alteration("value", [ByteEdit(sides[0].start_byte, sides[0].end_byte, OTHER)])


def _constants(source: bytes, node: Node) -> Iterator[Node]:
    if node.type in ("number", "true", "false"):
        if node.type != "number" or re.fullmatch(rb"\d+(?:\.\d+)?", text_of(source, node)):
            yield node
    elif node.type == "string_fragment" or (node.type == "string" and not node.named_children):
        yield node
    elif node.type in ("string", "unary_expression", "array", "object", "pair", "parenthesized_expression"):
        if node.type == "string" and any(child.type == "escape_sequence" for child in node.named_children):
            return
        children = node.named_children[-1:] if node.type == "pair" else node.named_children
        for child in children:
            yield from _constants(source, child)


def _changed(text: bytes, random: Random) -> bytes:
    if text in (b"true", b"false"):
        return b"false" if text == b"true" else b"true"
    if re.fullmatch(rb"\d+", text):
        return different_digits(text, random)
    if re.fullmatch(rb"\d+\.\d+", text):
        return str(abs(different_number(float(text), random)) + 0.25).encode()
    if text in (b"''", b'""'):
        return text[:1] + random.choice("aeost").encode() + text[:1]
    return different_text(text.decode("utf-8", "replace"), random).encode()


_TESTS = frozenset({b"test", b"it", b"specify"})
_SUITES = frozenset({b"describe", b"suite", b"context"})
# A test that may notice its own name, its file's, or its text: it is not renamed.
_NOTICES = re.compile(
    rb"__filename|import\.meta|[sS]napshot|currentTestName|getState|fullTitle|this\.test\b|\.stack\b|process\.argv"
    rb"|\b(?:t|context|task|ctx)\.name\b|golden|cassette|nock\.back|child_process|\.only\b"
)
_STEM = re.compile(r"^(?P<start>test-|test_)?(?P<name>[^.]*?)(?P<end>(?:[_-](?:test|spec))?\..*)$")
_CALLS_TEST = re.compile(rb"^\s*(?:await )?(it|test|specify)(?:\.\w+)*\(", re.MULTILINE)


class _Call(NamedTuple):
    """A call of `test`: its statement, its title's string, its function's block or expression."""

    titles: tuple[str, ...]
    statement: Node
    title: Node
    body: Node


class ScriptCopies(CopiesOfTests[_Call]):
    """Makes copies of chosen tests of JavaScript and TypeScript. `contents` has their files."""

    between = b";\n"

    def __init__(self, framework: FrameworkName, contents: Mapping[str, bytes], random: Random) -> None:
        super().__init__(contents, random)
        self._framework = framework
        self._separator = " " if framework == "mocha" else " > "
        self._by_id: dict[str, dict[str, list[_Call]]] = {}

    def locate(self, name: str) -> LocatedTest[_Call] | None:
        """If a title occurs twice, it is unknown which of the two was meant."""
        path = name.partition("::")[0]
        language = language_of(path)
        if path not in self.contents or language not in ("javascript", "typescript", "tsx"):
            return None
        if path not in self._by_id:
            found = self._by_id.setdefault(path, {})
            root = with_tree(language, self.contents[path], lambda tree: tree.root_node)
            for one in _tests(self.contents[path], root, ()) if root is not None else ():
                found.setdefault(f"{path}::{self._separator.join(one.titles)}", []).append(one)
        calls = self._by_id[path].get(name, [])
        if len(calls) != 1:
            return None
        statement, title = calls[0].statement, calls[0].title
        span = (title.start_byte, title.end_byte)
        return LocatedTest(path, statement.start_byte, statement.end_byte, span, calls[0])

    def notices(self, path: str, tests: Sequence[LocatedTest[_Call]]) -> bool:
        stem, content = PurePosixPath(path).stem, self.contents[path]
        return bool(_NOTICES.search(content)) or (stem.endswith((".test", ".spec")) and stem.encode() in content)

    def renamed_id(self, original: str, test: LocatedTest[_Call], path: str, name: str) -> str:
        titles = [*test.inner.titles[:-1], name.strip("'")]
        return f"{path}::{self._separator.join(titles)}"

    def fresh_name(self, test: LocatedTest[_Call]) -> str:
        return f"'{self.names.fresh(' ')}'"

    def alterations(self, test: LocatedTest[_Call]) -> Iterator[Alteration]:
        source, random = self.contents[test.path], self.random
        for statement in reached(test.inner.body):
            expression = statement.named_children[0] if statement.type == "expression_statement" else statement
            waited = expression.type == "await_expression"
            inner = expression.named_children[0] if waited else expression
            if text_of(source, inner).startswith(b"expect("):
                yield from _of_expect(source, inner, random, waited=waited)
            elif inner.type == "call_expression":
                yield from _of_assert(source, inner, random, waited=waited, node=self._framework == "node")

    def failing_end(self, test: LocatedTest[_Call]) -> ByteEdit:
        """A failing statement after the last one, or before the first if the test may end early."""
        body = test.inner.body
        one, other = self.numbers()
        text = f"if ({one} !== {other}) throw new Error('expected {one} to be {other}');".encode()
        if body.type != "statement_block":
            expression = text_of(self.contents[test.path], body)
            return ByteEdit(body.start_byte, body.end_byte, b"((() => { " + text + b" })(), " + expression + b")")
        whole = len(list(reached(body))) == len(body.named_children)
        at = body.end_byte - 1 if whole else body.start_byte + 1
        return ByteEdit(at, at, b"\n" + text + b"\n")

    def plain_failure(self, ids: Sequence[str]) -> CopiedTests:
        path = ids[0].partition("::")[0]
        content = self.contents.get(path, b"")
        title, numbers = self.names.fresh(" "), self.random.sample(range(2, 60), 3)
        wrong = sum(numbers) + self.random.randint(1, 9)
        head, call = self._beginning(path, content)
        text = (
            f"{head}\n{call}('{title}', () => {{\n  const value = {' + '.join(map(str, numbers))};\n"
            f"  if (value !== {wrong}) throw new Error('expected {wrong}');\n}});\n"
        )
        fresh = self.fresh_path(path)
        return CopiedTests(files=(written(fresh, text.encode()),), failing=(f"{fresh}::{title}",))

    def _beginning(self, path: str, content: bytes) -> tuple[str, str]:
        """What a file beside this one begins with to have a function for tests, and the function's name."""
        if self._framework == "mocha":
            called = _CALLS_TEST.search(content)  # mocha's `ui` decides which of them it has
            return "", called[1].decode() if called else "it"
        module = {"node": "node:test", "vitest": "vitest", "jest": "@jest/globals"}[self._framework]
        if self._framework == "jest" and module.encode() not in content:
            return "", "test"
        old = path.endswith((".cjs", ".cts")) or not re.search(rb"^\s*import\b", content, re.MULTILINE)
        if old and not path.endswith((".mjs", ".mts")) and self._framework != "vitest":
            return f"const {{ test }} = require('{module}');\n", "test"
        return f"import {{ test }} from '{module}';\n", "test"

    def fresh_path(self, path: str) -> str:
        name = PurePosixPath(path).name
        found = _STEM.match(name)
        start, end = (found["start"] or "", found["end"]) if found else ("", PurePosixPath(path).suffix)
        return str(PurePosixPath(path).with_name(f"{start}{self.names.fresh('-')}{end}"))


def _tests(source: bytes, node: Node, around: tuple[str, ...]) -> Iterator[_Call]:
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
            yield _Call(titles, statement, title, body)
        if names & (_TESTS | _SUITES):
            yield from _tests(source, body, titles)


def _title(call: Node) -> Node | None:
    arguments = call.child_by_field_name("arguments") if call.type == "call_expression" else None
    first = next(iter(arguments.named_children), None) if arguments else None
    if first is None or first.type not in ("string", "template_string"):
        return None
    plain = all(child.type == "string_fragment" for child in first.named_children)
    return first if plain else None
