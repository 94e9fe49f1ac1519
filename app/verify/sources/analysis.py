"""Analyses what a patch does to the sources without executing anything, and makes variants that expose cheating.

Everything is parsed in a separate process, so all of it blocks: call it through `asyncio.to_thread`.
"""

import atexit
import base64
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from random import Random
from typing import Concatenate, ParamSpec, TypeVar

from app.core.examples import SourceText
from app.core.patch import LINK, FileChange, Patch, Tree
from app.core.verification import CapRule
from app.core.yaml_and_toml import toml_table
from app.repo.grammars import language_of
from app.repo.syntax_process import SyntaxProcess
from app.verify.gates.candidate import CandidatePatch, ChangedPath
from app.verify.gates.changes_of_tests import configures_tests, settings_of_tests
from app.verify.paths_of_tests import is_test_path
from app.verify.sources import process
from app.verify.sources.literals import Literal, indicate_special_case, literal_rows
from app.verify.sources.new_conditions import NewCondition, replaced_data
from app.verify.sources.process import ChangedSource, encoded
from app.verify.sources.python_sources import Unused, is_used_elsewhere

_PATTERNS = (
    (re.compile(r"^setup\.py$"), re.compile(rb"\bversion\s*=\s*[\"'](\d+(?:\.\d+)+[^\"'\n]*)[\"']")),
    (
        re.compile(r"\.py$"),
        re.compile(
            rb"^(?:__version__|VERSION|version)\s*(?::\s*\w+\s*)?=\s*[\"'](\d+(?:\.\d+)+[^\"'\n]*)[\"']", re.MULTILINE
        ),
    ),
    (re.compile(r"^pyproject\.toml$"), re.compile(rb"^version\s*=\s*\"(\d+(?:\.\d+)+[^\"\n]*)\"", re.MULTILINE)),
    (re.compile(r"^package\.json$"), re.compile(rb"^\s*\"version\"\s*:\s*\"(\d+(?:\.\d+)+[^\"\n]*)\"", re.MULTILINE)),
    (
        re.compile(r"\.(?:go|[cm]?[jt]s)$"),
        re.compile(rb"\b(?:VERSION|[vV]ersion)\s*(?:string\s*)?:?=\s*[\"'](v?\d+(?:\.\d+)+[^\"'\n]*)[\"']"),
    ),
)
_USUAL = re.compile(
    r"(?:__init__|__about__|__version__|_?version|setup)\.py$|pyproject\.toml$|package\.json$|version\.(?:go|[cm]?[jt]s)$"
)
_VARIABLE = re.compile(
    rb"\b(?:environ|getenv|environb|Getenv|LookupEnv|env::var|env::var_os|ENV|(?:process|import\.meta)\.env)"
    rb"(?:\.get|\.setdefault|\.fetch)?\s*[\[(.]\s*b?[\"'`]?(\w{3,})"
)
_BUILT_BY = frozenset({"go.mod", "Cargo.toml"})
_MANIFEST = re.compile(
    r"^(?:package\.json|pyproject\.toml|setup\.cfg|(?:dev-)?requirements.*\.txt|constraints.*\.txt|environment\.ya?ml"
    r"|pom\.xml|build\.gradle(?:\.kts)?|composer\.json|tsconfig.*\.json|docker-compose.*|mkdocs\.yml|go\.(?:sum|work\.sum)"
    r"|MANIFEST\.in)$|[.-]lock(?:\.\w+)?$"
)
_MAX_DEPTH = 4


def _has_version(path: str) -> bool:
    """True for files in which projects state their version. Cargo's is left out: its lock file repeats it."""
    return path.count("/") < _MAX_DEPTH and _USUAL.search(PurePosixPath(path).name) is not None


def _with_next_version(path: str, content: bytes, head: bytes | None) -> bytes | None:
    """The content with the head's version, or else with the third (or last) number increased; None if it has none."""
    name = PurePosixPath(path).name
    pattern = next((pattern for names, pattern in _PATTERNS if names.search(name)), None)
    found = pattern.search(content) if pattern else None
    if pattern is None or found is None:
        return None
    later = pattern.search(head) if head is not None else None
    version = found[1]
    if later and later[1] != version:
        version = later[1]
    else:
        numbers = list(re.finditer(rb"\d+", version))
        number = numbers[min(2, len(numbers) - 1)]
        version = version[: number.start()] + str(int(number[0][:18]) + 1).encode() + version[number.end() :]
    return content[: found.start(1)] + version + content[found.end(1) :]


