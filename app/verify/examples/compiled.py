"""Executors of languages that are compiled: Go, Rust and Java. What they compile stays in the sandbox's home."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from app.core.examples import Example
from app.sandbox.setup.ecosystems.compiled import GO_CACHE
from app.sandbox.setup.manifests import project_roots, table
from app.verify.examples.launch import Launch, Project

_GO_PACKAGE = re.compile(r"^package +(?P<name>\w+)(?: *// *(?P<place>\S+))?", re.MULTILINE)
_GO_MODULE = re.compile(r"^module\s+\"?([^\s\"]+)", re.MULTILINE)
_GO_IMPORT = re.compile(r"^\s*(?:import\s+)?(?:[\w.]+\s+)?\"([^\"\n]+)\"", re.MULTILINE)
_GO_EXAMPLE = re.compile(r"^func Example\(\)", re.MULTILINE)
# A cache of its own that begins with what a set-up has compiled: that one cannot be written.
GO_WITH_CACHE = (
    f'export GOFLAGS="${{GOFLAGS:-}} -buildvcs=false" GOCACHE="$HOME/.cache/go-build"; '
    f'if [ -d {GO_CACHE} ] && [ ! -d "$GOCACHE" ]; then mkdir -p "$HOME/.cache"; cp -rs {GO_CACHE} "$GOCACHE"; fi; '
)


class GoModule(NamedTuple):
    path: str
    directory: str
    """With a trailing slash; empty at the top."""

    def place_of(self, package: str) -> str | None:
        """The directory (with a trailing slash) of one of its packages; None for another's."""
        if package != self.path and not package.startswith(f"{self.path}/"):
            return None
        below = package[len(self.path) + 1 :]
        return f"{self.directory}{below}/" if below else self.directory


def go(project: Project, example: Example, stem: str) -> Launch:
    """A `main` where it may import what the program names; a function beside unexported names if it says so."""
    declared = _GO_PACKAGE.search(example.program)
    if declared is None:
        raise ValueError("A program in Go begins with its package, `package main` for example.")
    modules = list(go_modules(project))
    if not modules:
        raise ValueError("There is no go.mod in this project.")
    if declared["name"] != "main" or declared["place"]:
        return _inside_package(project, example, stem, modules, declared)
    imports = _GO_IMPORT.findall(example.program)
    places = [
        (module, place)
        for module in modules
        for name in imports
        if (place := _above_internal(module, name)) is not None
    ]
    module, place = max(
        places, key=lambda one: (len(one[0].directory), len(one[1])), default=(modules[0], modules[0].directory)
    )
    return _go_launch(module, f"{place}{stem}", {f"{place}{stem}/main.go": example.program}, stem)


def _above_internal(module: GoModule, package: str) -> str | None:
    """From where a package of a module can be imported."""
    place = module.place_of(package)
    if place is None:
        return None
    outside, internal, _ = f"/{place}".rpartition("/internal/")
    return f"{outside}/".lstrip("/") if internal else module.directory


def go_modules(project: Project) -> Iterator[GoModule]:
    """The nearest to the top first."""
    found = [path for path in project.files if path == "go.mod" or path.endswith("/go.mod")]
    for path in sorted(found, key=lambda path: (path.count("/"), path)):
        if named := _GO_MODULE.search(project.files.text(path)):
            yield GoModule(named[1], path.removesuffix("go.mod"))


def _inside_package(
    project: Project, example: Example, stem: str, modules: list[GoModule], declared: re.Match[str]
) -> Launch:
    """The function Example in a package, called by a `main`, or before the `main` that is there already."""
    if not _GO_EXAMPLE.search(example.program):
        raise ValueError("A program inside a package has `func Example()` in place of main.")
    name = declared["name"]
    place = _go_directory(project, name, declared["place"])
    inside = [module for module in modules if place.startswith(module.directory)]
    module = max(inside, key=lambda module: len(module.directory), default=modules[0])
    files = {f"{place}zz_{stem}.go": example.program}
    if name == "main":  # the last file of a package is initialized last
        start = 'package main\n\nimport "os"\n\nfunc init() {\n\tExample()\n\tos.Exit(0)\n}\n'
        return _go_launch(module, place.rstrip("/"), {**files, f"{place}zz_{stem}_run.go": start}, stem)
    package = f"{module.path}/{place[len(module.directory) :]}".rstrip("/")
    start = f'package main\n\nimport target "{package}"\n\nfunc main() {{ target.Example() }}\n'
    return _go_launch(module, f"{place}{stem}", {**files, f"{place}{stem}/main.go": start}, stem)


