"""What the commands of CI, tox, nox, make and scripts install for a Python project, and how they run its tests."""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from app.core.text import words
from app.sandbox.setup.declared.ci import ci_jobs
from app.sandbox.setup.declared.commands import simple_commands, without_assignments
from app.sandbox.setup.declared.environments import (
    TASKS,
    hatch_commands,
    invoke_commands,
    nox_commands,
    pre_commit_commands,
    script_behind,
    task_commands,
    tox_commands,
)
from app.sandbox.setup.declared.python_metadata import editable, normalised, own_extras, read_metadata
from app.sandbox.setup.manifests import ManifestFiles, table, texts
from app.sandbox.setup.package_tools import PYTHON_TOOLS

MAX_DEPTH = 5
_TOOLS = words("""
    build codecov coveralls hatch nox pdm pip pip-tools pipenv poethepoet poetry pre-commit rye setuptools taskipy tox
    tox-gh tox-gh-actions tox-uv twine uv virtualenv wheel just
""")
"""What CI installs to be able to begin; none of it is the project's."""
_WITH_VALUE = words("""
    -i --index-url --extra-index-url --progress-bar --find-links -f --python -p --target --resolution --only-binary
    --no-binary --upgrade-strategy --timeout --retries --config-settings
""")
_RUN_OPTIONS: Mapping[str, frozenset[str]] = {
    "uv": words("--group --extra --with --python -p --only-group --with-requirements --no-group"),
    "poetry": frozenset(),
    "pdm": frozenset({"-p", "--venv"}),
    "pipenv": frozenset(),
    "rye": frozenset(),
    "pixi": frozenset({"-e", "--environment", "--manifest-path"}),
}
_TASK = ":task"
"""Stands for a task of pyproject.toml in front of its tool and name."""
_PYTEST_DROPPED = re.compile(
    r"--cov(?:=.*|-.*)?|--no-cov.*|--junit-?xml=.*|-[vqxsl]+|--verbose|--quiet|--tb=.*|--color=.*|--durations=.*|--basetemp=.*"
    r"|-n=?\w+|--numprocesses=.*|--dist=.*|--maxfail=.*|--exitfirst|--capture=.*|--html=.*|--benchmark-(?!disable|skip).*|--timeout=.*"
    r"|-r\w+|--reruns=.*|--hypothesis-.*|--full-trace|--randomly-.*|--strict|--showlocals|--no-header|--codspeed"
)
_PYTEST_DROPPED_PAIRS = words("""
    --cov --cov-report --cov-config --junitxml --junit-xml --tb --color --durations --basetemp -n --numprocesses --dist
    --maxfail -r --timeout --reruns --html --cov-fail-under
""")
_SERVICE = re.compile(r"://|localhost|127\.0\.0\.1")
_NOT_SET = re.compile(
    r"CI|PATH|HOME|TMPDIR|PYTHONHOME|PYTHONHASHSEED|PYTEST_ADDOPTS|NODE_OPTIONS|\w*COLORS?|\w*TOKEN"
    r"|(?:ACTIONS|COV|COVERAGE|GITHUB|HYPOTHESIS|LD|PIP|RUNNER|SETUPTOOLS|TOX|UV|VIRTUALENV|VIRTUAL_ENV)(?:_\w+)?"
)
"""Variables of CI and tox that are ours to set, or say nothing to the tests."""
_PYTHON = re.compile(r"(?:.*/)?(?:python|pypy)[\d.]*")
_PIP = re.compile(r"(?:.*/)?pip[\d.]*")
_UNITTEST_MAIN = re.compile(r"^\s*unittest\.main\(\)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class DeclaredSetup:
    """What one place says: pip's arguments, the test command, and the versions of Python it names.

    `source` is the place, for people; a higher `score` is a better description.
    """

    source: str
    score: int
    requirements: tuple[str, ...] = ()
    test: str = ""
    pythons: tuple[str, ...] = ()
    parallel: str = ""
    """In how many processes pytest runs the tests, and how it divides them: `auto`, `4 --dist=loadfile`."""


@dataclass(slots=True)
class _Reading:
    """What has been found so far while the commands of one place are followed."""

    files: ManifestFiles
    requirements: list[str] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)
    parallel: str = ""
    """Of the first of the tests."""
    seen: set[str] = field(default_factory=set)
    variables: Mapping[str, str] = field(default_factory=dict)
    """What the environment of a command is set to, in the place that is followed."""


