"""The jobs of CI as scripts: GitHub, GitLab, CircleCI, Azure, Travis and AppVeyor."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from app.sandbox.setup.declared.commands import MAX_SCRIPT, expanded
from app.sandbox.setup.manifests import ManifestFiles, table, texts

MAX_JOBS = 60
MAX_ROWS = 256
"""As many jobs as GitHub lets a matrix have."""
MAX_KEYS = 50
"""Lists of a matrix."""
MAX_NESTED = 20
"""Actions of the tree in one job."""
MAX_STEPS = 20_000
"""Of one job, with those of its actions."""
MAX_VARIABLES = 200
"""Of one job, with those of its steps."""
MAX_VALUE = 1_000
"""Characters of a variable that is followed."""
_ACTION = re.compile(r"(?:.+/)?action\.ya?ml")
_GITHUB = re.compile(r"\.github/workflows/[^/]+\.ya?ml")
_OTHERS = (
    ".gitlab-ci.yml",
    ".circleci/config.yml",
    "azure-pipelines.yml",
    ".travis.yml",
    "appveyor.yml",
    ".appveyor.yml",
)
_OTHER_SYSTEM = re.compile(r"windows|macos|osx", re.IGNORECASE)
_TESTS = re.compile(r"test|pytest|tox|build|ci\b|check|unit|linux|python|node", re.IGNORECASE)
_NOT_TESTS = re.compile(
    r"lint|docs?\b|type|mypy|release|publish|deploy|bench|perf|codeql|zizmor|stale|lock|downstream|coverage$|wheel"
    r"|nightly|min(imum)?\b|pypy|wasm|emscripten|pyodide|integration|e2e|browser|fuzz|miri|format|spell|size|docker",
    re.IGNORECASE,
)
_VERSION = re.compile(r"\d+\.\d+")


@dataclass(frozen=True, slots=True)
class CiJob:
    """One job: where it is written, its commands with their variables, and the versions its matrix names.

    `score` is higher the more its names speak for the main tests.
    """

    source: str
    script: str
    values: Mapping[str, str]
    pythons: tuple[str, ...] = ()
    score: int = 0
    nodes: tuple[str, ...] = ()


_JobCandidate = tuple[int, Callable[[int], CiJob | None]]
"""A job's score, and what makes the job of it; None if it is for another system or has no commands."""


def ci_jobs(files: ManifestFiles) -> list[CiJob]:
    """The jobs of the CI files that are understood, the most likely to run the tests first: up to MAX_JOBS."""
    candidates: list[_JobCandidate] = []
    actions = {path: files.yaml(path) for path in files if _ACTION.fullmatch(path)}
    for path in files:
        if _GITHUB.fullmatch(path):
            candidates += _github(path, files.yaml(path), actions)
    for path in _OTHERS:
        if path in files:
            candidates += _other_providers(path, files.yaml(path))
    candidates.sort(key=lambda one: -one[0])
    # a script is only put together if it is used: actions and steps may be in each job
    jobs = (read(score) for score, read in candidates)
    return list(islice(filter(None, jobs), MAX_JOBS))


def _github(path: str, document: dict[str, Any], actions: Mapping[str, dict[str, Any]]) -> Iterator[_JobCandidate]:
    for name, job in table(document, "jobs").items():
        if isinstance(job, dict) and isinstance(job.get("steps"), list):
            score = _score(path.rpartition("/")[2], f"{name} {_text(job.get('name'))}".rstrip())
            yield score, partial(_github_job, f"{path}, job {name}", job, document.get("env"), actions)


def _github_job(
    source: str, job: dict[str, Any], environment: Any, actions: Mapping[str, dict[str, Any]], score: int
) -> CiJob | None:
    rows = _rows(job.get("strategy"))
    if _OTHER_SYSTEM.search(_runner_labels(job.get("runs-on"))) and not rows:
        return None
    steps = list(islice(_steps(job["steps"], actions, set()), MAX_STEPS))
    script = _limited_script(_text(step.get("run")) for step in steps if not _elsewhere(step))
    given = [step["with"] for step in steps if isinstance(step.get("with"), dict)]
    named = [_text(each.get("python-version")) for each in given]
    nodes = [value for row in rows for key, value in row.items() if "node" in key.lower()]
    nodes += [version for each in given if (version := _text(each.get("node-version")))]
    values = _chosen(rows)
    _set_variables(values, [environment, *(owner.get("env") for owner in (job, *steps))])
    pythons = tuple(dict.fromkeys(_VERSION.findall(" ".join([*(_python(row) for row in rows), *named]))))
    return CiJob(source, script, values, pythons, score, tuple(nodes))


def _limited_script(lines: Iterable[str]) -> str:
    """A script of the lines up to the first that does not fit into MAX_SCRIPT characters."""
    found: list[str] = []
    left = MAX_SCRIPT
    for line in filter(None, lines):
        left -= len(line) + 1
        if left < 0:
            break
        found.append(line)
    return "\n".join(found)


def _runner_labels(runs_on: Any) -> str:
    """The labels and the group of the machines that a job asks for."""
    if isinstance(runs_on, dict):
        return " ".join([*_lines(runs_on.get("labels")), _text(runs_on.get("group"))])
    return " ".join(_lines(runs_on))