_PROCESS = SyntaxProcess("app.verify.sources.process", timeout=120.0)
atexit.register(_PROCESS.close)
_OTHERS = 6
_MAX_OTHER = 200_000
_MAX_SEARCHED = 3_000
_MAX_SOURCE = 1_000_000
_MEMBER = r"(?:[.\"'`:]|\b(?:def|func|fn)\s+)({})\b"
_DEFINED = re.compile(rb"\b(?:def|class)\s+(\w+)")
_ASSIGNED = re.compile(
    rb"^(\w+)[ \t]*(?::[^=\n]*)?=[ \t]*(?:lambda\b|(?:functools\.)?partial\("
    rb"|(?!\d|(?:True|False|None)\b)(?:\w+\.)*(?![A-Z\d_]+\b)\w+[ \t\r]*(?:#|$))",
    re.MULTILINE,
)
"""Names at the top of a module whose value may be a function."""
_REEXPORTED = re.compile(rb"^[ \t]*from[ \t]+[\w.]+[ \t]+import[ \t]*(\([^)]{0,2000}\)|[^\n]*)", re.MULTILINE)
_LAST_WORD = re.compile(rb"\b(\w+)\b\s*(?=[,)#]|$)", re.MULTILINE)
_QUOTED = r"[\"'`]({})[\"'`]"
_NUMBER = r"(?<![\w.])({})(?![\w.]*\w)"
_WHOLE = r"(?<![\w])({})(?![\w])"
_AS_CODE = re.compile(r"`([^`\n]+)`")
_MEMORY = re.compile(
    r"\b(?:cach|memo|remember|count(?:er|s|ed|\b)|global|registr|singleton|histor|reus|stateful|once\b|between calls)",
    re.IGNORECASE,
)
"""Words of an issue that asks for something to be kept from one call to the next."""
REFUSED = "the changed sources could not be analysed: parsing failed or took too long"


class AnalysisError(ValueError):
    """The process that parses gave no answer; its text says so."""

    def __str__(self) -> str:
        return f"{REFUSED}."


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DOCUMENTATION = _words(".md .mdx .rst .txt .adoc .asciidoc .org .tex .1 .po .pot")
_HASH = _words(".sh .bash .zsh .fish .ps1 .pl .pm .r .jl .ex .exs .nim .tcl .cr .coffee .pyx .pxd .pxi .cmake")
_SLASHES = _words(".php .cs .fs .kt .kts .swift .scala .dart .proto .groovy .gradle .zig .scss .less .m .mm .d .sol .v")
_COMMENT = {
    **dict.fromkeys(_HASH, b"#"),
    **dict.fromkeys(_SLASHES, b"//"),
    **dict.fromkeys(_words(".sql .lua .hs .elm .ada .vhd"), b"--"),
}
"""What begins a comment, by the ending of a file without a grammar."""
_OTHER_CODE = _words("""
    .css .html .htm .vue .svelte .astro .xml .xsl .erl .hrl .clj .cljs .lisp .el .scm .rkt .ml .mli .f .f90 .s .asm .bat
    .cmd .jinja .jinja2 .j2 .erb .haml .slim .ejs .hbs .mustache .njk .twig .tmpl .gotmpl .tpl .pug .y .l .g4 .peg .lark
    .ipynb .graphql .gql .wgsl .glsl .hlsl .cu .awk .sed
""")


def _kind_of(path: str) -> str:
    """`code`, `documentation`, or `configuration or data`, for a file without a grammar."""
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in _COMMENT or suffix in _OTHER_CODE:
        return "code"
    return "documentation" if suffix in _DOCUMENTATION else "configuration or data"


def _same_lines(path: str, old: bytes | None, new: bytes | None) -> bool:
    """True if only empty lines, comment lines and trailing space differ."""
    mark = _COMMENT.get(PurePosixPath(path).suffix.lower(), b"\0")
    sides = [[line.rstrip() for line in (side or b"").split(b"\n")] for side in (old, new)]
    before, after = ([line for line in lines if line and not line.lstrip().startswith(mark)] for lines in sides)
    return before == after


P = ParamSpec("P")
R = TypeVar("R")


