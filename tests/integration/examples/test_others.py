"""Examples in Ruby, PHP and a shell, and projects that are built before their examples run."""

import shutil
import sys

import pytest

from app.sandbox.base import SetupPlan
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from tests.support.examples import ExampleProject, example


@pytest.mark.skipif(shutil.which("ruby") is None, reason="Ruby is not installed")
async def test_ruby_finds_the_project_in_lib(provider: BubblewrapProvider) -> None:
    files = {
        "calc/lib/calc.rb": "def half(a) = a / 2\n",
        "calc/calc.gemspec": "",
        "Gemfile": "source 'nowhere'\ngem 'missing'\n",
    }
    shows = example("ruby", "require 'calc'\nputs half(3)\n", "1.5\n")
    keeps = example("ruby", "require 'calc'\nputs half(4).to_i, ARGV.inspect\n", "2\n[]\n")
    await ExampleProject(provider, files).story(shows, keeps, {"calc/lib/calc.rb": "def half(a) = a / 2.0\n"})


@pytest.mark.skipif(shutil.which("php") is None, reason="PHP is not installed")
async def test_php_finds_the_classes_that_composer_would(provider: BubblewrapProvider) -> None:
    files = {
        "composer.json": '{"autoload": {"psr-4": {"Calc\\\\": ["src/"]}, "files": ["src/functions.php"]}}',
        "src/In/Half.php": "<?php\nnamespace Calc\\In;\n"
        "class Half { static function of($a) { return intdiv($a, 2); } }\n",
        "src/functions.php": "<?php\nfunction twice($a) { return 2 * $a; }\n",
    }
    shows = example("php", "<?php\nuse Calc\\In\\Half;\necho Half::of(3), PHP_EOL;\n", "1.5\n")
    keeps = example("php", "echo twice(2);\n", "4")
    change = {"src/In/Half.php": files["src/In/Half.php"].replace("intdiv($a, 2)", "$a / 2")}
    await ExampleProject(provider, files).story(shows, keeps, dict(change))


async def test_the_commands_of_a_project_are_on_the_path_of_a_shell(provider: BubblewrapProvider) -> None:
    files = {
        "pyproject.toml": '[project]\nname = "calc"\nversion = "1"\n[project.scripts]\ncalc-half = "calc.cli:main"\n',
        "src/calc/cli.py": "import sys\n\n\ndef main():\n    print(int(sys.argv[1]) // 2, sys.argv[0])\n    return 3\n",
        "package.json": '{"name": "@scope/calc", "bin": "cli.js"}',
        "cli.js": "console.log(process.argv.length)\n",
    }
    shows = example("shell", "calc-half 3\n", "1.5 calc-half\n", code=3)
    keeps = example(
        "shell", "cat data.txt; read line; echo \"$line $1\"; python3 -c 'import calc.cli'\n", "data\nin a b\n"
    )
    keeps = keeps.model_copy(update={"stdin": "in\n", "args": ("a b",)})
    (data,) = example("shell", "", files={"data.txt": "data\n"}).files
    keeps = keeps.model_copy(update={"files": (data,)})
    change = {"src/calc/cli.py": files["src/calc/cli.py"].replace("// 2", "/ 2")}
    await ExampleProject(provider, files).story(shows, keeps, dict(change))
    if shutil.which("node"):
        ((run, _),) = await ExampleProject(provider, files).run(example("shell", "calc 1 2\n", "4\n"))
        assert run.stdout == "4\n", run


BUILT = {
    "src/half.txt": "1\n",
    "calc.py": "import pathlib\n\nHALF = pathlib.Path('dist/half.txt').read_text()\n",
    "build.sh": "mkdir -p dist; cat src/half.txt > dist/half.txt; date +%N > dist/when; [ ! -e src/broken ]\n",
}


