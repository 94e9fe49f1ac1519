"""Examples in Ruby, PHP and a shell, and projects that are built before their examples run."""

import shutil

import pytest

from app.sandbox.bubblewrap.provider import BubblewrapProvider
from tests.support.examples import ExampleProject, example


@pytest.mark.skipif(shutil.which("ruby") is None, reason="Ruby is not installed")
async def test_ruby_finds_the_project_in_lib(provider: BubblewrapProvider) -> None:
    files = {"lib/calc.rb": "def half(a) = a / 2\n", "Gemfile": "source 'nowhere'\ngem 'missing'\n"}
    shows = example("ruby", "require 'calc'\nputs half(3)\n", "1.5\n")
    keeps = example("ruby", "require 'calc'\nputs half(4).to_i, ARGV.inspect\n", "2\n[]\n")
    await ExampleProject(provider, files).story(shows, keeps, {"lib/calc.rb": "def half(a) = a / 2.0\n"})


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


async def test_a_program_of_a_missing_language_is_a_problem(provider: BubblewrapProvider) -> None:
    found = await ExampleProject(provider, {"a.py": ""}).run(example("go", "package main\n\nfunc main() {}\n"))
    assert {run.problem for run in found[0]} == {"There is no go.mod in this project."}
