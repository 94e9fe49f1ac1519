"""The commands behind a name that CI or a person types: tox, nox, make, Hatch, pre-commit, and the steps of CI."""

import ast
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from app.sandbox.setup.declared.commands import expanded
from app.sandbox.setup.ecosystems.base import ManifestFiles, table, texts
from app.sandbox.setup.ecosystems.python_metadata import read_ini

_BRACES = re.compile(r"\{([^{}:]*)\}")
_POSITIONAL = re.compile(r"\{posargs(?::([^{}]*(?:\{[^{}]*\}[^{}]*)*))?\}|\[\]")
_FACTOR = re.compile(r"(?P<condition>!?[\w.{},!-]+?)\s*:\s+(?P<rest>.*)|(?P<bare>!?[\w.{},!-]+):$")
_TARGET = re.compile(r"^(?P<names>[\w./%-][\w./% -]*?)\s*::?(?!=)\s*(?P<needs>[^#\n]*)")
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")


def tox_commands(files: ManifestFiles, environment: str = "") -> str:
    """A script that does what `tox -e ENVIRONMENT` does: `pip install` lines and its commands; empty if unknown."""
    sections = _tox_sections(files)
    if "testenv" not in sections and not any(name.startswith("testenv") for name in sections):
        return _tox_toml(files, environment)
    listed = sections.get("tox", {}).get("env_list", sections.get("tox", {}).get("envlist", ""))
    name = environment or _main_environment(_environments(listed))
    factors = frozenset(re.split(r"-", name)) | {name}
    section = {**sections.get("testenv", {}), **_own_section(sections, name)}

    def lines(*keys: str) -> list[str]:
        value = next((section[key] for key in keys if key in section), "")
        return _conditional(_substituted(value, sections), factors)

    script = [f"pip install {line}" for line in lines("deps") if line.strip()]
    groups = [group for line in lines("dependency_groups") for group in re.split(r"[\s,]+", line) if group]
    script += [f"pip install --group {shlex.quote(group)}" for group in groups]
    skipped = section.get("skip_install", "").lower() == "true" or section.get("package", "") == "skip"
    extras = [extra for line in lines("extras") for extra in re.split(r"[\s,]+", line) if extra]
    if not skipped and sections.get("tox", {}).get("skipsdist", "").lower() != "true":
        script.append(f"pip install -e .{'[' + ','.join(extras) + ']' if extras else ''}")
    commands = [line.lstrip("-").strip() for line in lines("commands_pre") + lines("commands")]
    return "\n".join([*script, *(_positional(command) for command in commands)])


def _tox_sections(files: ManifestFiles) -> dict[str, dict[str, str]]:
    legacy = table(files.toml("pyproject.toml"), "tool", "tox").get("legacy_tox_ini")
    sections = read_ini(files.text("tox.ini") or (legacy if isinstance(legacy, str) else ""))
    if not sections:
        cfg = read_ini(files.text("setup.cfg"))
        sections = {
            name.removeprefix("tox:"): keys for name, keys in cfg.items() if name.startswith(("tox:", "testenv"))
        }
    return sections


def _tox_toml(files: ManifestFiles, environment: str) -> str:
    """The native form of tox 4: `env_run_base` with one table for each environment over it."""
    config = files.toml("tox.toml") or table(files.toml("pyproject.toml"), "tool", "tox")
    if not config:
        return ""
    name = environment or _main_environment(texts(config.get("env_list")))
    section = {**table(config, "env_run_base"), **table(config, "env", name)}
    script = [f"pip install {item}" for item in texts(section.get("deps"))]
    script += [f"pip install --group {shlex.quote(item)}" for item in texts(section.get("dependency_groups"))]
    extras = texts(section.get("extras"))
    if section.get("package") != "skip" and section.get("skip_install") is not True:
        script.append(f"pip install -e .{'[' + ','.join(extras) + ']' if extras else ''}")
    commands = section.get("commands")
    for command in commands if isinstance(commands, list) else ():
        words = []
        for word in command if isinstance(command, list) else ():
            if isinstance(word, dict) and word.get("replace") == "posargs":
                words += texts(word.get("default"))
            elif isinstance(word, str):
                words.append(word)
        script.append(shlex.join(words))
    return "\n".join(script)


def _environments(text: str) -> list[str]:
    """The names of a list in which `py3{9,10}` means two."""
    waiting, found = [text], list[str]()
    while waiting:
        item = waiting.pop(0)
        if braces := _BRACES.search(item):
            head, tail = item[: braces.start()], item[braces.end() :]
            parts = re.split(r"[\s,]+(?![^{]*\})", head)
            rest = re.split(r"[\s,]+(?![^{]*\})", tail)
            before, after = parts[-1], rest[0]
            found += [name for name in parts[:-1] if name and "{" not in name]
            waiting += [f"{before}{part.strip()}{after}" for part in _ranged(braces[1])]
            waiting.append(tail[len(after) :])
            waiting += [name for name in parts[:-1] if "{" in name]
        else:
            found += [name for name in re.split(r"[\s,]+", item) if name]
    return list(dict.fromkeys(found))