def _steps(listed: Any, actions: Mapping[str, dict[str, Any]], seen: set[str]) -> Iterator[dict[str, Any]]:
    """The steps of a job, with those of an action of the tree in its place; each action once."""
    for step in listed if isinstance(listed, list) and len(seen) < MAX_NESTED else ():
        uses = _text(step.get("uses")) if isinstance(step, dict) else ""
        if (place := uses.removeprefix("./").rstrip("/")) != uses and place not in seen:
            seen.add(place)
            action = actions.get(f"{place}/action.yml") or actions.get(f"{place}/action.yaml")
            yield from _steps(table(action, "runs").get("steps"), actions, seen)
        elif isinstance(step, dict):
            yield step


def _set_variables(values: dict[str, str], environments: Iterable[Any]) -> None:
    """Add the variables whose values are known, of the first MAX_VARIABLES."""
    every = (item for each in environments if isinstance(each, dict) for item in each.items())
    for name, written in islice(every, MAX_VARIABLES):
        value = expanded(written, values) if isinstance(written, str) else "$"
        if "$" not in value and len(value) <= MAX_VALUE:
            values |= {name: value, f"env.{name}": value}


def _elsewhere(step: dict[str, Any]) -> bool:
    """Steps that only another system executes, or in another directory."""
    condition = _text(step.get("if"))
    return bool(_OTHER_SYSTEM.search(condition) and "!=" not in condition) or "working-directory" in step


def _rows(strategy: Any) -> list[dict[str, str]]:
    """The rows of a matrix that run on Linux, each value by `matrix.name`; of the plain lists only the first row."""
    matrix = strategy.get("matrix") if isinstance(strategy, dict) else None
    if not isinstance(matrix, dict):
        return []
    include = matrix.get("include")
    included = [row for row in include[:MAX_ROWS] if isinstance(row, dict)] if isinstance(include, list) else []
    lists = (
        (key, value[:MAX_ROWS])
        for key, value in matrix.items()
        if value and isinstance(value, list) and key not in ("include", "exclude")
    )
    plain: list[dict[str, str]] = []
    for key, value in islice(lists, MAX_KEYS):
        for number, item in enumerate(value):
            row = plain[number] if number < len(plain) else dict(plain[-1] if plain else {})
            row[key] = item if isinstance(item, str) else ""
            if number >= len(plain):
                plain.append(row)
        for row in plain[len(value) :]:
            row[key] = value[-1] if isinstance(value[-1], str) else ""
    rows = [*plain, *({key: item for key, item in row.items() if isinstance(item, str)} for row in included)]
    return [row for row in rows if not _OTHER_SYSTEM.search(" ".join(row.values()))]


def _python(row: Mapping[str, str]) -> str:
    """What a row says of its version of Python; `py39` and `pypy` are for others to read."""
    return " ".join(value for key, value in row.items() if "py" in key.lower() and "pypy" not in value)


def _chosen(rows: list[dict[str, str]]) -> dict[str, str]:
    """The row to fill in: the last one whose values name no special variant."""
    plain = [row for row in rows if not _NOT_TESTS.search(" ".join(row.values()))]
    row = (plain or rows or [{}])[0]
    return {f"matrix.{key}": "" if value == "null" else value for key, value in row.items()}


def _score(file: str, title: str) -> int:
    points = (2 if _TESTS.search(title) else 0) + (1 if _TESTS.search(file) else 0)
    return points - (3 if _NOT_TESTS.search(title) else 0) - (2 if _NOT_TESTS.search(file) else 0)


def _other_providers(path: str, document: dict[str, Any]) -> Iterator[_JobCandidate]:
    """GitLab, CircleCI, Azure, Travis and AppVeyor: every list of commands in a job is taken in order."""
    if path in (".travis.yml", "appveyor.yml", ".appveyor.yml"):
        yield 1 if path == ".travis.yml" else -1, partial(_whole_file, path, document)
        return
    before = _lines(document.get("before_script"))
    jobs = document.get("jobs", document)
    for name, job in jobs.items() if isinstance(jobs, dict) else enumerate(jobs) if isinstance(jobs, list) else ():
        if isinstance(job, dict):
            title = _text(job.get("job")) or str(name)
            yield _score("", title), partial(_other_job, f"{path}, job {title}", job, before)


def _whole_file(path: str, document: dict[str, Any], score: int) -> CiJob:
    keys = ("before_install", "install", "before_script", "script", "test_script")
    script = _limited_script(line for key in keys for line in _lines(document.get(key)))
    pythons = tuple(dict.fromkeys(_VERSION.findall(" ".join(_lines(document.get("python"))))))
    return CiJob(path, script, {}, pythons, score, tuple(_lines(document.get("node_js"))))


def _other_job(source: str, job: dict[str, Any], before: list[str], score: int) -> CiJob | None:
    steps = job.get("steps")
    lines = [*_lines(job.get("before_script")), *_lines(job.get("script"))]
    for step in steps if isinstance(steps, list) else ():
        run = step.get("run", step.get("script", step.get("bash", ""))) if isinstance(step, dict) else ""
        lines += _lines(run.get("command") if isinstance(run, dict) else run)
    return CiJob(source, _limited_script([*before, *lines]), {}, (), score) if lines else None


def _lines(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else texts(value)


def _text(value: Any) -> str:
    """The text; empty for lists and tables."""
    return value if isinstance(value, str) else ""
