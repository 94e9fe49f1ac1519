"""Executors of languages that need no compiler: Python, Node, TypeScript, Ruby and PHP."""

import json
import posixpath
import re
import shlex

from app.core.examples import Example
from app.sandbox.setup.declared.python_metadata import inner_root, workspace_roots
from app.sandbox.setup.manifests import project_roots, table
from app.verify.examples.launch import Launch, Project, has_jsx, inside

_MODULE = re.compile(r"^(?:import\s*[\w{*'\"$]|export\s)", re.MULTILINE)
_WAITS = re.compile(r"^(?:(?:const|let|var)\s[^=\n]*=\s*|for )?await\b", re.MULTILINE)
_REQUIRES = re.compile(r"\brequire\(|\bmodule\.exports\b|\b__(?:dir|file)name\b")
_SPECIFIER = re.compile(r"(?P<before>\b(?:from|import|require)\s*\(?\s*)(?P<quote>['\"])(?P<name>[^'\"\n]+)(?P=quote)")


def python(project: Project, example: Example, stem: str) -> Launch:
    """The link lets the program lie in the root while its modules are not searched there first."""
    name = f"{stem}.py"
    own = {f"program/{name}": example.program, **python_places(project)}
    command = f'{PYTHON_PATH} exec python3 {name} "$@"'
    return Launch(command, own=own, links=(name,), needs=("python3",))


_PYTHON = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "Pipfile")
PYTHON_PATH = 'PYTHONPATH="$own/boot${PYTHONPATH:+:$PYTHONPATH}"'


def python_places(project: Project) -> dict[str, str]:
    """Files that make every Python below search the project before installed packages."""
    files = project.files
    roots = dict.fromkeys([*project_roots(files, _PYTHON), *workspace_roots(files), inner_root(files), ""])
    places = [place for root in roots for place in (f"{root}src", root.rstrip("/")) if _has_modules(project, place)]
    return {"boot/sitecustomize.py": inside("python_path.py"), "boot/places": "\n".join(dict.fromkeys([*places, ""]))}


def _has_modules(project: Project, place: str) -> bool:
    start = f"{place}/" if place else ""
    return any(
        path.endswith(".py") and path.startswith(start) and path[len(start) :].count("/") < 3 for path in project.files
    )


def node(project: Project, example: Example, stem: str) -> Launch:
    name = f"{stem}.{_node_suffix(project, example.program)}"
    text = with_own_name(project, example.program)
    return Launch(f'exec node {name} "$@"', files={name: text}, needs=("node",))


def _node_suffix(project: Project, program: str) -> str:
    """A program with `import` or a waiting statement is a module, whatever the package is."""
    if is_module(program):
        return "js" if project.package.get("type") == "module" else "mjs"
    return "cjs" if project.package.get("type") == "module" and _REQUIRES.search(program) else "js"


def is_module(program: str) -> bool:
    return bool(_MODULE.search(program) or (_WAITS.search(program) and not _REQUIRES.search(program)))


def with_own_name(project: Project, program: str) -> str:
    """The program with the package's own name as a path, unless Node resolves it itself.

    Without `exports`, it would find no package or, among the dependencies, a published version of the project.
    """
    name = project.package.get("name")
    if not isinstance(name, str) or "exports" in project.package:
        return program

    def path(found: re.Match[str]) -> str:
        wanted = found["name"]
        if wanted != name and not wanted.startswith(f"{name}/"):
            return found[0]
        place = wanted[len(name) + 1 :] or str(project.package.get("main") or "index.js")
        at = posixpath.normpath(place)
        names = (at, f"{at}.js", f"{at}.cjs", f"{at}.mjs", f"{at}/index.js")
        at = next((one for one in names if one in project.files), at)
        return f"{found['before']}{found['quote']}./{at}{found['quote']}"

    return _SPECIFIER.sub(path, program)


_TSX = '[ -x "$bin/tsx" ] && exec "$bin/tsx" {name} "$@"'
_TS_NODE = '[ -x "$bin/ts-node" ] && exec "$bin/ts-node" --transpile-only {name} "$@"'
_VITE_NODE = '[ -x "$bin/vite-node" ] && exec "$bin/vite-node" --script {name} "$@"'
_BUN = 'command -v bun > /dev/null && exec bun {name} "$@"'
_BUNDLED = 'if [ -f {built} ]; then exec node {built} "$@"; fi'
_STRIP = "node --experimental-strip-types --no-warnings"
_STRIPPED = f"{_STRIP} -e '' 2>/dev/null && exec {_STRIP} {{name}} \"$@\""
_TRANSPILED = '[ -d node_modules/typescript ] && exec node --require "$own/boot/typescript.cjs" {name} "$@"'
_NOTHING = "echo 'no loader of TypeScript was found' >&2; exit 127"


