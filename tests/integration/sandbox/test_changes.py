"""A tree is changed inside a real sandbox and comes out as a patch; the patch goes into another, and is the same."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.core.patch import FileChange, Patch
from app.sandbox import changes
from app.sandbox.base import CompletedCommand, Sandbox, SandboxCommand, SandboxLimits, SandboxProvider, SandboxSpec
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from app.sandbox.changes import baseline, export, restore, restore_path
from app.sandbox.unsandboxed import UnsandboxedProvider
from tests.support.memory_tree import MemoryTree
from tests.support.sandboxes import filler, opened, shell
from tests.support.wrapped_sandbox import WrappedSandbox

FILES = {
    ".gitignore": b"build/\n*.log\n!keep.log\n",
    "README.md": b"hello\n",
    "bin/tool": b"#!/bin/sh\necho tool\n",
    "docs/link": b"../README.md",
    "src/a.py": b"a = 1\n",
    "src/b.py": b"b = 1\n",
    "src/deep/.gitignore": b"*.tmp\n",
    "src/deep/c.py": b"c = 1\n",
    "-dash": b"dash\n",
    "name with ünïcode and 'quotes' \"$(id)\"": b"odd\n",
}
MODES = {"bin/tool": "100755", "docs/link": "120000"}
TREE = MemoryTree(FILES, commit="c" * 40, modes=MODES)
BASE = baseline(TREE)


@pytest.fixture(params=["bubblewrap", "none"])
def provider(request: pytest.FixtureRequest, tmp_path: Path) -> SandboxProvider:
    if request.param == "bubblewrap":
        return BubblewrapProvider(tmp_path / "jobs", caches=tmp_path / "caches")
    return UnsandboxedProvider(tmp_path / "jobs")


@pytest.fixture
async def sandbox(provider: SandboxProvider) -> AsyncIterator[Sandbox]:
    async with opened(provider, SandboxSpec("job", filler(FILES, MODES))) as opening:
        yield opening


def told(patch: Patch) -> dict[str, tuple[str, bytes | None]]:
    return {change.path: (change.mode, change.content) for change in patch.changes}


def refused(patch: Patch) -> dict[str, str]:
    return {refusal.path: refusal.reason for refusal in patch.refusals}


async def test_an_untouched_tree_is_an_empty_patch(sandbox: Sandbox) -> None:
    patch = await export(sandbox, BASE)
    assert patch.empty
    assert patch.base == "c" * 40


async def test_every_kind_of_change(sandbox: Sandbox) -> None:
    await shell(
        sandbox,
        """
        echo 'a = 2' > src/a.py; rm src/b.py; chmod +x README.md; chmod -x bin/tool
        ln -sfn ../src docs/link; echo new > 'new file'; ln -s /etc/passwd passwd
        printf 'x\\0y' > binary; : > empty; printf dash2 > ./-dash
        """,
    )
    patch = await export(sandbox, BASE)
    assert told(patch) == {
        "-dash": ("100644", b"dash2"),
        "README.md": ("100755", b"hello\n"),
        "bin/tool": ("100644", FILES["bin/tool"]),
        "binary": ("100644", b"x\0y"),
        "docs/link": ("120000", b"../src"),
        "empty": ("100644", b""),
        "new file": ("100644", b"new\n"),
        "passwd": ("120000", b"/etc/passwd"),
        "src/a.py": ("100644", b"a = 2\n"),
        "src/b.py": ("100644", None),
    }
    assert [change.path for change in patch.changes] == sorted(told(patch))
    assert not patch.refusals


async def test_touching_and_rewriting_the_same_bytes_is_not_a_change(sandbox: Sandbox) -> None:
    await shell(sandbox, "touch src/a.py; cp src/b.py t; mv t src/b.py; chmod 600 README.md; chmod 700 bin/tool")
    assert (await export(sandbox, BASE)).empty


async def test_a_change_that_sets_the_old_times_and_size_is_seen(sandbox: Sandbox) -> None:
    await shell(sandbox, "touch -r src/a.py /tmp/r; printf 'a = 9\\n' > src/a.py; touch -r /tmp/r src/a.py")
    assert told(await export(sandbox, BASE)) == {"src/a.py": ("100644", b"a = 9\n")}


async def test_directories_swapped_by_renaming_are_seen(provider: SandboxProvider) -> None:
    files = {"one/x.py": b"1\n", "two/x.py": b"2\n"}
    async with opened(provider, SandboxSpec("swap", filler(files))) as sandbox:
        await shell(sandbox, "mv one three; mv two one; mv three two")
        patch = await export(sandbox, baseline(MemoryTree(files)))
    assert told(patch) == {"one/x.py": ("100644", b"2\n"), "two/x.py": ("100644", b"1\n")}


async def test_a_directory_becomes_a_file_and_a_link(sandbox: Sandbox) -> None:
    await shell(sandbox, "rm -r src/deep; echo flat > src/deep; rm -r docs; ln -s src docs")
    assert told(await export(sandbox, BASE)) == {
        "docs": ("120000", b"src"),
        "docs/link": ("120000", None),
        "src/deep": ("100644", b"flat\n"),
        "src/deep/.gitignore": ("100644", None),
        "src/deep/c.py": ("100644", None),
    }


async def test_ignored_files_and_litter_do_not_count(sandbox: Sandbox) -> None:
    await shell(
        sandbox,
        """
        mkdir -p build src/__pycache__ node_modules/x a/b/.pytest_cache
        touch build/out x.log src/__pycache__/a.pyc node_modules/x/i.js a/b/.pytest_cache/v src/deep/t.tmp .coverage
        touch keep.log src/t.tmp
        """,
    )
    assert sorted(told(await export(sandbox, BASE))) == ["keep.log", "src/t.tmp"]


async def test_rules_come_from_the_base_commit(sandbox: Sandbox) -> None:
    await shell(sandbox, "echo '*' > .gitignore; echo '*' > src/.gitignore; echo x > src/hidden.py")
    assert sorted(told(await export(sandbox, BASE))) == [".gitignore", "src/.gitignore", "src/hidden.py"]


async def test_a_tracked_file_counts_though_it_is_ignored(provider: SandboxProvider) -> None:
    files = {".gitignore": b"*.gen\nnode_modules/\n", "a.gen": b"1", "node_modules/m/i.js": b"1"}
    async with opened(provider, SandboxSpec("tracked", filler(files))) as sandbox:
        await shell(sandbox, "echo 2 > a.gen; echo 2 > node_modules/m/i.js; echo 3 > node_modules/m/other.js")
        patch = await export(sandbox, baseline(MemoryTree(files)))
    assert sorted(told(patch)) == ["a.gen", "node_modules/m/i.js"]


async def test_a_tracked_file_or_link_with_the_name_of_a_generated_directory_is_not_deleted(
    provider: SandboxProvider,
) -> None:
    files = {".venv": b"/venvs/project\n", "web/node_modules": b"../modules", "modules/i.js": b"1"}
    modes = {"web/node_modules": "120000"}
    async with opened(provider, SandboxSpec("named", filler(files, modes))) as sandbox:
        patch = await export(sandbox, baseline(MemoryTree(files, modes=modes)))
    assert patch.empty


async def test_directories_of_the_set_up_do_not_count(sandbox: Sandbox) -> None:
    await shell(sandbox, "mkdir -p src/pkg.data; touch src/pkg.data/x src/generated.py src/generated.pyx")
    base = baseline(TREE, besides=("src/pkg.data", "src/generated.py"))
    assert sorted(told(await export(sandbox, base))) == ["src/generated.pyx"]


async def test_a_planted_git_hook_is_reported(sandbox: Sandbox) -> None:
    await shell(
        sandbox, "mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; mkdir -p src/.GIT; echo x > src/.GIT/config"
    )
    patch = await export(sandbox, BASE)
    assert sorted(refused(patch)) == [".git/hooks/pre-commit", "src/.GIT"]
    assert "hook" in refused(patch)[".git/hooks/pre-commit"]
    assert not patch.changes


async def test_a_whole_repository_is_one_refusal(sandbox: Sandbox) -> None:
    await shell(sandbox, "git init -q . && git add -A && git -c user.name=x -c user.email=x commit -qm x")
    assert list(refused(await export(sandbox, BASE))) == [".git"]


async def test_special_files_are_refused(sandbox: Sandbox) -> None:
    await shell(
        sandbox,
        """
        mkfifo fifo; rm README.md; mkfifo README.md; cp /bin/true suid; chmod 4755 suid
        python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('sock')"
        """,
    )
    patch = await export(sandbox, BASE)
    assert sorted(refused(patch)) == ["README.md", "fifo", "sock", "suid"]
    assert not patch.changes


async def test_odd_names_are_refused_in_printable_words(sandbox: Sandbox) -> None:
    script = "import os; [open(n, 'wb').close() for n in (b'new\\nline', b'esc\\x1b[2J', b'latin\\xff', b'del\\x7f')]"
    await shell(sandbox, f'python3 -c "{script}"')
    patch = await export(sandbox, BASE)
    assert sorted(refused(patch)) == ["del\\x7f", "esc\\x1b[2J", "latin\\xff", "new\\nline"]
    assert not patch.changes


async def test_very_deep_and_very_long_paths(sandbox: Sandbox) -> None:
    dig = "import os; [(os.mkdir('d' * 120), os.chdir('d' * 120)) for _ in range(40)]; open('f', 'w').write('x')"
    await shell(sandbox, f'python3 -c "{dig}"')
    patch = await export(sandbox, BASE)
    assert len(patch.refusals) == 1
    assert "limit is 4,000" in patch.refusals[0].reason
    assert len(patch.refusals[0].path) < 310
    assert not patch.changes


async def test_an_unreadable_file_and_an_unreadable_directory(provider: SandboxProvider) -> None:
    async with opened(provider, SandboxSpec("closed", filler(FILES, MODES))) as sandbox:
        if await shell(sandbox, "id -u") == "0\n":
            pytest.skip("root reads everything")
        await shell(sandbox, "chmod 0 src/deep; echo 'a = 3' > src/a.py; chmod 0 src/a.py")
        patch = await export(sandbox, BASE)
        await restore(sandbox, BASE, Patch(base=TREE.commit))
        assert (await export(sandbox, BASE)).empty
    assert refused(patch) == {"src/a.py": "could not be read", "src/deep": "a directory that cannot be read"}
    assert not patch.changes  # and nothing below src/deep is taken for deleted


async def test_large_files_are_refused_unread_with_their_size(sandbox: Sandbox) -> None:
    await shell(
        sandbox, f"head -c {changes.FILE_BYTES + 1} /dev/zero > large; truncate -s 900G sparse || truncate -s 1G sparse"
    )
    patch = await export(sandbox, BASE)
    assert sorted(refused(patch)) == ["large", "sparse"]
    assert refused(patch)["large"] == "5,242,881 bytes; the limit for a file is 5,242,880"


async def test_a_large_tracked_file_that_was_only_touched_is_not_a_change(provider: SandboxProvider) -> None:
    files = {"large.bin": b"\0" * (changes.FILE_BYTES + 7)}
    async with opened(provider, SandboxSpec("large", filler(files))) as sandbox:
        base = baseline(MemoryTree(files))
        await shell(sandbox, "touch large.bin")
        assert (await export(sandbox, base)).empty
        await shell(sandbox, "printf x | dd of=large.bin conv=notrunc status=none")
        assert list(refused(await export(sandbox, base))) == ["large.bin"]


async def test_too_many_bytes_in_all(sandbox: Sandbox) -> None:
    await shell(sandbox, "mkdir many; for i in $(seq 13); do head -c 4200000 /dev/urandom > many/$i; done")
    patch = await export(sandbox, BASE)
    assert refused(patch) == {".": "over 52,428,800 bytes in changed files, which is the limit"}
    assert not patch.changes


async def test_too_many_files(sandbox: Sandbox) -> None:
    await shell(sandbox, "mkdir many; cd many; seq 10001 | xargs touch")
    assert refused(await export(sandbox, BASE)) == {".": "10,001 files were written; the limit is 10,000"}


async def test_a_small_output_limit_does_not_cut_a_patch(tmp_path: Path) -> None:
    provider = BubblewrapProvider(tmp_path / "jobs", caches=tmp_path / "caches")
    files = {f"f{number}": b"x" for number in range(300)}
    async with opened(provider, SandboxSpec("cut", filler(files), limits=SandboxLimits(output=1024))) as sandbox:
        await shell(sandbox, "head -c 300000 /dev/urandom > big; rm f7")
        patch = await export(sandbox, baseline(MemoryTree(files)))
    assert sorted(told(patch)) == ["big", "f7"]
    assert len(told(patch)["big"][1] or b"") == 300_000


async def test_without_a_listing_everything_is_compared(provider: SandboxProvider, tmp_path: Path) -> None:
    async with opened(provider, SandboxSpec("job", filler(FILES, MODES))) as sandbox:
        (tmp_path / "jobs" / "job" / "filled").write_bytes(b"")
        assert (await export(sandbox, BASE)).empty
        await shell(sandbox, "echo 2 > src/a.py; rm src/b.py")
        assert sorted(told(await export(sandbox, BASE))) == ["src/a.py", "src/b.py"]


class Recording(WrappedSandbox):
    """A sandbox that notes what is sent to each command's standard input."""

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__(sandbox)
        self.inputs: list[bytes] = []

    async def execute(self, command: SandboxCommand) -> CompletedCommand:
        self.inputs.append(command.stdin)
        return await super().execute(command)


