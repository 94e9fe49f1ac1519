"""The commands behind a name that CI or a person types: tox, nox, invoke, make, just, Hatch, pre-commit and tasks."""

import ast
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from app.core.python_source import parse_python
from app.sandbox.setup.declared.commands import MAX_SCRIPT, substituted
from app.sandbox.setup.declared.python_metadata import editable, read_ini
from app.sandbox.setup.manifests import ManifestFiles, table, texts

MAX_ENVIRONMENTS = 1_000
MAX_LIST = 10_000
"""Characters of a list of environments."""
MAX_TARGETS = 200
"""Targets of a Makefile that one needs."""
_BRACES = re.compile(r"\{([^{}:]*)\}")
_POSITIONAL = re.compile(r"\{posargs(?::([^{}]*(?:\{[^{}]*\}[^{}]*)*))?\}|\[\]")
_TOX_VARIABLE = re.compile(r"\{env:([^{}:]++):?([^{}]*+)\}")
_TOX_VALUE = re.compile(r"\{\[([^\]{}]+)\]([^{}]+)\}")
_MAKE_AUTOMATIC = re.compile(r"\$[@<]")
_MAKE_VARIABLE = re.compile(r"\$[({](\w*)[)}]")
_FACTOR = re.compile(r"(?P<condition>!?[\w.{},!-]+?)\s*:\s+(?P<rest>.*)|(?P<bare>!?[\w.{},!-]+):$")
_TARGET = re.compile(r"^(?P<names>[\w./%-]++(?: ++[\w./%-]++)*)\s*::?(?!=)\s*(?P<needs>[^#\n]*)")
_RECIPE = re.compile(r"^@?(?P<name>[\w-]+)(?:[ \t][^:\n]*)?:(?!=)(?P<needs>[^#\n]*)", re.MULTILINE)
_RECIPES: Mapping[str, tuple[str, ...]] = {
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "gmake": ("GNUmakefile", "makefile", "Makefile"),
    "just": ("justfile", "Justfile", ".justfile"),
}
"""Programs with recipes by name, and the files that these are in."""


def tox_commands(files: ManifestFiles, environment: str = "", arguments: Sequence[str] = ()) -> str:
    """A script that does what `tox -e ENVIRONMENT -- ARGUMENTS` does: its variables, `pip install` lines and its
    commands; empty if unknown."""
    sections = _tox_sections(files)
    if "testenv" not in sections and not any(name.startswith("testenv") for name in sections):
        return _tox_toml(files, environment, arguments)
    listed = sections.get("tox", {}).get("env_list", sections.get("tox", {}).get("envlist", ""))
    name = environment or _main_environment(_environments(listed))
    factors = frozenset(re.split(r"-", name)) | {name}
    section = {**sections.get("testenv", {}), **_own_section(sections, name)}
    variables: dict[str, str] = {}

    def lines(*keys: str) -> list[str]:
        value = next((section[key] for key in keys if key in section), "")
        return [_with_variables(line, variables) for line in _conditional(_substituted(value, sections), factors)]

    for line in _conditional(_substituted(section.get("set_env", section.get("setenv", "")), sections), factors):
        variable, _, value = line.partition("=")
        variables[variable.strip()] = _with_variables(value.strip(), variables)
    script = _exported(variables)
    script += [f"pip install {_as_words(line)}" for line in lines("deps") if line.strip()]
    groups = [group for line in lines("dependency_groups") for group in re.split(r"[\s,]+", line) if group]
    script += [f"pip install --group {shlex.quote(group)}" for group in groups]
    skipped = section.get("skip_install", "").lower() == "true" or section.get("package", "") == "skip"
    extras = [extra for line in lines("extras") for extra in re.split(r"[\s,]+", line) if extra]
    if not skipped and sections.get("tox", {}).get("skipsdist", "").lower() != "true":
        script.append(f"pip install {editable('', extras)}")
    commands = [line.lstrip("-").strip() for line in lines("commands_pre") + lines("commands")]
    return "\n".join([*script, *(_positional(command, arguments) for command in commands)])


def _exported(variables: Mapping[str, str]) -> list[str]:
    return [f"export {shlex.quote(f'{name}={value}')}" for name, value in variables.items() if value]


