"""A fix taken back from a base that has it: the code as it was before, and everything else as it is."""

from pathlib import Path

import pytest

from app.repo.git_store import GitStore
from app.verify.project import RevertedFix
from app.verify.reproduction import revert_fix
from tests.support.repositories import commit_files, git, make_repository

LINES = [f"line {number}\n" for number in range(20)]
BROKEN, MENDED = "".join(LINES), "".join(["mended\n", *LINES[1:]])
NEWER = "".join(["mended\n", *LINES[1:-1], "newer\n"])


class History:
    """A repository that is broken, then fixed, and its mirror, to which commits come one by one."""

    def __init__(self, tmp_path: Path) -> None:
        self.source = make_repository(tmp_path / "source", {"calc.py": BROKEN, "CHANGELOG.md": "# Changes\n"})
        self.before = commit_files(self.source, {"other.py": "x = 1\n"})
        self.store = GitStore(tmp_path / "mirror.git")
        self.store.ensure()

    def commit(self, **files: str) -> str:
        return commit_files(self.source, {name.replace("__", "."): content for name, content in files.items()})

    def fix(self) -> str:
        files = {
            "calc.py": MENDED,
            "tests/test_calc.py": "assert True\n",
            "CHANGELOG.md": "# Changes\n- fixed\n",
            "new.py": "",
        }
        return commit_files(self.source, files)

    def without(self, base: str, fix: str) -> RevertedFix:
        for commit in (base, fix):
            self.store.fetch(self.source, commit)
        for parent in self.store.parents(fix):
            self.store.fetch(self.source, parent)
        return revert_fix(self.store, base, fix)


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)


def contents(found: RevertedFix) -> dict[str, bytes | None]:
    assert found.patch is not None, found.reason
    return {change.path: change.content for change in found.patch.changes}


def test_right_after_the_fix_its_own_changes_are_gone_and_its_tests_stay(history: History) -> None:
    fix = history.fix()
    found = history.without(fix, fix)
    assert contents(found) == {"CHANGELOG.md": b"# Changes\n", "calc.py": BROKEN.encode(), "new.py": None}


def test_later_work_on_the_same_file_is_kept(history: History) -> None:
    fix = history.fix()
    base = history.commit(calc__py=NEWER)
    found = history.without(base, fix)
    assert contents(found)["calc.py"] == NEWER.replace("mended", "line 0").encode()


def test_edited_text_is_left_alone(history: History) -> None:
    fix = history.fix()
    base = history.commit(CHANGELOG__md="# Changes\n- fixed\n- more\n")
    assert contents(history.without(base, fix)).keys() == {"calc.py", "new.py"}


def test_code_that_was_changed_since_in_the_same_place_cannot_be_had_without(history: History) -> None:
    fix = history.fix()
    base = history.commit(calc__py=MENDED.replace("mended", "mended again"))
    found = history.without(base, fix)
    assert found == RevertedFix(None, "its lines were changed again later (calc.py)")


def test_a_reverted_fix_is_not_found(history: History) -> None:
    fix = history.fix()
    (history.source / "new.py").unlink()
    base = commit_files(history.source, {"calc.py": BROKEN, "CHANGELOG.md": "# Changes\n"})
    assert history.without(base, fix).reason == "only its tests are left in the base"


def test_reverting_a_merge_reverts_the_whole_branch(history: History) -> None:
    git(history.source, "checkout", "-q", "-b", "topic")
    history.fix()
    git(history.source, "checkout", "-q", "main")
    history.commit(third__py="y = 2\n")
    git(history.source, "merge", "-q", "--no-ff", "-m", "Merge pull request #41", "topic")
    fix = git(history.source, "rev-parse", "HEAD")
    assert contents(history.without(fix, fix)).keys() == {"CHANGELOG.md", "calc.py", "new.py"}


@pytest.mark.parametrize(
    ("mode", "name", "reason"),
    [
        ("040000 tree", ".git", "invalid path '.git/config'"),
        ("040000 tree", "..", "invalid path '../config'"),
        ("040000 tree", "GIT~1", "invalid path 'GIT~1/config'"),
        ("120000 blob", ".gitmodules", "invalid path '.gitmodules'"),
        ("160000 commit", "module", "only its tests are left in the base"),
    ],
)
def test_reverting_a_fix_does_not_restore_forbidden_files(history: History, mode: str, name: str, reason: str) -> None:
    """The commit before the fix was made by hand; no git would have written it."""
    source, head = history.source, history.before
    here = git(source, "ls-tree", head)
    hostile = git(source, "hash-object", "-w", "--stdin", stdin=b"[core]\n\tfsmonitor = false\n")
    folder = git(source, "mktree", stdin=f"100644 blob {hostile}\tconfig\n".encode())
    what = {"tree": folder, "blob": hostile, "commit": head}[mode.split()[1]]
    tree = git(source, "mktree", stdin=f"{here}\n{mode} {what}\t{name}\n".encode())
    who = ("-c", "user.name=Mallory", "-c", "user.email=mallory@example.com")
    before = git(source, *who, "commit-tree", tree, "-p", head, "-m", "Prepare")
    fix = git(source, *who, "commit-tree", f"{head}^{{tree}}", "-p", before, "-m", "Fix")
    found = history.without(fix, fix)
    assert found.patch is None
    assert reason in found.reason


def test_odd_names_links_and_attributes_are_reverted_exactly(history: History) -> None:
    (history.source / "link").symlink_to("/etc/passwd")
    fix = commit_files(
        history.source, {"a\nb.py": "x = 1\n", ".gitattributes": "*.py filter=no merge=no diff=no\n", "calc.py": MENDED}
    )
    kept = contents(history.without(fix, fix))
    assert kept == {"a\nb.py": None, ".gitattributes": None, "calc.py": BROKEN.encode(), "link": None}


def test_the_first_commit_is_not_a_fix(tmp_path: Path) -> None:
    source = make_repository(tmp_path / "one")
    store = GitStore(tmp_path / "mirror.git")
    store.ensure()
    only = store.fetch(source, "HEAD")
    assert "first commit" in revert_fix(store, only, only).reason