def declared_setups(files: ManifestFiles) -> list[DeclaredSetup]:
    """One for each place that says how to test the project, the best first."""
    places = [
        *((job.source, job.script, job.values, job.pythons, 50 + 5 * job.score) for job in ci_jobs(files)),
        ("tox.ini", "tox", {}, (), 45),
        ("noxfile.py", "nox", {}, (), 43),
        ("Makefile, target test", "make test", {}, (), 35),
        (".pre-commit-config.yaml", "pre-commit", {}, (), 20),
    ]
    found: dict[tuple[tuple[str, ...], str], DeclaredSetup] = {}
    for source, script, values, pythons, score in places:
        reading = _Reading(files, variables=_of_job(values))
        _read_script(reading, script, values, 0)
        if not reading.tests:
            continue
        wanted = tuple(dict.fromkeys(reading.requirements))
        key = (tuple(sorted(wanted)), reading.tests[0])
        if key not in found:
            found[key] = DeclaredSetup(source, score, wanted, reading.tests[0], pythons, reading.parallel)
    return sorted(found.values(), key=lambda one: -one.score)


def declared_pythons(files: ManifestFiles) -> tuple[str, ...]:
    """All versions of Python that CI, classifiers and tox name, oldest first."""
    metadata = "\n".join(files.text(name) for name in ("pyproject.toml", "setup.py", "setup.cfg"))
    named = re.findall(r"Programming Language :: Python :: (3\.\d+)", metadata)
    named += [f"3.{minor}" for minor in re.findall(r"\bpy3(\d{1,2})\b", files.text("tox.ini"))]
    named += [version for job in ci_jobs(files) for version in job.pythons]
    return tuple(sorted({name for name in named if name.startswith("3.")}, key=lambda name: int(name[2:])))


def _read_script(reading: _Reading, script: str, values: Mapping[str, str], depth: int) -> None:
    if depth > MAX_DEPTH or script in reading.seen:
        return
    reading.seen.add(script)
    for command in simple_commands(script, values):
        words = without_assignments(command)
        assigned = words[1:] if words[:1] == ["export"] else command[: len(command) - len(words)]
        before = reading.variables
        reading.variables = {**before, **dict(word.split("=", 1) for word in assigned if "=" in word)}
        if words and words[0] != "export":
            _command(reading, words, values, depth)
            reading.variables = before


def _command(reading: _Reading, words: list[str], values: Mapping[str, str], depth: int) -> None:
    """One command: what it installs, the tests that it runs, or the script that it stands for."""
    words = _unwrapped(reading, words)
    if not words:
        return
    program, rest = words[0], words[1:]
    if program in _EXPANDED:
        _read_script(reading, _EXPANDED[program](reading.files, rest), values, depth + 1)
    elif (installed := _installed(reading, program, rest)) is not None:
        if not reading.tests:  # what is installed after the tests is for other ones
            reading.requirements += installed
    elif (tested := _tested(reading, program, rest)) is not None:
        start = "".join(
            f"{name}={value} " for name, value in reading.variables.items() if _is_set_for_tests(name, value)
        )
        reading.tests += [f"{start}{command}" if command else "" for command in tested]
    elif script := script_behind(reading.files, words):
        _read_script(reading, script, values, depth + 1)


def _of_job(values: Mapping[str, str]) -> dict[str, str]:
    """The variables of a job of CI; none if one is the address of a service, which is not here."""
    found = {name.removeprefix("env."): value for name, value in values.items() if name.startswith("env.")}
    return {} if any(map(_SERVICE.search, found.values())) else found


def _is_set_for_tests(name: str, value: str) -> bool:
    return re.fullmatch(r"[\w./:,+-]+", value) is not None and not _NOT_SET.fullmatch(name) and value != "$"