def _with_variables(text: str, variables: Mapping[str, str]) -> str:
    """`{env:NAME:default}` with the value that tox sets, else its default; the innermost first."""
    for _ in range(3):
        text = re.sub(r"\{tty:[^{}:]*+:?([^{}]*+)\}", r"\1", text)
        text = substituted(_TOX_VARIABLE, lambda at: variables.get(at[1], at[2]), text)
    return text


def _as_words(line: str) -> str:
    """A line of a requirements file for a shell: `a >= 1  # why` is one word, and an option is followed by another."""
    plain = re.sub(r"(?:^|\s)#.*", "", line).strip()
    return plain if plain.startswith("-") else shlex.quote(plain)


def _tox_sections(files: ManifestFiles) -> dict[str, dict[str, str]]:
    legacy = table(files.toml("pyproject.toml"), "tool", "tox").get("legacy_tox_ini")
    sections = read_ini(files.text("tox.ini") or (legacy if isinstance(legacy, str) else ""))
    if not sections:
        cfg = read_ini(files.text("setup.cfg"))
        sections = {
            name.removeprefix("tox:"): keys for name, keys in cfg.items() if name.startswith(("tox:", "testenv"))
        }
    return sections


def _tox_toml(files: ManifestFiles, environment: str, arguments: Sequence[str]) -> str:
    """The native form of tox 4: `env_run_base` with one table for each environment over it."""
    config = files.toml("tox.toml") or table(files.toml("pyproject.toml"), "tool", "tox")
    if not config:
        return ""
    name = environment or _main_environment(texts(config.get("env_list")))
    section = {**table(config, "env_run_base"), **table(config, "env", name)}
    variables = table(section, "set_env")
    script = _exported({key: value for key, value in variables.items() if isinstance(value, str)})
    script += [f"pip install {_as_words(item)}" for item in texts(section.get("deps"))]
    script += [f"pip install --group {shlex.quote(item)}" for item in texts(section.get("dependency_groups"))]
    extras = texts(section.get("extras"))
    if section.get("package") != "skip" and section.get("skip_install") is not True:
        script.append(f"pip install {editable('', extras)}")
    commands = section.get("commands")
    for command in commands if isinstance(commands, list) else ():
        words: list[str] = []
        for word in command if isinstance(command, list) else ():
            if isinstance(word, dict) and word.get("replace") == "posargs":
                words += arguments or texts(word.get("default"))
            elif isinstance(word, str):
                words.append(word)
        script.append(shlex.join(words))
    return "\n".join(script)


def _environments(text: str) -> list[str]:
    """The names of a list in which `py3{9,10}` means two; not all if there are more than MAX_ENVIRONMENTS."""
    waiting, found = [text[:MAX_LIST]], list[str]()
    while waiting and len(waiting) + len(found) <= MAX_ENVIRONMENTS:
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
        text = substituted(_TOX_VALUE, lambda at: sections.get(at[1], {}).get(at[2], ""), text)
    text = re.sub(r"\{(?:toxinidir|tox_root)\}[/\\]?", "./", text)
    return re.sub(r"\{envpython\}|\{env_python\}", "python", text)


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


def _positional(command: str, arguments: Sequence[str]) -> str:
    return _POSITIONAL.sub(lambda found: shlex.join(arguments) or found[1] or "", command)


def nox_commands(files: ManifestFiles, session: str = "") -> str:
    """The literal `session.install` and `session.run` calls of a session, as a script."""
    sessions = _decorated(files.text("noxfile.py"))
    wanted = session.partition("-")[0].partition("(")[0]
    named = [name for name in sessions if name == wanted] or [
        name for name in sessions if re.search(r"^tests?|unit", name)
    ]
    script = []
    for call in _calls(sessions[named[0]]) if named else ():
        words = [item.value for item in call.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if method == "install":
            script.append(f"pip install {shlex.join(words)}")
        elif method in {"run", "run_install", "run_always"} and words:
            script.append(shlex.join(words))
    script.sort(key=lambda line: not line.startswith("pip install"))
    return "\n".join(script)


def invoke_commands(files: ManifestFiles, task: str) -> str:
    """The texts that a task of tasks.py hands to `c.run`, after the tasks that it names as those before it."""
    tasks = _decorated(files.text("tasks.py"))
    function = tasks.get(task.replace("-", "_"))
    if function is None:
        return ""
    named = [node for mark in function.decorator_list for node in ast.walk(mark) if isinstance(node, ast.Name)]
    script = [f"invoke {name.id}" for name in named if name.id in tasks]
    for call in _calls(function):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "run" and call.args:
            parts = call.args[0].values if isinstance(call.args[0], ast.JoinedStr) else call.args[:1]
            script.append("".join(str(part.value) if isinstance(part, ast.Constant) else "$" for part in parts))
    return "\n".join(script)


def _decorated(text: str) -> dict[str, ast.FunctionDef]:
    module = parse_python(text)
    body = module.body if module else ()
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef) and node.decorator_list}


