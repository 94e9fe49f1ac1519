"""The candidates of projects in each language: which suite comes first, and which others are tried."""

import json

import pytest

from app.verify.candidates import Candidate, candidates
from tests.support.memory_tree import MemoryTree
from tests.unit.verify.test_candidates import FRESH, PROJECT, UNITTEST

PLAIN = "def test_a():\n    assert 1\n"
GOOGLETEST = {f"test/googletest-1.16/googletest/test/a{n}_test.py": UNITTEST for n in range(9)}
CMAKE = 'option(A_BUILD_TESTS "x" OFF)\noption(A_DOCS "x" OFF)\nif(A_BUILD_TESTS)\n  enable_testing()\nendif()\n'
BUILT = 'cmake -S . -B build -DA_BUILD_TESTS=ON && cmake --build build --parallel "$(nproc)" && (cd build && ctest)'
RUBY_CI = "jobs: {test: {steps: [{run: 'bundle install'}, {run: 'bundle exec rake spec'}]}}"
NODE_SCRIPT = {
    "build": "tsc --build && type-coverage && esbuild . --minify | terser | gzip-size --raw",
    "format": "remark . -qfo && xo --fix",
    "test-api": "node --conditions development test/index.js",
    "test-coverage": "c8 --100 --reporter lcov -- npm run test-api",
    "test": "npm run build && npm run format && npm run test-coverage",
}
FIRST = [
    (
        {"go.work": "go 1.24\n\nuse (\n\t.\n\t./a\n\t./b // x\n)\n", "go.mod": "", "a/go.mod": "", "b/go.mod": "",
         "a/a_test.go": "", "b/c/b_test.go": "", "x.go": ""},
        "go test ./... ./a/... ./b/...",
    ),
    ({"go.work": "use ./a\n", "a/go.mod": "", "a/a_test.go": "", "b/go.mod": "", "b/b_test.go": ""}, "go test ./a/..."),
    (
        {"go.mod": "", "a.go": "", "tests/go.mod": "", "tests/a_test.go": "", "b/go.mod": "", "b/b_test.go": ""},
        'failed=; for each in b tests; do (cd "$each" && go test ./...) || failed=1; done; [ -z "$failed" ]',
    ),
    ({"go.mod": "module a\n", "a_test.go": "", "b/go.mod": "", "b/b_test.go": ""}, "go test ./..."),
    ({"CMakeLists.txt": CMAKE, "test/a_test.cpp": "", **GOOGLETEST}, BUILT),
    ({"CMakeLists.txt": CMAKE, "Makefile": "test: all\n", "test.c": ""}, BUILT),
    ({"Gemfile": "", ".rspec": "", "spec/a_spec.rb": "", ".github/workflows/ci.yml": RUBY_CI}, "bundle exec rake spec"),
    ({"Gemfile": "", "Rakefile": "", "test/test_a.rb": "", "package.json": "{}"}, "bundle exec rake test"),
    ({"package.json": json.dumps({"scripts": NODE_SCRIPT}), "test/index.js": "import test from 'node:test'\n"},
     ("npx --no-install tsc --build && npx --no-install esbuild . --minify && "
      "node --conditions development test/index.js")),
    ({"package.json": '{"scripts": {"test": "xo && node test.js"}}', "test.js": "import 'node:test'"}, "node test.js"),
    ({"package.json": '{"scripts": {"test": "xo && node test/all.js"}}', "test/all.js": "import './a.js'",
      "test/a.js": "import 'node:test'"}, "node test/all.js"),
    ({"package.json": '{"scripts": {"test": "tsc && node ./node_modules/vitest/dist/cli.js run"}}'},
     "npx --no-install tsc && npx --no-install vitest run"),
    ({"pyproject.toml": PROJECT, "tests/test_a.py": UNITTEST,
      "tox.ini": "[testenv]\nsetenv =\n  DJANGO_SETTINGS_MODULE = tests.settings\n"
      "commands = python -b -m coverage run -m django test -v2 --keepdb {posargs:tests}\n"},
     "DJANGO_SETTINGS_MODULE=tests.settings python3 -m django test -v 2 --keepdb tests"),
    ({"mix.exs": "", "test/a_test.exs": "", "deps/x/test/x_test.exs": ""}, "mix test"),
    ({"build.gradle.kts": "", "gradlew": "", "src/test/java/ATest.java": ""}, "./gradlew test"),
    ({"composer.json": "{}", "phpunit.xml.dist": "", "tests/ATest.php": ""}, "vendor/bin/phpunit"),
]  # fmt: skip


def found_in(files: dict[str, str]) -> list[Candidate]:
    return candidates(MemoryTree({path: text.encode() for path, text in files.items()}), FRESH)


@pytest.mark.parametrize(("files", "command"), FIRST)
def test_the_first_candidate(files: dict[str, str], command: str) -> None:
    first = found_in(files)[0]
    assert first.suite is not None
    assert first.suite.command == command


def test_other_suites_and_a_set_up_without_nodes_packages_are_candidates_too() -> None:
    files = {"Gemfile": "", ".rspec": "", "spec/a_spec.rb": "", "package.json": '{"devDependencies": {"x": "1"}}'}
    assert [(one.suite.command, one.choice.without) for one in found_in(files) if one.suite] == [
        ("bundle exec rspec", ()),
        ("bundle exec rspec", ("npm",)),
        ("rspec", ()),
    ]
    files = {
        "CMakeLists.txt": CMAKE,
        "Makefile": "test: all\n",
        "tests/a.c": "",
        "py/setup.py": "",
        "py/test_a.py": PLAIN,
    }
    commands = [one.suite.command for one in found_in(files) if one.suite]
    assert commands == [BUILT, "cd py && python3 -m pytest", "make test"]


CI_STEPS = [
    ("cmake -B out -DX=ON\ncmake --build out\nsudo make install\nctest --test-dir out -V",
     "cmake -B out -DX=ON && cmake --build out && ctest --test-dir out -V"),
    ("./autogen.sh && ./configure --prefix=/x\nmake -j4\nmake check",
     "./autogen.sh && ./configure --prefix=/x && make -j4 && make check"),
    ("composer install\nphp vendor/bin/phpunit --testdox", "php vendor/bin/phpunit --testdox"),
    ("mix deps.get\nMIX_ENV=test mix test --cover", "MIX_ENV=test mix test --cover"),
    ("dotnet restore\ndotnet build -c X\ndotnet test --no-build", "dotnet build -c X && dotnet test --no-build"),
    ("./gradlew assemble\n./gradlew check --stacktrace", "./gradlew check --stacktrace"),
    ("go test -v example.org/a/... | tee x", "go test -v example.org/a/..."),
    ("bundle exec rubocop\nbundle exec rake rubocop", ""),
    ("make docs", ""),
    ("go test $PACKAGES", ""),
]  # fmt: skip


@pytest.mark.parametrize(("script", "command"), CI_STEPS)
def test_steps_of_ci_are_a_candidate_in_every_language(script: str, command: str) -> None:
    steps = json.dumps({"jobs": {"test": {"steps": [{"run": script}]}}})
    files = {".github/workflows/ci.yml": steps, "Makefile": "test:\n", "tests/a.c": ""}
    first = found_in(files)[0]
    assert first.suite is not None
    assert first.suite.command == (command or "make test")