def _after(rest: list[str]) -> list[str]:
    """The words after `--`, without unknown ones."""
    return [word for word in rest[rest.index("--") + 1 :] if "$" not in word] if "--" in rest else []


def _hatch(files: ManifestFiles, rest: list[str]) -> str:
    if rest[:1] == ["test"]:
        return hatch_commands(files, "hatch-test:run")
    return hatch_commands(files, rest[1]) if rest[:1] == ["run"] and len(rest) > 1 else ""


_EXPANDED: Mapping[str, Callable[[ManifestFiles, list[str]], str]] = {
    "tox": lambda files, rest: tox_commands(files, _option(rest, "-e", "-m"), _after(rest)),
    "nox": lambda files, rest: nox_commands(files, _option(rest, "-s", "--session", "--sessions", "-e")),
    "pre-commit": lambda files, _rest: pre_commit_commands(files),
    "hatch": _hatch,
    "invoke": lambda files, rest: invoke_commands(files, rest[0]) if rest else "",
    "inv": lambda files, rest: invoke_commands(files, rest[0]) if rest else "",
    _TASK: lambda files, rest: task_commands(files, rest[0], rest[1]) if len(rest) > 1 else "",
}
"""Programs that read what they do from a file of the project."""


def _installed(reading: _Reading, program: str, rest: list[str]) -> list[str] | None:
    """The requirements that a command installs; None if it is not an installer."""
    if _PIP.fullmatch(program):
        return list(_pip(reading, rest))
    if program == "uv" and rest[:1] == ["pip"]:
        return list(_pip(reading, rest[1:]))
    if program in PYTHON_TOOLS:
        own = rest[:1] == ["sync"] or (rest[:1] == ["install"] and program != "rye")  # `rye install` is for tools
        return _synced(reading, rest[1:]) if own else []
    if (
        _PYTHON.fullmatch(program)
        and rest[:1] == ["setup.py"]
        and {"build", "build_ext", "develop", "install"} & set(rest)
    ):
        return ["-e ."]
    return None


def _tested(reading: _Reading, program: str, rest: list[str]) -> list[str] | None:
    """The test command that a command is; None if it runs no tests."""
    if program in {"pytest", "py.test"}:
        if not reading.tests:
            reading.parallel = _parallel(rest)
        return [_pytest(reading.files, rest)]
    if program == "unittest" or (program in {"django", "django-admin"} and rest[:1] == ["test"]):
        module = "unittest" if program == "unittest" else "django"
        return [shlex.join(["python3", "-m", module, *(word for word in rest if "$" not in word)])]
    if not _PYTHON.fullmatch(program) or not rest:
        return None
    if rest[0] == "setup.py" and "test" in rest[1:]:
        reading.requirements.append("-e .")
        return [""]
    path = rest[0].removeprefix("./")
    own = path in reading.files and re.search(r"(?:^|/)(?:run_?tests?|tests?)\.py$", path)
    if own or (path.endswith("manage.py") and rest[1:2] == ["test"]):
        arguments = [word for word in rest if "$" not in word]
        reported = own and len(rest) == 1 and _UNITTEST_MAIN.search(reading.files.text(path))
        return [shlex.join(["python3", *(["-m", "unittest", "-v"] if reported else []), *arguments])]
    return None


def _unwrapped(reading: _Reading, words: list[str]) -> list[str]:
    """Without what only starts the command: `uv run`, `coverage run -m`, `python -m pip`, `time`, `sudo`."""
    while words:
        head, rest = words[0], words[1:]
        if head.startswith("$"):  # an unknown variable in front, such as a virtual environment's directory
            head = head.lstrip("$").removeprefix("/")
            words = [head, *rest] if head else rest
        if head in {"poe", "task"}:
            return [_TASK, "poe" if head == "poe" else "taskipy", *(word for word in rest if word[:1] != "-")]
        if head in {"time", "sudo", "exec", "command", "xvfb-run", "env", "-", "dbus-run-session"} or "=" in head[1:]:
            words = rest
        elif head in _RUN_OPTIONS and rest[:1] == ["run"]:
            words, options = _after_options(rest[1:], _RUN_OPTIONS[head])
            _launched(reading, head, options)
            if words and head in TASKS and task_commands(reading.files, head, words[0]):
                return [_TASK, head, words[0]]
        elif head in {"uvx", "pipx"}:
            words, _ = _after_options(
                rest[1:] if rest[:1] == ["run"] else rest, frozenset({"--with", "--python", "--from"})
            )
        elif (started := _interpreted(head, rest)) is not None:
            words = started
        else:
            break
    return words