def _calls(function: ast.FunctionDef) -> Iterator[ast.Call]:
    """The calls of a name's methods."""
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
        ):
            yield node


def script_behind(files: ManifestFiles, words: list[str], root: str = "") -> str | None:
    """What `make`, `just`, `sh -c` or a shell script of the tree executes in `root`; None for any other command."""
    program, rest = words[0], words[1:]
    if program in _RECIPES:
        targets = [word for word in rest if not word.startswith("-") and "=" not in word] or [""]
        found = (files.text(f"{root}{name}") for name in _RECIPES[program] if f"{root}{name}" in files)
        text = next(found, "")
        text = _as_makefile(text) if program == "just" else text
        return _make_commands(text, targets)
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


def _as_makefile(text: str) -> str:
    """A justfile with its recipes and variables as make has them; parameters and functions become unknown ones."""
    text = re.sub(r"\{\{\s*+(\w*+)(?:(?!\{\{).)*?\}\}", r"$(\1)", text)
    text = re.sub(r"^(?:export )?(\w+)\s*:=\s*(['\"])(.*)\2\s*$", r"\1 := \3", text, flags=re.MULTILINE)
    text = re.sub(r"^[ \t]+(?=\S)", "\t", text, flags=re.MULTILINE)
    return _RECIPE.sub(lambda found: f"{found['name']}: {re.sub(r'[()&]', ' ', found['needs'])}", text)


class _MakeRule(NamedTuple):
    needs: list[str]
    lines: list[str]


def _make_commands(text: str, targets: Iterable[str]) -> str:
    """The recipes of a Makefile's targets, after those of the targets that these need; the first one's for `""`."""
    rules: dict[str, list[_MakeRule]] = {}
    variables: dict[str, str] = {}
    rule = _MakeRule([], [])
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        if line.startswith("\t"):
            rule.lines.append(line.strip().lstrip("@-+"))
        elif assigned := re.match(r"(\w+)\s*[:?]?=\s*(.*)", line):
            variables[assigned[1]] = assigned[2].split("#")[0].strip()
        elif found := _TARGET.match(line):
            rule = _MakeRule(list(dict.fromkeys(found["needs"].split())), [])
            for name in dict.fromkeys(found["names"].split()):
                rules.setdefault(name, []).append(rule)
    first = next((name for name in rules if not name.startswith(".")), "")
    script: list[str] = []
    seen: set[str] = set()
    for target in targets:
        _add_recipe(target or first, rules, script, seen)

    def known(found: re.Match[str]) -> str:
        return variables.get(found[1], "$")

    lines = "\n".join(script)
    for _ in range(3):
        lines = substituted(_MAKE_VARIABLE, known, lines)
    return lines.replace("$$", "$")


def _add_recipe(target: str, rules: dict[str, list[_MakeRule]], script: list[str], seen: set[str]) -> None:
    if target in seen or target not in rules or len(seen) >= MAX_TARGETS:
        return
    seen.add(target)
    needs = list(dict.fromkeys(need for rule in rules[target] for need in rule.needs))
    for need in needs:
        _add_recipe(need, rules, script, seen)
    lines = "\n".join(line for rule in rules[target] for line in rule.lines)
    automatic = {"$@": target, "$<": needs[0] if needs else "$"}
    if sum(map(len, script)) + len(lines) <= MAX_SCRIPT:
        script.append(substituted(_MAKE_AUTOMATIC, lambda found: automatic[found[0]], lines))


def pre_commit_commands(files: ManifestFiles) -> str:
    """What the local hooks of pre-commit execute; those of other repositories check style."""
    found = files.yaml(".pre-commit-config.yaml").get("repos")
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
    lines.append(f"pip install {editable('', features)}")
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