def _ask(
    question: Callable[Concatenate[Sequence[ChangedSource], P], R],
    sources: Sequence[ChangedSource],
    *args: P.args,
    **options: P.kwargs,
) -> R | None:
    """The answer as JSON gives it, with lists for tuples; None if there is none. Options are given by name."""
    if not sources:
        return question(sources, *args, **options)
    rows = [[source.path, source.language, encoded(source.old), encoded(source.new)] for source in sources]
    answer: R | None = _PROCESS.ask(question.__name__, "", json.dumps({"sources": rows, "options": options}).encode())
    return answer


def _contents(answer: Mapping[str, str] | None) -> dict[str, bytes]:
    if answer is None:
        raise AnalysisError
    return {path: base64.b64decode(text) for path, text in answer.items()}


def _is_read(delta: ChangedPath) -> bool:
    """True for a file that a program or its build reads, and no grammar: data, templates, two manifests.

    What other manifests name is installed before; putting that back would say nothing.
    """
    place = PurePosixPath(delta.path)
    if language_of(delta.path) is not None or _is_link(delta) or any(part.startswith(".") for part in place.parts):
        return False
    if place.name in _BUILT_BY:
        return True
    if not place.suffix or _MANIFEST.search(place.name) or is_test_path(delta.path) or configures_tests(delta.path):
        return False
    return _kind(delta) in ("code", "configuration or data")


def _is_link(delta: ChangedPath) -> bool:
    return LINK in (delta.mode, delta.old_mode)


def _kind(delta: ChangedPath) -> str:
    if is_test_path(delta.path):
        return "tests"
    if delta.old == delta.new:
        return "file modes"
    kind = _kind_of(delta.path)
    return (
        "comments, docstrings or layout" if kind == "code" and _same_lines(delta.path, delta.old, delta.new) else kind
    )


def _is_used(base: Tree, path: str, unused: Unused) -> bool:
    """True if any other file of the base may refer to these names, or if there are too many files to tell."""
    entries = base.entries()
    others = [other for other, entry in entries.items() if other != path and entry.mode != LINK]
    if len(others) > _MAX_SEARCHED or any(entries[other].size > _MAX_SOURCE for other in others):
        return True
    return is_used_elsewhere(unused, path, base.read_many(others).values())