def _interpreted(head: str, rest: list[str]) -> list[str] | None:
    """The words of `python -m MODULE …`, and a program without its interpreter's options; None for other commands."""
    if head == "coverage" and rest[:1] == ["run"]:
        return (
            rest[rest.index("-m") + 1 :]
            if "-m" in rest
            else ["python", *(word for word in rest[1:] if word[:1] != "-")]
        )
    if _PYTHON.fullmatch(head) and "-m" in rest and all(word[:1] == "-" for word in rest[: rest.index("-m")]):
        return rest[rest.index("-m") + 1 :]
    flags = _PYTHON.fullmatch(head) and rest[:1] and re.fullmatch(r"-[bBEIsuW]+\S*", rest[0])
    return [head, *rest[1:]] if flags else None


def _after_options(words: list[str], with_value: frozenset[str]) -> tuple[list[str], list[str]]:
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in with_value else 1
    return words[at:], words[:at]


def _launched(reading: _Reading, head: str, options: list[str]) -> None:
    """`uv run` brings the project and its default groups by itself."""
    if head == "uv" and "--no-project" not in options:
        reading.requirements += _synced(reading, options)
        reading.requirements += [shlex.quote(item) for item in _values(options, "--with")]
    if head == "pixi":
        reading.requirements += _synced(reading, ["--no-dev", *_pixi_options(reading.files, options)])


def _pixi_options(files: ManifestFiles, options: list[str]) -> Iterator[str]:
    """The extras and groups with the names of an environment's features, as options of uv."""
    environments = table(files.toml("pyproject.toml"), "tool", "pixi", "environments")
    environment = environments.get(_option(options, "-e", "--environment"))
    for name in texts(environment.get("features") if isinstance(environment, dict) else environment):
        yield from (f"--extra={name}", f"--group={name}")


def _pytest(files: ManifestFiles, arguments: Iterable[str]) -> str:
    """`python3 -m pytest` with what chooses tests, and without what only changes the output or needs a plugin."""
    kept: list[str] = []
    previous = ""
    for word in arguments:
        option, previous = previous, word
        if not word.startswith("-") and (option in _PYTEST_DROPPED_PAIRS or _is_value(files, option, word)):
            continue
        if word in _PYTEST_DROPPED_PAIRS or _PYTEST_DROPPED.fullmatch(word) or "$" in word or "{" in word:
            continue
        kept.append(word)
    return shlex.join(["python3", "-m", "pytest", *kept])


def _parallel(words: list[str]) -> str:
    """The number of processes among pytest's options, and how the tests are divided; empty without more than one."""
    text = " ".join(words)
    number = re.search(r"(?<!\S)(?:-n ?=?|--numprocesses[= ])(auto|logical|[2-9]|[1-9]\d)(?!\S)", text)
    divided = re.search(r"(?<!\S)--dist[= ](load\w*|worksteal)(?!\S)", text)
    return " ".join([number[1], *([f"--dist={divided[1]}"] if divided else [])]) if number else ""


def _is_value(files: ManifestFiles, option: str, word: str) -> bool:
    """Whether a word after an option that is left out belongs to that option: it names nothing in the tree."""
    if not option.startswith("--") or not _PYTEST_DROPPED.fullmatch(option) or "=" in option or "*" in word:
        return False
    path = word.partition("::")[0].removeprefix("./").rstrip("/")
    return path != "." and not any(file == path or file.startswith(f"{path}/") for file in files)