async def test_only_files_that_were_written_are_read(sandbox: Sandbox) -> None:
    recording = Recording(sandbox)
    await export(recording, BASE)
    assert recording.inputs == [b""]  # one listing, nothing to read
    await shell(sandbox, "echo 2 > src/a.py; mkdir src/__pycache__; touch src/new.py")
    await export(recording, BASE)
    assert sorted(b"".join(recording.inputs[1:]).split(b"\0")[:-1]) == [b"src/a.py", b"src/new.py"]


async def test_a_patch_restored_into_a_fresh_tree_is_the_same_patch(provider: SandboxProvider) -> None:
    async with opened(provider, SandboxSpec("one", filler(FILES, MODES))) as first:
        await shell(
            first,
            """
            echo 2 > src/a.py; rm -r src/deep; echo flat > src/deep; ln -sfn nowhere docs/link; chmod +x README.md
            mkdir -p new/dir; printf 'n\\0' > new/dir/f; ln -s / root; echo q > "it's \\"odd\\""; rm -- -dash
            """,
        )
        patch = await export(first, BASE)
    async with opened(provider, SandboxSpec("two", filler(FILES, MODES))) as second:
        await restore(second, BASE, patch)
        assert await export(second, BASE) == patch


async def test_restoring_undoes_whatever_was_done_and_leaves_ignored_files(sandbox: Sandbox) -> None:
    await shell(
        sandbox,
        r"""
        rm -r src; ln -s /tmp src; echo x > untracked; mkdir -p a/b/c; echo x > a/b/c/d; mkfifo fifo; mkdir -p build
        mkdir -p .git/hooks node_modules; echo kept > build/out; echo x > .git/hooks/pre-push; touch node_modules/k
        mkdir README.dir; mv README.md README.dir/; mkdir README.md; touch README.md/x; chmod 500 README.md
        touch $'odd\nname'; chmod 000 README.dir; mkdir -p deep/er; echo x > deep/er/f; chmod 000 deep/er deep
        """,
    )
    await restore(sandbox, BASE, Patch(base=TREE.commit))
    assert (await export(sandbox, BASE)).empty
    names = (await shell(sandbox, "ls -A")).split("\n")[:-1]
    top = {path.split("/")[0] for path in FILES} | {"build", "node_modules"}
    assert sorted(names) == sorted(top)
    assert (
        await shell(sandbox, "cat build/out; ls node_modules; cat README.md; stat -c %a bin/tool")
        == "kept\nk\nhello\n755\n"
    )