def _go_directory(project: Project, name: str, place: str | None) -> str:
    """With a trailing slash; empty at the top."""
    if place:
        return "" if place in (".", "./") else place.removeprefix("./").rstrip("/") + "/"
    sources = [path for path in project.files if path.endswith(".go") and not path.endswith("_test.go")]
    sources = [path for path in sources if not {"vendor", "testdata"} & set(path.split("/"))]
    declares = re.compile(rf"^package +{name}\b", re.MULTILINE)
    texts = project.texts(sources)
    found = dict.fromkeys(path.rpartition("/")[0] for path, text in texts.items() if declares.search(text))
    if len(found) != 1:
        many = f"it is in {', '.join(sorted(found)[:5])}" if found else "there is none"
        raise ValueError(f"Write `package {name} // its/directory` in the first line: {many}.")
    (only,) = found
    return f"{only}/" if only else ""


def _go_launch(module: GoModule, directory: str, files: dict[str, str], stem: str) -> Launch:
    package = f"./{directory[len(module.directory) :]}".rstrip("/")
    build = f'{GO_WITH_CACHE}cd "./{module.directory}" && go build -o "$own/program/{stem}" {package}'
    wrong = (
        r"syntax error|declared and not used|imported and not used|missing return|non-declaration statement|expected "
    )
    absent = rf"no required module provides package (?!{re.escape(module.path)}\b)|missing go\.sum entry|requires go >="
    return Launch(
        f'exec "$own/program/{stem}" "$@"',
        files=files,
        needs=("go",),
        build=build,
        own_failure=re.compile(rf"\b{stem}(?:/main)?\.go:[\d:]+ .*(?:{wrong})"),
        not_here=re.compile(rf"{absent}|module lookup disabled|C compiler .* not found|is not in std"),
    )


def cargo_build(options: str) -> str:
    """Where cargo puts what, its settings decide: its report tells, and `$own/bin` gets links."""
    report = "--message-format=json-render-diagnostics"
    links = """sed -n 's/.*"executable":"\\([^"]*\\)".*/\\1/p' "$own/built" | xargs -r -I% ln -sf % "$own/bin/\""""
    return f'mkdir -p "$own/bin" && cargo build --offline --quiet {report} {options} > "$own/built" && {links}'


_CRATE = re.compile(r"\b([a-z]\w*)::")
_FEATURES = re.compile(r"^//[/!]? *features: *([\w ,/-]+)", re.MULTILINE)
_RUST_WRONG = r"error: (?:expected|unexpected|unknown|unterminated|mismatched|this file contains|cannot find macro)"


def rust(project: Project, example: Example, stem: str) -> Launch:
    """An example of the crate that the program uses, with its dependencies for development."""
    root, name = _crate(project, example.program)
    features = _FEATURES.search(example.program)
    chosen = f" --features '{','.join(re.split('[ ,]+', features[1].strip()))}'" if features else ""
    path = f"{root}examples/{stem}.rs"
    if not project.has(f"{root}src/lib.rs") and "lib" not in project.files.toml(f"{root}Cargo.toml"):
        chosen += " --bins"  # for programs that start them
    build = cargo_build(f"--manifest-path './{root}Cargo.toml' -p '{name}' --example {stem}{chosen}")
    return Launch(
        f'PATH="$own/bin:$PATH" exec "$own/bin/{stem}" "$@"',
        files={path: example.program},
        needs=("cargo",),
        build=build,
        own_failure=re.compile(rf"(?:{_RUST_WRONG}).*\n *--> .*\b{stem}\.rs:"),
        not_here=re.compile(
            "no matching package|failed to (?:get|download|load source)|can't find crate|requires rustc|linker `.*` not"
        ),
    )


def _crate(project: Project, program: str) -> tuple[str, str]:
    """The directory (with a trailing slash) and name of the package that a program uses, else of the first one."""
    manifests = [path for path in project.files if path == "Cargo.toml" or path.endswith("/Cargo.toml")]
    found: dict[str, tuple[str, str]] = {}
    depends: dict[str, set[str]] = {}
    for path in sorted(manifests, key=lambda path: (path.count("/"), path)):
        manifest = project.files.toml(path)
        name = table(manifest, "package").get("name")
        if isinstance(name, str):
            crate = str(table(manifest, "lib").get("name") or name).replace("-", "_")
            found.setdefault(crate, (path.removesuffix("Cargo.toml"), name))
            groups = (table(manifest, group) for group in ("dependencies", "dev-dependencies"))
            depends[crate] = {each.replace("-", "_") for group in groups for each in group}
    if not found:
        raise ValueError("There is no package in a Cargo.toml of this project.")
    used = [crate for crate in dict.fromkeys(_CRATE.findall(program)) if crate in found]
    whole = (crate for crate in used if set(used) - {crate} <= depends[crate])
    return found[next(whole, used[0] if used else next(iter(found)))]