def _ranged(text: str) -> list[str]:
    """The parts of a pair of braces: `9,10` and, as newer versions of tox know it, `0-3`."""
    parts = []
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d+)-(\d+)\s*", part)
        parts += [str(number) for number in range(int(ends[1]), min(int(ends[2]), 99) + 1)] if ends else [part]
    return parts


def _main_environment(names: Iterable[str]) -> str:
    """The environment that runs the tests by default: the newest plain `py3x`, `tests`, the first `py3x` with more
    factors, or `py`."""
    listed = list(names)
    plain = [name for name in listed if re.fullmatch(r"py3\.?\d*|3\.\d+", name)]
    named = [name for name in listed if re.search(r"tests?\b|unit", name) and "pypy" not in name]
    newest = max(plain, key=lambda name: int(name.removeprefix("py").removeprefix("3").strip(".") or 0), default="")
    with_factors = [name for name in listed if re.match(r"py3\d+-", name)]
    return newest or (named or with_factors or ["py"])[0]


def _own_section(sections: dict[str, dict[str, str]], name: str) -> dict[str, str]:
    for title, keys in sections.items():
        if title.startswith("testenv:") and name in _environments(title.removeprefix("testenv:").replace("-,", ",")):
            return keys
    return {}


def _substituted(text: str, sections: dict[str, dict[str, str]]) -> str:
    """`{[section]key}` with its value, and the directories that tox knows."""
    for _ in range(3):
        text = re.sub(r"\{\[([^\]{}]+)\]([^{}]+)\}", lambda at: sections.get(at[1], {}).get(at[2], ""), text)
    text = re.sub(r"\{(?:toxinidir|tox_root)\}[/\\]?", "./", text)
    text = re.sub(r"\{envpython\}|\{env_python\}", "python", text)
    return re.sub(r"\{env:[^{}:]+:?([^{}]*)\}", r"\1", text)


def _conditional(text: str, factors: frozenset[str]) -> list[str]:
    """The lines that hold for an environment: `py310,test: line` asks for factors."""
    kept = []
    holds = True
    for line in text.replace("\\\n", " ").splitlines():
        stripped = line.strip()
        found = _FACTOR.fullmatch(stripped)
        if found and "://" not in stripped and not stripped.startswith(("-", "python", "pytest")):
            holds = any(
                _matches(condition, factors) for condition in _environments(found["condition"] or found["bare"])
            )
            if found["rest"] and holds:
                kept.append(found["rest"].strip())
            if found["rest"]:
                holds = True
        elif stripped and not stripped.startswith("#") and holds:
            kept.append(stripped)
    return kept


def _matches(condition: str, factors: frozenset[str]) -> bool:
    if condition in factors:
        return True
    return all(
        (part[1:] not in factors) if part.startswith("!") else (part in factors) for part in condition.split("-")
    )


def _positional(command: str) -> str:
    return _POSITIONAL.sub(lambda found: found[1] or "", command)


