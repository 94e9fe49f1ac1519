"""The jobs of CI as scripts: GitHub, GitLab, CircleCI, Azure, Travis and AppVeyor."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app.sandbox.setup.declared.commands import expanded
from app.sandbox.setup.manifests import ManifestFiles, table, texts

MAX_JOBS = 60
MAX_ROWS = 256
"""As many jobs as GitHub lets a matrix have."""
MAX_NESTED = 20
"""Actions of the tree in one job."""
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


def ci_jobs(files: ManifestFiles) -> list[CiJob]:
    """Every job of every CI file that is understood, the most likely to run the tests first."""
    found: list[CiJob] = []
    actions = {path: files.yaml(path) for path in files if _ACTION.fullmatch(path)}
    for path in files:
        if _GITHUB.fullmatch(path):
            found += _github(path, files.yaml(path), actions)
    for path in _OTHERS:
        if path in files:
            found += _other_providers(path, files.yaml(path))
    found.sort(key=lambda job: -job.score)
    return found[:MAX_JOBS]


def _github(path: str, document: dict[str, Any], actions: Mapping[str, dict[str, Any]]) -> Iterator[CiJob]:
    for name, job in table(document, "jobs").items():
        if not isinstance(job, dict) or not isinstance(job.get("steps"), list):
            continue
        rows = _rows(job.get("strategy"))
        if _OTHER_SYSTEM.search(" ".join(_lines(job.get("runs-on")))) and not rows:
            continue
        steps = list(_steps(job["steps"], actions, set()))
        script = "\n".join(line for step in steps if not _elsewhere(step) for line in _text(step.get("run")))
        given = [step["with"] for step in steps if isinstance(step.get("with"), dict)]
        named = [version for each in given for version in _text(each.get("python-version"))]
        nodes = [value for row in rows for key, value in row.items() if "node" in key.lower()]
        nodes += [version for each in given for version in _text(each.get("node-version"))]
        values = _chosen(rows)
        for owner in (document, job, *steps):
            _set_variables(values, owner.get("env"))
        pythons = tuple(dict.fromkeys(_VERSION.findall(" ".join([*(_python(row) for row in rows), *named]))))
        title = " ".join([str(name), *_text(job.get("name"))])
        score = _score(path.rpartition("/")[2], title)
        yield CiJob(f"{path}, job {name}", script, values, pythons, score, tuple(nodes))


def _steps(listed: Any, actions: Mapping[str, dict[str, Any]], seen: set[str]) -> Iterator[dict[str, Any]]:
    """The steps of a job, with those of an action of the tree in its place; each action once."""
    for step in listed if isinstance(listed, list) and len(seen) < MAX_NESTED else ():
        uses = "".join(_text(step.get("uses"))) if isinstance(step, dict) else ""
        if (place := uses.removeprefix("./").rstrip("/")) != uses and place not in seen:
            seen.add(place)
            action = actions.get(f"{place}/action.yml") or actions.get(f"{place}/action.yaml")
            yield from _steps(table(action, "runs").get("steps"), actions, seen)
        elif isinstance(step, dict):
            yield step


def _set_variables(values: dict[str, str], environment: Any) -> None:
    """Add the variables whose values are known."""
    for name, written in environment.items() if isinstance(environment, dict) else ():
        value = expanded(written, values) if isinstance(written, str) else "$"
        if "$" not in value and len(value) <= MAX_VALUE:
            values |= {name: value, f"env.{name}": value}


def _elsewhere(step: dict[str, Any]) -> bool:
    """Steps that only another system executes, or in another directory."""
    condition = "".join(_text(step.get("if")))
    return bool(_OTHER_SYSTEM.search(condition) and "!=" not in condition) or "working-directory" in step


def _rows(strategy: Any) -> list[dict[str, str]]:
    """The rows of a matrix that run on Linux, each value by `matrix.name`; of the plain lists only the first row."""
    matrix = strategy.get("matrix") if isinstance(strategy, dict) else None
    if not isinstance(matrix, dict):
        return []
    include = matrix.get("include")
    included = [row for row in include[:MAX_ROWS] if isinstance(row, dict)] if isinstance(include, list) else []
    lists = {
        key: value[:MAX_ROWS]
        for key, value in matrix.items()
        if isinstance(value, list) and key not in ("include", "exclude")
    }
    plain: list[dict[str, str]] = []
    for key, value in lists.items():
        if not value:
            continue
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


def _other_providers(path: str, document: dict[str, Any]) -> Iterator[CiJob]:
    """GitLab, CircleCI, Azure, Travis and AppVeyor: every list of commands in a job is taken in order."""
    if path in (".travis.yml", "appveyor.yml", ".appveyor.yml"):
        keys = ("before_install", "install", "before_script", "script", "test_script")
        script = "\n".join(line for key in keys for line in _lines(document.get(key)))
        pythons = tuple(dict.fromkeys(_VERSION.findall(" ".join(_lines(document.get("python"))))))
        score = 1 if path == ".travis.yml" else -1
        yield CiJob(path, script, {}, pythons, score, tuple(_lines(document.get("node_js"))))
        return
    before = "\n".join(_lines(document.get("before_script")))
    jobs = document.get("jobs", document)
    for name, job in jobs.items() if isinstance(jobs, dict) else enumerate(jobs) if isinstance(jobs, list) else ():
        if not isinstance(job, dict):
            continue
        steps = job.get("steps")
        lines = [*_lines(job.get("before_script")), *_lines(job.get("script"))]
        for step in steps if isinstance(steps, list) else ():
            run = step.get("run", step.get("script", step.get("bash", ""))) if isinstance(step, dict) else ""
            lines += _lines(run.get("command") if isinstance(run, dict) else run)
        if lines:
            title = "".join(_text(job.get("job")) or [str(name)])
            yield CiJob(f"{path}, job {title}", "\n".join([before, *lines]), {}, (), _score("", title))


def _lines(value: Any) -> list[str]:
    return _text(value) or texts(value)


def _text(value: Any) -> list[str]:
    """The text by itself; nothing for lists and tables, which aliases can make endless."""
    return [value] if isinstance(value, str) else []
