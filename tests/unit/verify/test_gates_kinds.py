"""Gates on size and kind: numbers, links, programs, bundles, names that collide."""

import pytest

from app.core.patch import Mode, Patch, RefusedFile
from app.core.task import AllowedPath
from app.core.verification import GateResult
from app.verify.gates import CandidatePatch, static_gates
from app.verify.gates.paths import (
    MAX_BINARY,
    MAX_BYTES,
    MAX_FILES,
    file_kinds,
    is_configured,
    protected_paths,
    refused_files,
    size,
)
from tests.support.memory_tree import MemoryTree
from tests.support.sandbox_projects import patch_of

BASE = {
    "src/a.py": b"a = 1\n",
    "README.md": b"hello\n",
    "docs/link": b"../README.md",
    "here": b".",
    "loop": b"loop",
    "out": b"../outside",
    "img.png": b"\x89PNG\0",
}
LINKS = {"docs/link": "120000", "here": "120000", "loop": "120000", "out": "120000"}


def candidate(changes: dict[str, str | bytes | None], modes: dict[str, Mode] | None = None) -> CandidatePatch:
    return CandidatePatch(MemoryTree(BASE, modes=LINKS), patch_of(changes, modes))


def kinds(path: str, content: str | bytes | None, mode: Mode = "100644") -> GateResult:
    return file_kinds(candidate({path: content}, {path: mode}))


def test_a_hundred_files_pass_and_one_more_is_refused_with_numbers() -> None:
    files: dict[str, str | bytes | None] = {f"f{number}.txt": "x" for number in range(MAX_FILES)}
    assert size(candidate(files)).outcome == "passed"
    gate = size(candidate({**files, "one-more.txt": "x"}))
    assert gate.outcome == "blocked"
    assert gate.details == ("101 files are changed; the limit is 100",)


def test_four_megabytes_pass_and_one_more_byte_is_refused_with_numbers() -> None:
    assert size(candidate({"a.txt": b"x" * MAX_BYTES})).outcome == "passed"
    gate = size(candidate({"a.txt": b"x" * MAX_BYTES, "b.txt": b"x"}))
    assert gate.details == ("the changed files have 4,194,305 bytes; the limit is 4,194,304",)


@pytest.mark.parametrize("changes", [{}, {"src/a.py": "a = 1\n"}, {"never-was.py": None}])
def test_a_patch_that_changes_nothing_is_refused(changes: dict[str, str | bytes | None]) -> None:
    assert size(candidate(changes)).details == ("the patch changes nothing",)


def test_a_mode_alone_is_a_change() -> None:
    assert size(candidate({"src/a.py": "a = 1\n"}, {"src/a.py": "100755"})).outcome == "passed"


def test_a_file_refused_at_export_blocks_with_its_reason() -> None:
    patch = Patch(base="0" * 40, refusals=(RefusedFile(path=".git/hooks/pre-commit", reason="inside git's directory"),))
    gate = refused_files(CandidatePatch(MemoryTree(BASE), patch))
    assert gate.outcome == "blocked"
    assert gate.details == (".git/hooks/pre-commit: inside git's directory",)


@pytest.mark.parametrize(
    "target",
    [
        "/etc/passwd",
        "../../etc/passwd",
        "..",
        "../..",
        "here/..",
        "here/../..",
        "here/here/../x",
        "loop",
        "out",
        "out/x",
        "new",
        "",
        "..\\..\\x",
        "C:x",
        "a\nb",
        ".git/config",
        ".GIT/config",
        "here/.git/config",
        "x/../.git/hooks",
    ],
)
def test_links_out_of_the_tree_or_into_git_are_refused(target: str) -> None:
    assert kinds("new", target, "120000").outcome == "blocked"


@pytest.mark.parametrize("target", ["README.md", "src", "here/README.md", "docs/link", "./src/../README.md", "missing"])
def test_relative_links_inside_warn(target: str) -> None:
    assert kinds("new", target, "120000").outcome == "warned"


def test_a_link_may_climb_as_far_as_the_top() -> None:
    assert kinds("a/b/new", "../../README.md", "120000").outcome == "warned"
    assert kinds("a/b/new", "../../../README.md", "120000").outcome == "blocked"


def test_an_unchanged_link_passes() -> None:
    assert kinds("out", "../outside", "120000").outcome == "passed"


def test_nothing_is_put_below_a_link_or_a_file() -> None:
    assert kinds("here/x.py", "x").outcome == "blocked"
    assert kinds("README.md/x.py", "x").outcome == "blocked"
    replaced = candidate({"README.md": None, "README.md/x.py": "x"})
    assert file_kinds(replaced).outcome == "passed"


@pytest.mark.parametrize("path", ["readme.MD", "SRC/a.py", "src/A.py"])
def test_names_that_only_differ_in_case_are_refused(path: str) -> None:
    gate = kinds(path, "x")
    assert gate.outcome == "blocked"
    assert "case" in gate.details[0]