def nox_commands(files: ManifestFiles, session: str = "") -> str:
    """The literal `session.install` and `session.run` calls of a session, as a script."""
    try:
        module = ast.parse(files.text("noxfile.py"))
    except (SyntaxError, ValueError, RecursionError):
        return ""
    sessions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef) and node.decorator_list}
    wanted = session.partition("-")[0].partition("(")[0]
    named = [name for name in sessions if name == wanted] or [
        name for name in sessions if re.search(r"^tests?|unit", name)
    ]
    if not named:
        return ""
    script = []
    for call in (node for node in ast.walk(sessions[named[0]]) if isinstance(node, ast.Call)):
        function = call.func
        if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
            continue
        words = [item.value for item in call.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
        if function.attr == "install":
            script.append(f"pip install {shlex.join(words)}")
        elif function.attr in {"run", "run_install", "run_always"} and words:
            script.append(shlex.join(words))
    script.sort(key=lambda line: not line.startswith("pip install"))
    return "\n".join(script)


def script_behind(files: ManifestFiles, words: list[str], root: str = "") -> str | None:
    """What `make`, `sh -c` or a shell script of the tree executes in `root`; None for any other command."""
    program, rest = words[0], words[1:]
    if program in {"make", "gmake"}:
        targets = [word for word in rest if not word.startswith("-") and "=" not in word] or [""]
        return "\n".join(_make_commands(files, target, root) for target in targets)
    shell = program in {"sh", "bash", "dash"}
    if shell and rest[:1] == ["-c"]:
        return rest[1] if len(rest) > 1 else ""
    named = next((word for word in rest if not word.startswith("-")), "") if shell else program
    path = f"{root}{named.removeprefix('./')}"
    if path not in files or not (shell or "/" in named):
        return None
    text = files.text(path)
    first = text.partition("\n")[0]
    return text if shell or (first.startswith("#!") and "sh" in first) else None


def _make_commands(files: ManifestFiles, target: str, root: str) -> str:
    """The recipe of a target of the Makefile, after those of the targets that it needs."""
    text = next((files.text(f"{root}{name}") for name in _MAKEFILES if f"{root}{name}" in files), "")
    if not text:
        return ""
    recipes: dict[str, tuple[list[str], list[str]]] = {}
    variables: dict[str, str] = {}
    names: list[str] = []
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        if line.startswith("\t"):
            for name in names:
                recipes[name][1].append(line.strip().lstrip("@-+"))
        elif assigned := re.match(r"(\w+)\s*[:?]?=\s*(.*)", line):
            variables[assigned[1]] = assigned[2].split("#")[0].strip()
        elif found := _TARGET.match(line):
            names = found["names"].split()
            for name in names:
                recipes.setdefault(name, ([], []))[0].extend(found["needs"].split())
    first = next((name for name in recipes if not name.startswith(".")), "")
    script: list[str] = []
    _follow(target or first, recipes, script, set())

    def known(found: re.Match[str]) -> str:
        return variables.get(found[1], "$")

    lines = "\n".join(script)
    for _ in range(3):
        lines = re.sub(r"\$[({](\w+)[)}]", known, lines)
    return lines.replace("$$", "$")


def _follow(target: str, recipes: dict[str, tuple[list[str], list[str]]], script: list[str], seen: set[str]) -> None:
    if target in seen or target not in recipes:
        return
    seen.add(target)
    needs, lines = recipes[target]
    for need in needs:
        _follow(need, recipes, script, seen)
    script += [line.replace("$@", target).replace("$<", needs[0] if needs else "$") for line in lines]


def pre_commit_commands(files: ManifestFiles) -> str:
    """What the local hooks of pre-commit execute; those of other repositories check style."""
    try:
        document = yaml.safe_load(files.text(".pre-commit-config.yaml"))
    except (yaml.YAMLError, RecursionError):
        return ""
    found = document.get("repos") if isinstance(document, dict) else None
    repositories = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    script = []
    for hook in (hook for one in repositories if one.get("repo") == "local" for hook in one.get("hooks") or ()):
        if isinstance(hook, dict) and isinstance(hook.get("entry"), str):
            needs = [shlex.quote(need) for need in texts(hook.get("additional_dependencies"))]
            script += [f"pip install {' '.join(needs)}"] if needs else []
            script.append(" ".join([hook["entry"], *map(shlex.quote, texts(hook.get("args")))]))
    return "\n".join(script)


def hatch_commands(files: ManifestFiles, name: str) -> str:
    """`hatch run ENV:SCRIPT` or `hatch test`, by the tables of pyproject.toml or hatch.toml."""
    environments = table(files.toml("pyproject.toml"), "tool", "hatch", "envs") or table(
        files.toml("hatch.toml"), "envs"
    )
    environment, _, script = name.rpartition(":")
    environment = environment.removeprefix("+").rpartition(".")[2] or "default"
    section = table(environments, environment)
    wanted = [*texts(section.get("dependencies")), *texts(section.get("extra-dependencies"))]
    lines = [f"pip install {shlex.quote(item)}" for item in wanted if "{" not in item]
    lines += [f"pip install --group {shlex.quote(item)}" for item in texts(section.get("dependency-groups"))]
    features = texts(section.get("features"))
    lines.append(f"pip install -e .{'[' + ','.join(features) + ']' if features else ''}")
    written = table(section, "scripts").get(script)
    commands = [written] if isinstance(written, str) else texts(written)
    return "\n".join([*lines, *(re.sub(r"\{args:?([^{}]*)\}", r"\1", command) for command in commands)])


TASKS: Mapping[str, tuple[str, ...]] = {
    "pdm": ("pdm", "scripts"),
    "pixi": ("pixi", "tasks"),
    "poe": ("poe", "tasks"),
    "rye": ("rye", "scripts"),
    "taskipy": ("taskipy", "tasks"),
}
"""Tools with tasks in pyproject.toml, and the table that these are in."""
_STARTED = {"poe": "poe", "taskipy": "task"}
_STEPS = ("sequence", "composite", "chain", "depends-on", "deps", "ref")
"""Keys of a task whose values name other tasks."""


def task_commands(files: ManifestFiles, tool: str, name: str) -> str:
    """What a task of pyproject.toml executes, with `TOOL run NAME` for the tasks that it names; empty if it is none."""
    data = table(files.toml("pyproject.toml"), "tool")
    tasks = {**table(data, *TASKS[tool])}
    for feature in table(data, tool, "feature").values():
        tasks |= table(feature, "tasks")
    written = tasks.get(name)
    task = (
        written
        if isinstance(written, dict)
        else {"sequence" if tool == "poe" and isinstance(written, list) else "cmd": written}
    )
    lines = []
    for key in _STEPS:
        value = task.get(key)
        for step in value if isinstance(value, list) else [value]:
            text = step.get("cmd", step.get("shell", step.get("ref"))) if isinstance(step, dict) else step
            if isinstance(text, str) and text != name:
                lines.append(f"{_STARTED.get(tool, f'{tool} run')} {text}" if text in tasks else text)
    command = task.get("cmd", task.get("shell"))
    lines += [command] if isinstance(command, str) else [shlex.join(texts(command))]
    return "\n".join(line for line in lines if line)


MAX_JOBS = 60
MAX_NESTED = 20
"""Actions of the tree in one job."""
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


def ci_jobs(files: ManifestFiles) -> list[CiJob]:
    """Every job of every CI file that is understood, the most likely to run the tests first."""
    found: list[CiJob] = []
    actions = {path: _document(files, path) for path in files if _ACTION.fullmatch(path)}
    for path in files:
        if _GITHUB.fullmatch(path):
            found += _github(path, _document(files, path), actions)
    for path in _OTHERS:
        if path in files:
            found += _other_providers(path, _document(files, path))
    found.sort(key=lambda job: -job.score)
    return found[:MAX_JOBS]


def _document(files: ManifestFiles, path: str) -> dict[str, Any]:
    try:
        found = yaml.load(files.text(path), Loader=yaml.CBaseLoader)  # noqa: S506  # knows no objects, only text
    except (yaml.YAMLError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _github(path: str, document: dict[str, Any], actions: Mapping[str, dict[str, Any]]) -> Iterator[CiJob]:
    for name, job in table(document, "jobs").items():
        if not isinstance(job, dict) or not isinstance(job.get("steps"), list):
            continue
        rows = _rows(job.get("strategy"))
        if _OTHER_SYSTEM.search(str(job.get("runs-on", ""))) and not rows:
            continue
        steps = list(_steps(job["steps"], actions, set()))
        script = "\n".join(str(step["run"]) for step in steps if "run" in step and not _elsewhere(step))
        named = [str(given.get("python-version", "")) for step in steps if isinstance(given := step.get("with"), dict)]
        values = _chosen(rows)
        for owner in (document, job, *steps):
            _set_variables(values, owner.get("env"))
        pythons = tuple(dict.fromkeys(_VERSION.findall(" ".join([*(_python(row) for row in rows), *named]))))
        title = f"{name} {job.get('name', '')}"
        yield CiJob(f"{path}, job {name}", script, values, pythons, _score(path.rpartition("/")[2], title))


def _steps(listed: Any, actions: Mapping[str, dict[str, Any]], seen: set[str]) -> Iterator[dict[str, Any]]:
    """The steps of a job, with those of an action of the tree in its place; each action once."""
    for step in listed if isinstance(listed, list) and len(seen) < MAX_NESTED else ():
        uses = str(step.get("uses", "")) if isinstance(step, dict) else ""
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
        if "$" not in value:
            values |= {name: value, f"env.{name}": value}


def _elsewhere(step: dict[str, Any]) -> bool:
    """Steps that only another system executes, or in another directory."""
    condition = str(step.get("if", ""))
    return bool(_OTHER_SYSTEM.search(condition) and "!=" not in condition) or "working-directory" in step


def _rows(strategy: Any) -> list[dict[str, str]]:
    """The rows of a matrix that run on Linux, each value by `matrix.name`; of the plain lists only the first row."""
    matrix = strategy.get("matrix") if isinstance(strategy, dict) else None
    if not isinstance(matrix, dict):
        return []
    included = [row for row in matrix.get("include", []) if isinstance(row, dict)] if "include" in matrix else []
    lists = {
        key: value for key, value in matrix.items() if isinstance(value, list) and key not in ("include", "exclude")
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
        yield CiJob(path, script, {}, pythons, 1 if path == ".travis.yml" else -1)
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
            title = str(job.get("job", name))
            yield CiJob(f"{path}, job {title}", "\n".join([before, *lines]), {}, (), _score("", title))


def _lines(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