_JAVA_PACKAGE = re.compile(r"^\s*package\s+([\w.]+)\s*;", re.MULTILINE)
_JAVA_IMPORT = re.compile(r"^\s*import\s+(?:static\s+)?([\w.]+)", re.MULTILINE)
_JAVA_CLASS = re.compile(
    r"^(?P<public>public\s+)?(?:(?:final|abstract|strictfp)\s+)*(?:class|record|enum|interface)\s+(?P<name>\w+)",
    re.MULTILINE,
)
_JAVA_SOURCES = "src/main/java/"
# The plug-in reports its class paths before it decides that nothing is to be done.
_MAVEN = (
    'mvn --offline --batch-mode -X -Dmaven.test.skip=true{chosen} test-compile > "$own/maven" 2>&1 && '
    "sed -nE 's/.*\\(f\\) (classpathElements|testPath) = \\[(.*)\\]/\\2/p' \"$own/maven\" "
    "| sed 's/, /\\n/g' | grep -v '/test-classes$' | awk '!seen[$0]++' | paste -sd: > \"$paths\""
)
_PLAIN = (
    'mkdir -p "$HOME/classes" && '
    "jars=$(find /env \"$HOME\" -name '*.jar' -not -path '*/maven/*' 2>/dev/null | paste -sd:) && "
    "find {sources} -name '*.java' -not -name module-info.java -not -path '*/test/*' > \"$own/sources\" && "
    'javac -nowarn -encoding UTF-8 -d "$HOME/classes" -cp "$jars" @"$own/sources" && '
    'echo "$HOME/classes:{resources}:$jars" > "$paths"'
)


def java(project: Project, example: Example, stem: str) -> Launch:
    """Compiled by itself into the package that it declares; the project is compiled once in a sandbox."""
    package = _JAVA_PACKAGE.search(example.program)
    classes = list(_JAVA_CLASS.finditer(example.program))
    if not classes:
        raise ValueError("A program in Java is a class with a main method.")
    name = next((one for one in classes if one["public"]), classes[0])["name"]
    main = f"{package[1]}.{name}" if package else name
    roots = [path.partition(_JAVA_SOURCES)[0] for path in project.files if _JAVA_SOURCES in path]
    roots = list(dict.fromkeys(root for root in roots if "src/test/" not in root))
    sources = " ".join(f"'{root}{_JAVA_SOURCES}'" for root in roots) or "."
    resources = ":".join(f"$PWD/{root}src/main/resources" for root in roots)
    plain = _PLAIN.format(sources=sources, resources=resources)
    module = _maven_module(project, example.program, roots)
    whole = plain
    if top := [
        root for root in project_roots(project.files, ["pom.xml"]) if not module or f"{module}/".startswith(root)
    ]:
        chosen = f" -pl '{module[len(top[0]) :]}' -am" if module and f"{module}/" != top[0] else ""
        maven = f"(cd './{top[0]}' && {_MAVEN.format(chosen=chosen)})"
        whole = f"{{ command -v mvn > /dev/null && {maven}; }} || {{ {plain}; }}"
    paths = f"classes-{module.replace('/', '-')}.path"
    javac = 'javac -nowarn -encoding UTF-8 -d "$own/program/classes" -cp "$(cat "$paths")"'
    wrong = "'.*' expected|illegal|not a statement|class, interface|reached end|unclosed"
    return Launch(
        f'exec java -cp "$own/program/classes:$(cat "$HOME/{paths}")" '
        f'-Djava.io.tmpdir="$TMPDIR" -Duser.home="$HOME" {main} "$@"',
        own={f"program/{name}.java": example.program},
        needs=("java", "javac"),
        build=f'paths="$HOME/{paths}"; [ -s "$paths" ] || {{ {whole}; }} || exit 1\n'
        f'mkdir -p "$own/program/classes" && {javac} "$own/program/{name}.java"',
        own_failure=re.compile(rf"/program/{name}\.java:\d+: error: (?:{wrong})"),
    )


def _maven_module(project: Project, program: str, roots: list[str]) -> str:
    """The deepest module with the program's package or what it imports; empty if that is the top."""
    named = [*_JAVA_IMPORT.findall(program), *_JAVA_PACKAGE.findall(program)]
    places = {root for root in roots for name in named if _has_package(project, f"{root}{_JAVA_SOURCES}", name)}
    places = {root for root in places if root and f"{root}pom.xml" in project.files}
    return max(places, key=len, default="").rstrip("/")


def _has_package(project: Project, start: str, name: str) -> bool:
    path = PurePosixPath(start, *name.split("."))
    return f"{path}.java" in project.files or f"{path.parent}.java" in project.files