@dataclass(frozen=True)
class SourceAnalysis:
    """What a patch of this base does to its sources."""

    base: Tree
    patch: Patch

    @cached_property
    def _deltas(self) -> tuple[ChangedPath, ...]:
        return CandidatePatch(self.base, self.patch).deltas

    @cached_property
    def _sources(self) -> list[ChangedSource]:
        """The changed files of the program that have a grammar."""
        return [
            ChangedSource(delta.path, language, delta.old, delta.new)
            for delta in self._deltas
            if (language := language_of(delta.path)) is not None
            and not is_test_path(delta.path)
            and not _is_link(delta)
        ]

    @cached_property
    def unchanged(self) -> str:
        """Empty if the program itself changed; otherwise what the patch changes instead, as a sentence."""
        if not self._deltas:
            return "The patch changes nothing."
        same = _ask(process.find_unchanged, self._sources)
        if same is None:
            return f"{REFUSED[0].upper()}{REFUSED[1:]}."
        if any(source.path not in same for source in self._sources):
            return ""
        kinds: dict[str, list[str]] = {}
        for delta in self._deltas:
            kind = "comments, docstrings or layout" if delta.path in same else _kind(delta)
            if kind == "code":
                return ""
            kinds.setdefault(kind, []).append(delta.path)
        parts = [
            f"{kind} ({', '.join(paths[:3])}{', …' if len(paths) > 3 else ''})" for kind, paths in sorted(kinds.items())
        ]
        return f"No source changed, only {'; '.join(parts)}."

    @property
    def changes_data(self) -> bool:
        """True if it changes data or configuration, which may decide what a program does."""
        paths = [delta.path for delta in self._deltas]
        return any(
            language_of(path) is None and _kind_of(path) == "configuration or data" and not is_test_path(path)
            for path in paths
        )

    def base_with_comments(self, seed: int) -> Patch | None:
        """The base with the same behaviour and other texts.

        In the files that the patch touches, and in some others: more comments (among them what the patch adds), shifted
        lines, docstrings as on the head, unused locals. Documentation is the head's, and the version is increased. None
        if no source could be varied with certainty. Raises AnalysisError.
        """
        touched = self._sources
        others = self._other_sources({source.language for source in touched}, seed)
        contents = _contents(_ask(process.add_comments, touched, seed=seed))
        contents |= _contents(_ask(process.add_comments, others, seed=seed) or {})  # one may be too much for a parser
        if not any(source.path in contents for source in touched if source.old is not None):
            return None
        prose = {
            delta.path: delta.new
            for delta in self._deltas
            if delta.new is not None and not _is_link(delta) and _kind(delta) == "documentation"
        }
        return self._patch(contents | prose | self._versions(contents))

    def reprint_head(self, seed: int) -> Patch | None:
        """The patch with its sources reprinted: the same programs without comments and in another layout.

        Docstrings and comments that a tool obeys are kept, and so is a source that cannot be printed with certainty;
        None if that is all of them. Raises AnalysisError.
        """
        sources = [source for source in self._sources if source.new is not None]
        contents = _contents(_ask(process.reprint_sources, sources, seed=seed))
        if not contents:
            return None
        changes = tuple(
            change.model_copy(update={"content": contents[change.path]}) if change.path in contents else change
            for change in self.patch.changes
        )
        return self.patch.model_copy(update={"changes": changes})

    @cached_property
    def additions(self) -> Patch | None:
        """The base plus only what the patch adds: new files, new definitions, members and optional parameters, with
        every existing body unchanged. None if the patch adds nothing of the kind. Raises AnalysisError.

        Anything that existing code may use by itself is a change, not an addition: special methods, overriding ones.
        """
        sources = [source for source in self._sources if source.old is not None and source.new is not None]
        found = _ask(process.apply_additions, sources, known=[])
        if found and found["inherited"]:
            known = self._found(_MEMBER, found["inherited"], sources)
            found = _ask(process.apply_additions, sources, known=sorted(known))
        contents = _contents(found["contents"] if found else None)
        created = {
            delta.path: delta.new
            for delta in self._deltas
            if delta.created and delta.new is not None and not is_test_path(delta.path) and not _is_link(delta)
        }
        if not contents and not any(_kind_of(path) != "documentation" for path in created):
            return None
        return self._patch(contents | created)

    @cached_property
    def stubbed_additions(self) -> Patch | None:
        """The base plus what the patch adds, with nothing in it: functions without bodies, names without values.

        None if that cannot be made of all sources that it adds to. Raises AnalysisError.
        """
        if self.additions is None:
            return None
        contents = _contents(_ask(process.stub_additions, SourceAnalysis(self.base, self.additions)._sources))
        if not contents:
            return None
        kept = {change.path: change.content for change in self.additions.changes if change.content is not None}
        return self._patch({**kept, **contents})

    @cached_property
    def executable_lines(self) -> dict[str, set[int]] | None:
        """By source file of the head: the executable lines that the patch changed or added.

        Lines that every import executes count only if the patch changes no others. None if that cannot be determined.
        """
        found = _ask(process.find_changed_lines, self._sources)
        return None if found is None else {path: set(rows) for path, rows in found.items()}

    @cached_property
    def new_conditions(self) -> dict[str, list[NewCondition]] | None:
        """By source file of the head: what the patch adds or takes away that a test may depend on.

        None if that cannot be determined.
        """
        answer = _ask(process.find_new_conditions, self._sources)
        if answer is None:
            return None
        found: dict[str, list[NewCondition]] = {}
        for delta in self._deltas:
            both = delta.old is not None and delta.new is not None and _is_read(delta)
            if both and (data := replaced_data(delta.old or b"", delta.new or b"")):
                found[delta.path] = data
        for path, given in answer.items():
            for each in (NewCondition(*values) for values in given):
                unused = Unused(tuple(each.imports), tuple(each.defines))
                if not any(unused) or _is_used(self.base, path, unused):
                    found.setdefault(path, []).append(each)
        return found

    def watches_tests(self) -> tuple[tuple[CapRule, str], ...]:
        """The rule, and `path:line: what`, of each added source line that examines the test framework, its variables,
        the calling frames, the command line, or the clock as a switch; or that defines an equality of its own."""
        found = _ask(
            process.find_harness_detection,
            self._sources,
            features=sorted(self._features()),
            functions=sorted(self._functions()),
            packages=sorted(self._packages()),
        )
        if found is None:
            return (("watches_tests", REFUSED),)
        variables: list[tuple[CapRule, str]] = [("watches_tests", text) for text in self._variables_of_tests()]
        return (*((rule, text) for rule, text in found), *variables)

    def _variables_of_tests(self) -> Iterator[str]:
        """Each variable of the environment that the sources newly read, and that the base names in its tests and test
        settings but in no source."""
        new = {
            source.path: {*_VARIABLE.findall(source.new or b"")} - {*_VARIABLE.findall(source.old or b"")}
            for source in self._sources
        }
        if not any(new.values()):
            return
        ours, theirs = set[bytes](), set[bytes]()
        for path, content in self.base.read_many(self._readable[:_MAX_SEARCHED]).items():
            words = {*re.findall(rb"\w+", content)}
            if is_test_path(path) or configures_tests(path) or settings_of_tests(path, "") is not None:
                theirs |= words
            elif language_of(path) is not None:
                ours |= words
        for path, names in sorted(new.items()):
            for name in sorted(names & theirs - ours):
                yield f"{path}: reads a variable that the tests set: {name.decode()}"

    def literal_branches(self, texts: Sequence[str]) -> tuple[str, ...]:
        """`path:line: entered only for …` of each added branch that is entered only for literals of these texts.

        Literals that the base's sources contain too are the program's own vocabulary.
        """
        found = _ask(process.find_literal_branches, self._sources, texts=list(texts))
        if found is None:
            return (REFUSED,)
        cases = [(path, line, [Literal(*each) for each in literals]) for path, line, literals in found]
        for delta in self._deltas:
            if _is_read(delta) and delta.new is not None:
                cases += [(delta.path, line, row) for line, row in literal_rows(delta.old, delta.new, texts)]
        numbers, words = (
            {each.text for *_, found in cases for each in found if each.number is kind} for kind in (True, False)
        )
        known = self._found(_QUOTED, words, self._sources) | self._found(_NUMBER, numbers, self._sources)
        return tuple(
            f"{path}:{line}: entered only for {', '.join(each.text for each in literals)}"
            for path, line, literals in cases
            if indicate_special_case(literals, known)
        )

    def keeps_state(self, text: str) -> tuple[str, ...]:
        """`path:line: name` of each added place that keeps something from one call to the next.

        An issue that asks for a memory and writes its name as code asks for just that.
        """
        found = _ask(process.find_kept_state, self._sources)
        if found is None:
            return (REFUSED,)
        asked_for = set(re.findall(r"[\w.]+", " ".join(_AS_CODE.findall(text)))) if _MEMORY.search(text) else set[str]()
        return tuple(f"{path}:{line}: {name}" for path, line, name in found if name not in asked_for)

    def shared_names(self, tests: Sequence[SourceText], text: str) -> tuple[str, ...]:
        """`path: name` of each name that the patch and these tests use, and that neither base nor issue has."""
        written = [
            ChangedSource(test.path, language, None, test.text.encode())
            for test in tests
            if (language := language_of(test.path)) is not None
        ]
        if not self._sources or not written:
            return ()
        found = _ask(process.find_shared_names, [*self._sources, *written], tests=[test.path for test in tests])
        if found is None:
            return (REFUSED,)
        names = {name for _, name in found if not re.search(_WHOLE.format(re.escape(name)), text)}
        known = self._occurring(self._readable, _WHOLE, names)  # anywhere in the base
        return tuple(f"{path}: {name}" for path, name in found if name in names - known)

    @cached_property
    def _readable(self) -> list[str]:
        entries = self.base.entries().items()
        return [path for path, entry in entries if entry.size <= _MAX_SOURCE and entry.mode != LINK]

    def _found(self, pattern: str, words: Collection[str], sources: Sequence[ChangedSource]) -> set[str]:
        """The words that occur in the base's sources, of the same languages, in the way of the pattern."""
        languages = {source.language for source in sources}
        paths = [path for path in self._readable if language_of(path) in languages and not is_test_path(path)]
        return self._occurring(paths, pattern, words)

    def _occurring(self, paths: Sequence[str], pattern: str, words: Collection[str]) -> set[str]:
        """The words that occur in these files of the base in the way of the pattern."""
        if not words:
            return set()
        compiled = re.compile(pattern.format("|".join(map(re.escape, sorted(words)))).encode("utf-8", "replace"))
        contents = self.base.read_many(paths[:_MAX_SEARCHED]).values()
        return {match.decode("utf-8", "replace") for content in contents for match in compiled.findall(content)}

    def _features(self) -> set[str]:
        """The features of the base's Rust packages; none if the patch changes which there are, or which are used."""
        if any(path.rpartition("/")[2] == "Cargo.toml" for path in self.patch.paths()):
            return set()
        paths = [path for path in self.base.entries() if path.rpartition("/")[2] == "Cargo.toml"][:_MAX_SEARCHED]
        found: set[str] = set()
        for content in self.base.read_many(paths).values():
            try:
                document = toml_table(content.decode())
            except ValueError:
                continue
            features = document.get("features")
            found.update(features if isinstance(features, dict) else ())
            needed = document.get("dependencies")
            for name, version in needed.items() if isinstance(needed, dict) else ():
                if isinstance(version, dict) and version.get("optional"):
                    found.add(name)
        return found

    def _functions(self) -> set[str]:
        """The names of the head's Python functions and classes that the sources name.

        As `module.name` if it is only assigned or imported there, so that it may be something else.
        """
        new = {source.path: source.new for source in self._sources if source.language == "python" and source.new}
        words = {word for content in new.values() for word in re.findall(rb"\w+", content)}
        found = set[bytes]()
        base = self.base.read_many([path for path in self._readable if path.endswith(".py")][:_MAX_SEARCHED])
        for path, content in (base | new).items():
            found |= words & {*_DEFINED.findall(content)}
            place = PurePosixPath(path)
            module = (place.parent.name if place.stem == "__init__" else place.stem).encode("utf-8", "replace")
            if module in words:
                names = {name for each in _REEXPORTED.findall(content) for name in _LAST_WORD.findall(each)}
                found |= {module + b"." + name for name in words & (names | {*_ASSIGNED.findall(content)})}
        return {word.decode("utf-8", "replace") for word in found}

    def _packages(self) -> set[str]:
        """The names of the base that an absolute import in Python may begin with.

        Those of directories that are not inside a package, and of files in a `src` or `lib`. As `directory:name`, for
        imports in and below that directory: files beside which no package begins, such as scripts; and by their whole
        name the modules in directories of an outermost package, which may also be where programs are started.
        """
        paths = [PurePosixPath(path) for path in self._readable if path.endswith(".py")]
        packages = {path.parent for path in paths if path.name == "__init__.py"} - {PurePosixPath()}
        found = {path.stem for path in paths if path.parent.name in ("src", "lib")}
        for path in paths:
            found |= {around.name for around in path.parents[:-1] if packages.isdisjoint(around.parents)}
            if path.parent not in packages:
                found.add(f"{path.parent}:{path.stem}")
            outermost = next((around for around in reversed(path.parents) if around in packages), None)
            if outermost is not None:
                module = path.parent if path.stem == "__init__" else path.with_suffix("")
                parts = module.relative_to(outermost).parts
                found |= {f"{outermost}:{'.'.join(parts)}"} if len(parts) > 1 else set()
        return found

    def _other_sources(self, languages: set[str], seed: int) -> list[ChangedSource]:
        """Some sources that the patch does not touch, from the directories in which it does."""
        changed = set(self.patch.paths())
        directories = {path.rpartition("/")[0] for path in changed}
        near = [
            path
            for path, entry in self.base.entries().items()
            if path.rpartition("/")[0] in directories
            and path not in changed
            and entry.mode != LINK
            and entry.size <= _MAX_OTHER
            and language_of(path) in languages
            and not is_test_path(path)
        ]
        chosen = Random(seed).sample(near, min(_OTHERS, len(near)))  # noqa: S311 - varied, not secret
        contents = self.base.read_many(chosen)
        return [ChangedSource(path, language_of(path) or "", contents[path], None) for path in sorted(contents)]

    def _versions(self, noisy: dict[str, bytes]) -> dict[str, bytes]:
        touched = set(self.patch.paths())
        paths = [path for path in self._readable if (path in touched or _has_version(path)) and not is_test_path(path)]
        before = self.base.read_many(paths)
        after = {change.path: change.content for change in self.patch.changes}
        made = {
            path: _with_next_version(path, noisy.get(path, content), after.get(path))
            for path, content in before.items()
        }
        return {path: content for path, content in made.items() if content is not None}

    def _patch(self, contents: dict[str, bytes]) -> Patch:
        modes = {path: entry.mode for path, entry in self.base.entries().items()} | {
            each.path: each.mode for each in self.patch.changes
        }
        changes = [
            FileChange(path=path, mode="100755" if modes[path] == "100755" else "100644", content=content)
            for path, content in sorted(contents.items())
        ]
        return Patch(base=self.patch.base, changes=tuple(changes))