async def test_restoring_a_patch_over_other_changes(sandbox: Sandbox) -> None:
    patch = Patch(
        base=TREE.commit,
        changes=(
            FileChange(path="src", mode="120000", content=b"elsewhere"),
            *(FileChange(path=path, mode="100644", content=None) for path in FILES if path.startswith("src/")),
            FileChange(path="x/y/z", mode="100755", content=b"#!\n"),
        ),
    )
    await shell(sandbox, "echo 2 > src/a.py; echo x > src/new.py; echo file > x")
    await restore(sandbox, BASE, patch)
    assert await export(sandbox, BASE) == patch.model_copy(
        update={"changes": tuple(sorted(patch.changes, key=lambda change: change.path))}
    )
    await restore(sandbox, BASE, Patch(base=TREE.commit))
    assert (await export(sandbox, BASE)).empty


@pytest.mark.skipif(sys.platform != "linux", reason="names of any bytes exist on Linux only")
async def test_a_base_with_a_name_that_is_not_utf8(provider: SandboxProvider) -> None:
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    files = {name: b"1\n", "ok": b"1\n"}
    async with opened(provider, SandboxSpec("latin", filler(files))) as sandbox:
        base = baseline(MemoryTree(files))
        assert (await export(sandbox, base)).empty
        await shell(sandbox, "rm caf*")
        assert refused(await export(sandbox, base)) == {"caf\\xe9": "a name that is not UTF-8"}
        await restore(sandbox, base, Patch(base=TREE.commit))
        assert (await export(sandbox, base)).empty