async def test_a_project_is_built_once_before_its_examples(provider: BubblewrapProvider) -> None:
    shows = example("python", "import calc\nprint(calc.HALF, end='')\n", "1.5\n")
    keeps = example("python", "import os\nprint(os.path.exists('dist/when'))\n", "True\n")
    project = ExampleProject(provider, BUILT, build="sh build.sh")
    await project.story(shows, keeps, {"src/half.txt": "1.5\n"})
    when = example("shell", "cat dist/when\n")
    one, other = await project.run(when, when)
    assert [run.stdout for run in one] == [run.stdout for run in other]
    ((failed, _),) = await project.run(shows, change={"src/broken": ""})
    assert failed.problem.startswith("The project's build (`sh build.sh`) ended with exit code 1")


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler is installed")
async def test_a_c_extension_is_built_from_the_change(provider: BubblewrapProvider) -> None:
    source = "#include <stdio.h>\ndouble half(int a) { return a / 2; }\n"
    files = {
        "native/half.c": source,
        "calc/__init__.py": "import ctypes, pathlib\n"
        "_lib = ctypes.CDLL(str(pathlib.Path(__file__).with_name('half.so')))\n"
        "_lib.half.restype = ctypes.c_double\nhalf = _lib.half\n",
    }
    project = ExampleProject(provider, files, build="gcc -shared -fPIC -o calc/half.so native/half.c")
    shows = example("python", "import calc\nprint(calc.half(3))\n", "1.5\n")
    keeps = example("python", "import calc\nprint(calc.half(4))\n", "2.0\n")
    await project.story(shows, keeps, {"native/half.c": source.replace("a / 2", "a / 2.0")})


WORKSPACE = {
    "package.json": '{"name": "top", "private": true, "workspaces": ["packages/*"]}',
    "packages/low/package.json": '{"name": "@top/low", "main": "dist/index.js"}',
    "packages/low/src/index.ts": "export const half = (a: number) => a >> 1\n",
    "packages/high/package.json": '{"name": "@top/high", "main": "index.js"}',
    "packages/high/index.js": "exports.half = require('@top/low').half\n",
    # As npm links a member, for a tree without links.
    "node_modules/@top/low/package.json": '{"name": "@top/low", "main": "../../../packages/low/dist/index.js"}',
}
COMPILE = (
    "cd packages/low && mkdir -p dist && sed 's/: number//; s/export const /exports./' src/index.ts > dist/index.js"
)


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
async def test_a_member_of_a_workspace_is_built_for_the_members_that_use_it(provider: BubblewrapProvider) -> None:
    shows = example("node", "console.log(require('./packages/high').half(3))\n", "1.5\n")
    keeps = example("node", "console.log(require('./packages/high').half(4))\n", "2\n")
    change = {"packages/low/src/index.ts": "export const half = (a: number) => a / 2\n"}
    await ExampleProject(provider, WORKSPACE, build=COMPILE).story(shows, keeps, dict(change))


def with_library(version: int) -> SetupPlan:
    """An environment with one module."""
    place = "/env/lib/python3.*/site-packages"
    commands = (
        f"{sys.base_prefix}/bin/python3 -I -m venv --without-pip /env",
        f"echo NUMBER={version} > $(echo {place})/library.py",
    )
    return SetupPlan(commands=commands, key=f"a library, {version}")


async def test_a_change_of_a_dependency_has_its_own_environment(provider: BubblewrapProvider) -> None:
    files = {"requirements.txt": "library==1\n", "calc.py": "from library import NUMBER\n"}
    shows = example("python", "import calc\nprint(calc.NUMBER)\n", "2\n")
    before, after = (ExampleProject(provider, files, setup=with_library(version)) for version in (1, 2))
    change = {"requirements.txt": "library==2\n"}
    assert [run.stdout for run in (await before.run(shows))[0]] == ["1\n", "1\n"]
    assert all(run.printed(shows) for run in (await after.run(shows, change=dict(change)))[0])


async def test_a_program_of_a_missing_language_is_a_problem(provider: BubblewrapProvider) -> None:
    found = await ExampleProject(provider, {"a.py": ""}).run(example("go", "package main\n\nfunc main() {}\n"))
    assert {run.problem for run in found[0]} == {"There is no go.mod in this project."}
