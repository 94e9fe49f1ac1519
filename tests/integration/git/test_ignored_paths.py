"""The rules of .gitignore, with git itself as the judge."""

import subprocess
from pathlib import Path

import pytest

from app.sandbox.changes import MAX_IGNORE_LINES, ignored_by

RULES = {
    ".gitignore": b"# comment\n\nbuild/\n*.log\n!keep.log\n/anchored\ndoc/*.txt\n**/deep/x\na/**/z\ntrail  \nesc\\ \n"
    b"foo/*\n!foo/bar\n!no-match\nfile[0-9]\nnot[!a]\n\\!bang\n\\#hash\ndir-only/\n/top/sub/\nwin\r\nwild?\n",
    "sub/.gitignore": b"*.tmp\n!*.log\n/own\n",
    "sub/deeper/.gitignore": b"!special.tmp\n*.log\n",
}
PATHS = """
build/x a/build/x build a.log keep.log sub/a.log sub/keep.log sub/deeper/a.log anchored sub/anchored doc/a.txt
doc/in/a.txt deep/x q/deep/x a/z a/b/z a/b/c/z trail esc foo/x foo/bar foo/bar/y foo/x/y file1 filex nota notb !bang
#hash dir-only dir-only/x top/sub/x q/top/sub/x win wild1 wild12 sub/x.tmp sub/own sub/q/own sub/deeper/special.tmp
sub/deeper/other.tmp sub/special.tmp x.tmp src/main.c .hidden unicode-ü.log
""".split()  # noqa: SIM905 - forty quoted names would be harder to read


def git_says(root: Path, path: str) -> bool:
    """What `git check-ignore` answers for one file that is really there, and nothing else besides the rules."""
    environment = {
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "PATH": "/usr/bin:/bin",
        "HOME": str(root),
    }
    subprocess.run(["git", "init", "-q", root], check=True, env=environment)
    for name, content in {**RULES, path: b""}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    done = subprocess.run(["git", "check-ignore", "-q", "--", path], cwd=root, check=False, env=environment)
    return done.returncode == 0


@pytest.mark.parametrize("path", PATHS)
def test_as_git_says(path: str, tmp_path: Path) -> None:
    assert ignored_by(RULES)(path) == git_says(tmp_path, path)


def test_the_paths_are_of_both_kinds() -> None:
    ignored = ignored_by(RULES)
    assert 15 < sum(map(ignored, PATHS)) < len(PATHS) - 15


@pytest.mark.parametrize(
    "path",
    ["__pycache__/x", "a/__pycache__/b.pyc", "node_modules/a/b.js", "x/node_modules/y", ".venv/bin/python", "a.pyc",
     "pkg.egg-info/PKG-INFO", ".coverage", ".pytest_cache/v/x", "a/.DS_Store", ".mypy_cache/3.11/x"],
)  # fmt: skip
def test_litter_without_any_rule(path: str) -> None:
    assert ignored_by({})(path)


@pytest.mark.parametrize(
    "path", ["src/a.py", "build/x", "dist/x", "target/x", "lib/x", "env/x", "a.pycx", ".env", ".github/x"]
)
def test_paths_that_are_not_ignored(path: str) -> None:
    assert not ignored_by({})(path)


def test_a_rule_can_include_ignored_files_again() -> None:
    ignored = ignored_by({".gitignore": b"!*.swp\n"})
    assert not ignored("a.swp")
    assert ignored("a.pyc")


def test_directories_besides() -> None:
    ignored = ignored_by({}, ("src/gen", "one.py"))
    assert ignored("src/gen/x/y")
    assert ignored("one.py")
    assert not ignored("src/generated")
    assert not ignored("sub/one.py")


def test_broken_and_hostile_rules_are_left_out() -> None:
    """A pattern of many stars would take a regular expression minutes; leaving it out only shows more changes."""
    bomb = b"*a" * 30 + b"b\n" + b"**/" * 30 + b"x\n"
    ignored = ignored_by({".gitignore": b"\\\n[\n!\n" + bomb + b"ok\n" + b"\xff\xfe\n"})
    assert not ignored("a" * 200)
    assert not ignored("a/" * 200 + "y")
    assert ignored("ok")


def test_a_file_of_a_million_rules_is_cut() -> None:
    ignored = ignored_by({".gitignore": b"first\n" + b"x\n" * MAX_IGNORE_LINES + b"last\n"})
    assert ignored("first")
    assert not ignored("last")