SRC = ("src/a.py", "src/deep/c.py", "src/new")
BECAME = ("src/a.py", "src/a.py/x")
RESTORED = {
    "a changed file": ("echo 2 > src/a.py; echo 2 > src/b.py", "src/a.py", ("src/a.py",)),
    "a removed file": ("rm src/a.py", "src/a.py", ("src/a.py",)),
    "a mode": ("chmod +x src/a.py; chmod -x bin/tool", "bin/tool", ("bin/tool",)),
    "a link": ("ln -sfn /etc docs/link", "docs/link", ("docs/link",)),
    "a new file": ("echo 1 > src/new.py", "src/new.py", ("src/new.py",)),
    "a directory": ("echo 2 > src/a.py; rm src/deep/c.py; echo 1 > src/new", "src", SRC),
    "a file that became a directory": ("rm src/a.py; mkdir src/a.py; echo > src/a.py/x", "src/a.py", BECAME),
    "a name that is not UTF-8": ("printf x > \"$(printf 'n\\351')\"", "n\\xe9", ("n\\xe9",)),
    "a large file": ("head -c 6M /dev/zero > src/a.py", "src/a.py", ("src/a.py",)),
    "nothing": ("echo 2 > src/b.py", "src/a.py", ()),
    "an ignored file": ("mkdir build; echo 1 > build/x", "build/x", ()),
}


@pytest.mark.parametrize("case", RESTORED)
async def test_one_path_is_put_back_and_the_rest_stays(sandbox: Sandbox, case: str) -> None:
    script, path, expected = RESTORED[case]
    await shell(sandbox, f"{script}; echo changed > README.md")
    assert await restore_path(sandbox, BASE, path) == expected
    patch = await export(sandbox, BASE)
    assert not {change.path for change in patch.changes} & set(expected)
    assert told(patch)["README.md"] == ("100644", b"changed\n")
    assert not patch.refusals
