"""What a package of Node declares: the test runner behind its scripts, what has to be built before it, and its Node."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from itertools import pairwise
from typing import Any, NamedTuple

from app.core.globs import glob_expression
from app.core.text import words
from app.sandbox.setup.declared.ci import ci_jobs
from app.sandbox.setup.declared.commands import is_assignment, simple_commands
from app.sandbox.setup.declared.environments import script_behind
from app.sandbox.setup.manifests import ManifestFiles, table
from app.sandbox.setup.package_tools import NODE_TOOLS

MAX_DEPTH = 6
MAX_NEIGHBOURS = 50
RUNNERS = words("vitest jest mocha ava tape tap jasmine uvu qunit lab borp tsd-jest")
_TAP_LIBRARIES = frozenset({"tap", "tape", "blue-tape", "supertape", "zora"})
_CHECKS = words("""
    eslint xo standard prettier tsd attw publint biome oxlint oxfmt jshint jscs size-limit depcheck eclint evalmd
    commitlint dtslint ts-standard semistandard remark markdownlint knip tslint flow vue-tsc dprint changeset
    bundlewatch snyk del-cli rimraf rm type-coverage gzip-size
""")
_CHECK_NAMES = re.compile(
    r"(?:^|[:-])(?:lint|types?|typecheck|type-check|tsc|tsd|format|fmt|docs?|size|spell|check|standard|audit)(?:$|[:-])"
)
_WRAPPERS = frozenset({"nyc", "c8", "cross-env", "dotenv", "env", "time", "istanbul", "xvfb-run"})
_SEQUENCE = frozenset({"npm-run-all", "npm-run-all2", "run-s", "run-p", "concurrently", "wireit"})
OF_EACH = {"turbo": ["--continue"], "nx": [], "lerna": ["--no-bail"]}
"""Programs that run a script of every package of a workspace, with what makes them go on after one that fails."""
EVERY = ("-r", "--recursive", "--workspaces", "-ws", "--ws", "workspaces")
"""Words with which package managers do so."""
_WITH_VALUE = words("--filter -F --prefix --workspace -w --cwd --reporter --report-dir -r")
_NOT_KEPT = words("--watch -w --watchAll --coverage --ci --verbose --silent --ui --coverage.enabled --check-coverage")
_NOT_KEPT_WITH_VALUE = re.compile(
    r"--(?:coverage|reporters?|reporter-(?:options?|outfile)|maxWorkers|watch(?:All)?)[=.]"
)
_WITH_REPORTER = words("--reporter -R --reporters --coverageReporters --lines --functions --branches --statements")
_STOPS = re.compile(r"--bail(?:=.*)?|-b|--fail-fast")
_WITHOUT_EFFECT = words("""
    echo true exit cd set export unset source . [ trap printf return pwd continue break wait sleep codecov coveralls
    karma wdio playwright cypress
""")
"""What builds nothing that later commands see, and runners in a browser."""
_NO_PACKAGE = frozenset({"node", "bun", "mkdir", "cp", "mv", "sh", "bash"})
_WRITES = re.compile(r"(?<![-=\d&])>\s*(?!/dev/)[\w.$]")
"""A script that writes a file with what a command prints."""


@dataclass(slots=True)
class NodeScripts:
    """What `npm test` comes to: `runner` is empty if no known one is behind it.

    `before` are the commands that build what the tests need, `checks` those that look at style and types. `stops_early`
    means that the project's own command ends with the first failure; `runner` does not. `of_each` starts the script
    `test` of every package of a workspace, and hands them the words after it.
    """

    runner: str = ""
    before: list[str] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    stops_early: bool = False
    of_each: str = ""


@dataclass(slots=True)
class _PackageReading:
    """A package at `root` while its scripts are followed; each text is followed once."""

    files: ManifestFiles
    root: str
    package: Mapping[str, Any]
    scripts: Mapping[str, str]
    values: Mapping[str, str] | None = None
    """The variables of a job of CI, if that is followed; its steps prepare what is no part of the project, too."""
    found: NodeScripts = field(default_factory=NodeScripts)
    seen: set[str] = field(default_factory=set)


def uses_node_test(files: ManifestFiles, words: list[str], root: str = "") -> bool:
    """Whether a command is `node FILE`, with a file that is written for Node's own test runner or loads such files."""
    named = [f"{root}{word.removeprefix('./')}" for word in words[1:] if words[0] == "node"]
    found = [path for path in named if path in files]
    neighbours = [path for path in files for each in found if path.rpartition("/")[0] == each.rpartition("/")[0] != ""]
    return any("node:test" in files.text(path) for path in [*found, *neighbours[:MAX_NEIGHBOURS]])


def _prints_tap(package: Mapping[str, Any], words: list[str]) -> bool:
    """Whether a command is `node FILE` in a project whose tests are written with a library that prints TAP."""
    known = {*table(package, "devDependencies"), *table(package, "dependencies")}
    return words[0] == "node" and words[1:] != [] and words[-1][:1] != "-" and not known.isdisjoint(_TAP_LIBRARIES)


def node_scripts(files: ManifestFiles, root: str = "") -> NodeScripts:
    """Follow the script `test` of package.json through the scripts that it calls, make and scripts of the shell."""
    reading = _reading(files, root)
    _script(reading, "test", [], 0)
    found = reading.found
    last = found.before[-1].split() if found.before and not (found.runner or found.of_each) else []
    if last and (_prints_tap(reading.package, last) or uses_node_test(files, last, root)):
        found.runner = found.before.pop()
    return found


def node_jobs(files: ManifestFiles) -> Iterator[tuple[str, NodeScripts]]:
    """The same for each job of CI that runs tests: what it builds before them are scripts of the package."""
    for job in ci_jobs(files):
        reading = _reading(files, "", job.values)
        _read_script(reading, job.script, [], 0)
        if reading.found.runner or reading.found.of_each:
            yield job.source, reading.found


def _reading(files: ManifestFiles, root: str, values: Mapping[str, str] | None = None) -> _PackageReading:
    package = files.json(f"{root}package.json")
    scripts = {key: text for key, text in table(package, "scripts").items() if isinstance(text, str)}
    return _PackageReading(files, root, package, scripts, values)


def _script(reading: _PackageReading, name: str, arguments: list[str], depth: int) -> None:
    if name not in reading.scripts or depth > MAX_DEPTH:
        return
    if _CHECK_NAMES.search(name):
        reading.found.checks.append(f"npm run {shlex.quote(name)}")
        return
    known = len(reading.found.before)
    if f"pre{name}" in reading.scripts:
        _script(reading, f"pre{name}", [], depth + 1)
    _read_script(reading, reading.scripts[name], arguments, depth)
    if depth and _WRITES.search(reading.scripts[name]) and not (reading.found.runner or reading.found.of_each):
        reading.found.before[known:] = [shlex.join(["npm", "run", name])]  # as single commands it would write nothing


def _read_script(reading: _PackageReading, script: str, arguments: list[str], depth: int) -> None:
    if depth > MAX_DEPTH or script in reading.seen:
        return
    reading.seen.add(script)
    commands = simple_commands(script, reading.values, piped=False)
    for number, command in enumerate(commands):
        last = number == len(commands) - 1
        _command(reading, [*command, *(arguments if last else [])], depth)


def _command(reading: _PackageReading, words: list[str], depth: int) -> None:
    found = reading.found
    assigned, words = _unwrapped(words)
    if not words or found.runner or found.of_each:
        return
    program, rest = words[0].rpartition("/")[2], words[1:]
    if each := _of_each(program, rest):
        found.of_each = _joined([*assigned, *each])
    elif _calls(reading, words, depth):
        return
    elif program in RUNNERS or (program == "node" and "--test" in rest) or (program == "bun" and "test" in rest[:1]):
        found.stops_early = program != "node" and any(map(_STOPS.fullmatch, rest))
        if program == "node":
            found.runner = _joined([*assigned, *words])
        elif program == "bun":
            found.runner = _joined([*assigned, program, *_kept(program, rest)])
        else:
            found.runner = _joined([*assigned, "npx", "--no-install", program, *_kept(program, rest)])
    elif program in _CHECKS or (program == "tsc" and "--noEmit" in rest):
        found.checks.append(shlex.join(["npx", "--no-install", program, *rest]))
    elif (
        (depth or reading.values is None) and program not in _WITHOUT_EFFECT and not any("$" in word for word in words)
    ):
        own = program in _NO_PACKAGE or ("/" in words[0] and "node_modules/" not in words[0])
        found.before.append(_joined([*assigned, *(words if own else ["npx", "--no-install", program, *rest])]))


def _calls(reading: _PackageReading, words: list[str], depth: int) -> bool:
    """Whether a command only runs others, which are followed: the package's scripts, make, or a script of the shell."""
    called = _called(words[0].rpartition("/")[2], words[1:], reading.scripts)
    for name, arguments in called or ():
        _script(reading, name, arguments, depth + 1)
    script = script_behind(reading.files, words, reading.root) if called is None else None
    if script is not None:
        _read_script(reading, script, [], depth + 1)
    return called is not None or script is not None


def _of_each(program: str, rest: list[str]) -> list[str]:
    """The command again, ready for words to be handed on, if it runs the tests of every package; else nothing."""
    if "test" not in rest and "--target=test" not in rest:
        return []
    if program in OF_EACH:
        return ["npx", "--no-install", program, *rest, *([*OF_EACH[program], "--"] if "--" not in rest else [])]
    every = program in NODE_TOOLS and not set(EVERY).isdisjoint(rest)
    on = ["--no-bail"] if program == "pnpm" else []
    return [program, *on, *rest, *(["--"] if program == "npm" and "--" not in rest else [])] if every else []


def _unwrapped(words: list[str]) -> tuple[list[str], list[str]]:
    """The variables that are set for a command, and the command without what measures coverage around it."""
    assigned: list[str] = []
    while words:
        head = words[0].rpartition("/")[2]
        if is_assignment(words[0]):
            assigned.append(words[0])
            words = words[1:]
        elif head in _WRAPPERS:
            words = words[1:]
            while words and words[0].startswith("-"):
                words = words[1:] if "=" in words[0] or words[0] not in _WITH_VALUE else words[2:]
            if head in {"nyc", "c8", "istanbul"} and words[:1] and words[0] in {"report", "check-coverage", "cover"}:
                words = words[1:] if words[0] == "cover" else []
        elif head == "npx" or (head in NODE_TOOLS and words[1:2] in (["exec"], ["dlx"])):
            words = words[1:] if head == "npx" else words[2:]
            while words and words[0].startswith("-"):
                words = words[1:]
        elif head == "node" and len(words) > 1 and (package := re.search(r"node_modules/([\w-]+)/", words[1])):
            words = [package[1], *words[2:]]
        elif head == "node" and len(words) > 1 and "node_modules/" in words[1]:
            words = words[1:]
        else:
            break
    return assigned, words


def _called(program: str, rest: list[str], scripts: Mapping[str, str]) -> list[tuple[str, list[str]]] | None:
    """The scripts that a command runs, with the arguments it hands on; None if it runs none."""
    if program in _SEQUENCE:
        wanted = [word.removeprefix("npm:") for word in rest if not word.startswith("-")]
        return [(name, []) for word in wanted for name in _matching(word, scripts)]
    if program not in NODE_TOOLS or (program == "bun" and _is_bun_program(rest)):
        return None
    words = list(rest)
    while words and words[0].startswith("-"):
        words = words[2:] if words[0] in _WITH_VALUE else words[1:]
    if words[:1] in (["run"], ["run-script"]):
        words = words[1:]
        while words and words[0].startswith("-"):
            words = words[1:]
    if not words:
        return []
    if pattern := re.fullmatch(r"/(.+)/", words[0]):  # pnpm runs every script whose name matches
        return [(name, []) for name in scripts if _searches(pattern[1], name)]
    name = {"t": "test", "tst": "test"}.get(words[0], words[0])
    if name not in scripts:
        return None if program != "npm" and name in RUNNERS else []
    own = words.index("--") if program == "npm" and "--" in words else len(words) if program == "npm" else 0
    arguments = [word for word in words[1:own] if word[:1] != "-"] + words[max(own, 1) :]
    arguments = [word for word in arguments if word not in {"--", "--if-present", "-s", "--silent"}]
    return [(name, arguments)]


def _is_bun_program(words: list[str]) -> bool:
    """`bun test` is Bun's own runner, whatever scripts there are; `bun build.ts` and `bun run a.ts` are programs."""
    named = [word for word in words if not word.startswith("-")]
    return named[:1] == ["test"] or any(word.endswith((".ts", ".js")) for word in named[: 1 + (named[:1] == ["run"])])


def _searches(pattern: str, name: str) -> bool:
    """Only what is plain: the pattern is the project's own."""
    pattern = re.sub(r"\.[*+]\$?$", "", pattern)
    anchored = pattern.removeprefix("^").removesuffix("$")
    if re.search(r"[^\w:-]", anchored):
        return False
    begins, ends = pattern.startswith("^"), pattern.endswith("$")
    return re.search(f"{'^' if begins else ''}{re.escape(anchored)}{'$' if ends else ''}", name) is not None


def _matching(pattern: str, scripts: Mapping[str, str]) -> list[str]:
    """The scripts that a pattern such as `test:*` names: npm-run-all reads it as a path with `:` for `/`."""
    swapped = str.maketrans(":/", "/:")
    expression = glob_expression(pattern.translate(swapped))
    return [name for name in scripts if expression.fullmatch(name.translate(swapped))]


def _kept(program: str, arguments: list[str]) -> list[str]:
    """Without watch modes, coverage, reporters and an end at the first failure: our own report is asked for beside."""
    kept, skip = [], False
    for word, following in pairwise([*arguments, ""]):
        if skip:
            skip = False
        elif word in _WITH_REPORTER or (word == "--bail" and following.isdigit()):
            skip = True
        elif (
            word not in _NOT_KEPT
            and "$" not in word
            and not _STOPS.fullmatch(word)
            and not _NOT_KEPT_WITH_VALUE.match(word)
        ):
            kept.append(word)
    if program == "vitest" and kept[:1] not in (["run"], ["related"], ["bench"]):
        kept = ["run", *kept]
    return kept


def _joined(words: list[str]) -> str:
    """One command again; a plain pattern is the shell's to expand, as it was, and `**` the runner's."""
    return " ".join(
        word if re.fullmatch(r"[\w./-]*\*[\w./*-]*", word) and "**" not in word else _quoted(word) for word in words
    )


def _quoted(word: str) -> str:
    name, equals, value = word.partition("=")
    return f"{name}={shlex.quote(value)}" if equals and name.isidentifier() else shlex.quote(word)


# The version of Node that a project needs, or is tested on: `engines`, version files, CI and its package manager.

Version = tuple[int, int, int]

_COMPARATOR = re.compile(r"(\^|~>?|>=|<=|>|<|=)?\s*v?(\d+)(?:\.(\d+))?(?:\.(\d+))?")
_HYPHEN = re.compile(r"(\S+)\s+-\s+(\S+)")
_MAJOR = re.compile(r"v?(\d+)\b(?!-)")
_NEWEST = re.compile(r"lts(?:/\*)?|latest|current|node|stable|\*")
_CLIENT_NEEDS = (("pnpm", 11, ">=22.13"), ("pnpm", 9, ">=18.12"), ("yarn", 4, ">=18.12"))
"""What a package manager from that major version on needs, the newest first."""
_END: Version = (10**6, 0, 0)


class NodeChoice(NamedTuple):
    """Major versions: the one without which nothing is tried, and one to try beside; empty for this machine's."""

    needed: str = ""
    other: str = ""


def choose_node(files: ManifestFiles, root: str, own: str, committed: date) -> NodeChoice:
    """`own` is this machine's version (`20.1.0`), empty if unknown: then nothing is chosen."""
    found = _parsed(own)
    if found is None:
        return NodeChoice()
    package = files.json(f"{root}package.json")
    engine = table(package, "engines").get("node")
    ranges = [text for text in (engine, _range_of_client(str(package.get("packageManager", "")))) if text]
    ranges = [text for text in ranges if isinstance(text, str)]
    named = sorted(set(_named(files, root, committed)))
    after = (*found[:2], found[2] + 1)
    if not all(_overlaps(text, found, after) for text in ranges):
        return NodeChoice(needed=_nearest(found[0], named, ranges))
    if not named or found[0] in named:
        return NodeChoice()
    nearest = _nearest(found[0], named, ranges)
    return NodeChoice(needed=nearest) if not engine and found[0] < named[0] else NodeChoice(other=nearest)


def _nearest(own: int, named: list[int], ranges: list[str]) -> str:
    """The version nearest to this machine's that the ranges admit: of those named, else of the even ones, which are
    supported for long; a newer one before an older one."""
    for majors in (named, range(4, own + 20, 2)):
        possible = [each for each in majors if all(_overlaps(text, (each, 0, 0), (each + 1, 0, 0)) for text in ranges)]
        if possible:
            return str(min(possible, key=lambda each: (each < own, abs(each - own))))
    return ""


def _named(files: ManifestFiles, root: str, committed: date) -> Iterator[int]:
    """The major versions in version files, package.json and jobs of CI."""
    texts = [files.text(f"{place}{name}") for place in {"", root} for name in (".nvmrc", ".node-version")]
    texts.append(str(table(files.json(f"{root}package.json"), "volta").get("node", "")))
    texts += re.findall(r"^nodejs\s+(\S+)", files.text(".tool-versions"), re.MULTILINE)
    texts += [version for job in ci_jobs(files) if job.score >= 0 for version in job.nodes]
    for text in map(str.strip, texts):
        if found := _MAJOR.match(text):
            yield int(found[1])
        elif _NEWEST.fullmatch(text):
            yield 2 * (committed.year - (2013 if committed.month > 10 else 2014))  # each October one becomes LTS


def _range_of_client(named: str) -> str:
    """The range of a package manager that package.json names, such as `pnpm@11.0.2`."""
    tool, _, version = named.partition("@")
    found = _MAJOR.match(version)
    needs = (text for name, least, text in _CLIENT_NEEDS if found and tool == name and int(found[1]) >= least)
    return next(needs, "")


def _overlaps(text: str, low: Version, high: Version) -> bool:
    """Whether a range of npm's, such as `^18.2 || >=20`, admits a version from `low` to below `high`."""
    for alternative in text.split("||"):
        least, end = low, high
        for operator, *parts in _COMPARATOR.findall(_HYPHEN.sub(r">=\1 <=\2", alternative)):
            begins, ends = _bounds(operator, [int(part) for part in parts if part])
            least, end = max(least, begins), min(end, ends)
        if least < end:
            return True
    return False


def _bounds(operator: str, parts: list[int]) -> tuple[Version, Version]:
    """The first version of a comparator, and the first after it; exact ones stand for their major version."""
    major, minor, patch = (*parts, 0, 0)[:3]
    least: Version = (major, minor, patch)
    written_to = (*parts[:-1], parts[-1] + 1, 0, 0)[:3]
    after: Version = (written_to[0], written_to[1], written_to[2])
    if operator in {">=", ">"}:
        return (least if operator == ">=" else after), _END
    if operator in {"<", "<="}:
        return (0, 0, 0), (least if operator == "<" else after)
    if operator.startswith("~") and len(parts) > 1:
        return least, (major, minor + 1, 0)
    return (least if operator else (major, 0, 0)), (major + 1, 0, 0)


def _parsed(version: str) -> Version | None:
    found = re.match(r"v?(\d+)\.(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None