def test_composition_makes_no_difference_either() -> None:
    both = candidate({"caf\u00e9.txt": "x", "cafe\u0301.txt": "y"})
    assert file_kinds(both).outcome == "blocked"


def test_a_rename_by_case_is_allowed() -> None:
    assert file_kinds(candidate({"README.md": None, "readme.md": "hello\n"})).outcome == "passed"


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("tool", b"\x7fELF\x02\x01"),
        ("tool.txt", b"MZ\x90\0"),
        ("a.wasm", b"\0asm"),
        ("x/__pycache__/a.cpython-311.pyc", b"x"),
        ("lib.so", b"x"),
        ("big.bin", b"\0" * (MAX_BINARY + 1)),
        ("img.png", b"\0" * (MAX_BINARY + 1)),
        ("dist/app.min.js", b"x"),
        ("dist/app.js", b"x" * 30_000),
        ("style.css", b"a{}" * 10_000),
    ],
)
def test_programs_large_binaries_and_bundles_are_refused(path: str, content: bytes) -> None:
    assert kinds(path, content).outcome == "blocked"


def test_small_binaries_and_executable_bits_warn() -> None:
    assert kinds("tests/data/x.bin", b"\0\1").details == ("tests/data/x.bin: binary, 2 bytes",)
    assert kinds("run.sh", "#!/bin/sh\n", "100755").details == ("run.sh: is now executable",)
    assert kinds("docs/link", "text\n").details == ("docs/link: was a symlink, is now a file",)


def test_long_lines_of_data_are_not_a_bundle() -> None:
    assert kinds("data.json", "[" + "1," * 20_000 + "1]").outcome == "passed"


def test_contents_are_not_read_where_the_size_blocks() -> None:
    gates = static_gates(candidate({"a.py": b"(" * (MAX_BYTES + 1)}))
    assert [gate.name for gate in gates] == ["size", "refused files", "protected paths", "file kinds"]


def test_an_ordinary_patch_passes_every_gate_by_name() -> None:
    gates = static_gates(candidate({"src/a.py": "a = 2\n"}))
    assert [gate.name for gate in gates] == [
        *("size", "refused files", "protected paths", "file kinds", "shadowing", "syntax"),
        *("secrets", "hidden characters", "dependencies", "how tests are run", "tests"),
    ]
    assert {gate.outcome for gate in gates} == {"passed"}


def test_an_allowed_path_warns_and_names_the_person() -> None:
    permits = (AllowedPath(path="infra/", by="octocat"), AllowedPath(path=".github/"), AllowedPath(path="a.sql"))
    changes = candidate(
        {"infra/main.tf": "x\n", "b.sql": "x\n", ".github/workflows/x.yml": "on: push\n", "a.sql": "x\n"}
    )
    found = protected_paths(changes, ["infra/", "*.sql"], permits)
    assert found.outcome == "blocked"
    assert set(found.details) == {
        ".github/workflows/x.yml: only people may change continuous integration, deployment and bot settings",
        "b.sql: protected by the configuration",
        "infra/main.tf: protected by the configuration; octocat allowed this change",
        "a.sql: protected by the configuration; this change was allowed with `--allow`",
    }
    only = protected_paths(candidate({"infra/main.tf": "x\n"}), ["infra/"], permits)
    assert only.outcome == "warned"


@pytest.mark.parametrize(
    ("path", "protected"), [("infra/x.tf", True), ("infra/", True), ("in/", False), ("deploy/", True), ("a.py", False)]
)
def test_paths_that_can_be_allowed_are_listed(path: str, protected: bool) -> None:
    assert is_configured(path, ["infra/", "deploy/prod/*.tf"]) is protected


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 12\n"
IN_LFS = {
    ".gitattributes": b"# media\n*.png -text filter=lfs diff=lfs merge=lfs\nassets/** filter=lfs\n*.txt text\n",
    "sub/.gitattributes": b"*.dat\tfilter=lfs\n",
    "a.png": POINTER,
    "sub/b.dat": POINTER,
    "plain.png": b"\x89PNG\0",
    "assets/c": POINTER,
}


@pytest.mark.parametrize(
    ("path", "content", "outcome"),
    [
        ("a.png", "plain bytes", "blocked"),
        ("assets/c", b"\x89PNG\0", "blocked"),
        ("sub/b.dat", "x", "blocked"),
        ("new.png", b"\x89PNG\0", "blocked"),
        ("deep/new.png", "<svg/>", "blocked"),
        ("b.dat", "x", "passed"),
        ("notes.txt", "x", "passed"),
        ("plain.png", "was never in LFS", "passed"),
        ("moved.png", POINTER, "passed"),
        ("a.png", None, "passed"),
    ],
)
def test_bytes_in_place_of_an_lfs_pointer_are_refused(path: str, content: str | bytes | None, outcome: str) -> None:
    gate = file_kinds(CandidatePatch(MemoryTree(IN_LFS), patch_of({path: content})))
    assert gate.outcome == outcome
    assert outcome == "passed" or gate.details == (f"{path}: is kept in Git LFS, which only a person can change",)