def typescript(project: Project, example: Example, stem: str) -> Launch:
    """By the first of the project's own loaders, else by a bundle, by Node itself, or by the compiler's module."""
    name = f"{stem}.{'tsx' if has_jsx(example.program) else 'ts'}"
    as_module = project.package.get("type") == "module" or is_module(example.program)
    built = f"{stem}.{'mjs' if as_module else 'cjs'}"
    form = "esm" if as_module else "cjs"
    bins = " ".join(f"{directory}node_modules/.bin" for directory in _packages_used(project, example.program))
    loaders = [_TSX, *([_TS_NODE] if project.depends_on("ts-node") else []), _VITE_NODE]
    each = "; ".join(one.format(name=name) for one in loaders)
    bun = f"{_BUN.format(name=name)}; " if project.has("bun.lock") or project.has("bun.lockb") else ""
    last = "; ".join(one.format(name=name, built=built) for one in (_BUNDLED, _STRIPPED, _TRANSPILED, _NOTHING))
    bundle = (
        f"for bin in {bins}; do for one in tsx vite-node{' ts-node' * project.depends_on('ts-node')}; do "
        '[ -x "$bin/$one" ] && exit 0; done; done\n'
        f"for one in {bins} node_modules/.pnpm/node_modules/.bin; do "
        f'[ -x "$one/esbuild" ] && exec "$one/esbuild" {name} --bundle --platform=node --packages=external '
        f"--format={form} --log-level=error --outfile={built}; done; exit 0"
    )
    return Launch(
        f"{bun}for bin in {bins}; do {each}; done; {last}",
        files={name: with_own_name(project, example.program)},
        own={"boot/typescript.cjs": inside("typescript.cjs")},
        needs=("node",),
        build=bundle,
        own_failure=re.compile(rf"ERROR: (?:Expected|Unexpected|Syntax error)[^\n]*\n\s+{re.escape(name)}:"),
    )


def _packages_used(project: Project, program: str) -> list[str]:
    """The top, and the directories of packages that a program imports by a path."""
    found = [""]
    for specifier in _SPECIFIER.finditer(program):
        parts = posixpath.normpath(specifier["name"]).split("/")
        if specifier["name"].startswith("."):
            found += ["/".join(parts[:count]) + "/" for count in range(1, len(parts))]
    return [one for one in dict.fromkeys(found) if not one or f"{one}package.json" in project.files]


def ruby(project: Project, example: Example, stem: str) -> Launch:
    """With the gems of the Gemfile, if they are installed."""
    name = f"{stem}.rb"
    build = 'if [ -f Gemfile ] && bundle check > /dev/null 2>&1; then touch "$own/bundled"; fi'
    gems = dict.fromkeys(["", *(path.rpartition("/")[0] for path in project.files if path.endswith(".gemspec"))])
    places = " ".join(shlex.quote(f"-I{posixpath.join(gem, 'lib')}") for gem in gems)
    command = f'bundle=; [ ! -e "$own/bundled" ] || bundle="bundle exec"; exec $bundle ruby {places} {name} "$@"'
    return Launch(command, files={name: example.program}, needs=("ruby",), build=build)


def php(project: Project, example: Example, stem: str) -> Launch:
    """With Composer's autoloader, or one for what composer.json says of the project's own classes."""
    name = f"{stem}.php"
    program = example.program if "<?php" in example.program else f"<?php\n{example.program}"
    if "vendor/autoload.php" in project.files:
        command = f'exec php -d auto_prepend_file=vendor/autoload.php {name} "$@"'
        return Launch(command, files={name: program}, needs=("php",))
    named = table(project.files.json("composer.json"), "autoload")
    loader = inside("autoload.php").replace("NAMED", json.dumps(json.dumps(named)).replace("$", "\\$"))
    prepend = 'load=vendor/autoload.php; [ -f $load ] || load="$own/boot/autoload.php"'
    command = f'{prepend}; exec php -d auto_prepend_file="$load" {name} "$@"'
    return Launch(command, files={name: program}, own={"boot/autoload.php": loader}, needs=("php",))