def _pip(reading: _Reading, arguments: list[str]) -> Iterator[str]:
    previous = ""
    for word in arguments[1:] if arguments[:1] == ["install"] else ():
        option, previous = previous, word
        if option in _WITH_VALUE or (re.search(r"[${]", word) and not word.startswith("dist/")):
            continue
        if option in {"-r", "--requirement", "-c", "--constraint"}:
            yield from _listed(reading.files, option, word)
        elif option == "--group":
            yield from _group(reading, word.rpartition(":")[2])
        else:
            yield from _argument(reading.files, word, editable=option in {"-e", "--editable"})


def _directories(files: ManifestFiles) -> frozenset[str]:
    """Where a project begins."""
    return frozenset(path.rpartition("/")[0] + "/" for path in files if path.endswith(("/pyproject.toml", "/setup.py")))


def _argument(files: ManifestFiles, word: str, *, editable: bool) -> Iterator[str]:
    if word.startswith("-r") and len(word) > 2:
        yield from _listed(files, "-r", word[2:])
    elif editable or word.startswith(".") or f"{word.partition('[')[0].strip('/')}/" in _directories(files):
        yield from _local(files, word)
    elif word.startswith("dist/"):
        yield "-e ."
    elif word[:1].isalnum() and "/" not in word and normalised(re.split(r"[\[<>=!~; @]", word)[0]) not in _TOOLS:
        yield shlex.quote(word)


def _listed(files: ManifestFiles, option: str, path: str) -> Iterator[str]:
    plain = path.removeprefix("./")
    if plain in files:
        yield f"{'-c' if option in {'-c', '--constraint'} else '-r'} {shlex.quote(plain)}"


def _local(files: ManifestFiles, word: str) -> Iterator[str]:
    """A project of the tree, always editable."""
    path, _, extras = word.partition("[")
    directory = path.removeprefix("file://").removeprefix("./").strip("/").removeprefix(".")
    prefix = f"{directory}/" if directory else ""
    if any(f"{prefix}{name}" in files for name in ("pyproject.toml", "setup.py", "setup.cfg")):
        yield editable(prefix, [extras.removesuffix("]")])


def _group(reading: _Reading, name: str) -> Iterator[str]:
    metadata = read_metadata(reading.files, "")
    groups = {normalised(key): items for key, items in metadata.groups.items()}
    for item in groups.get(normalised(name), ()):
        if (extras := own_extras(metadata, item)) is not None:
            yield editable("", extras)
        elif item.strip()[:1].isalnum():
            yield shlex.quote(item.strip())


def _synced(reading: _Reading, options: list[str]) -> list[str]:
    """What uv, Poetry, PDM and Pipenv install: the project, the groups that are there by default, and those named."""
    metadata = read_metadata(reading.files, "")
    every = "--all-extras" in options
    names = [name for word in _values(options, "--extra", "--extras", "-E") for name in re.split(r"[\s,]+", word)]
    extras = list(metadata.extras) if every else [name for name in names if name in metadata.extras]
    found = [editable("", extras)]
    uv = table(reading.files.toml("pyproject.toml"), "tool", "uv")
    default = texts(uv.get("default-groups")) or (["dev"] if "dev" in metadata.groups else [])
    if uv.get("default-groups") == "all" or "--all-groups" in options:
        default = list(metadata.groups)
    only = _values(options, "--only-group", "--only")
    chosen = only or [*default, *_values(options, "--group", "--with", "-G", "--only-dev")]
    if {"--no-dev", "--no-default-groups", "--prod"} & set(options):
        chosen = _values(options, "--group", "--with", "-G")
    without = set(_values(options, "--no-group", "--without"))
    if not metadata.installable:
        found = [shlex.quote(item) for item in metadata.requirements]
    for group in dict.fromkeys(name for word in chosen for name in re.split(r"[\s,]+", word)):
        if group not in without:
            found += _group(reading, group)
            if group in metadata.extras:
                found.append(editable("", [group]))
    return found


def _values(words: list[str], *options: str) -> list[str]:
    """The values of an option, written in one word or two."""
    found = [after for word, after in pairwise(words) if word in options and not after.startswith("-")]
    return found + [word.partition("=")[2] for word in words if word.partition("=")[0] in options and "=" in word]


def _option(words: list[str], *options: str) -> str:
    value = next(iter(_values(words, *options)), "")
    return "" if "$" in value else value.partition(",")[0]
