"""One tree made of another: what differs, and only that."""

import pytest

from app.core.patch import FileChange, Patch
from app.verify.overlay import Overlay, apply_patch, difference
from app.verify.reproduction import with_tests_of
from tests.support.memory_tree import MemoryTree
from tests.support.sandbox_projects import patch_of

BASE = MemoryTree({"a": b"1\n", "b": b"2\n", "c/d": b"3\n"})
OTHER = MemoryTree({"a": b"1\n", "b": b"two\n", "c/e": b"4\n"})


def test_the_difference_makes_the_one_the_other() -> None:
    patch = difference(BASE, OTHER)
    assert patch.paths() == ("b", "c/d", "c/e")
    made = Overlay(BASE, patch)
    assert {path: made.read(path) for path in made.entries()} == OTHER.files


def test_equal_trees_have_no_difference() -> None:
    assert difference(BASE, BASE).empty


def test_two_overlays_differ_where_their_contents_do() -> None:
    def overlay(content: bytes) -> Overlay:
        changes = (FileChange(path=path, mode="100644", content=content) for path in ("a", "new"))
        return Overlay(BASE, Patch(base=BASE.commit, changes=tuple(changes)))

    assert difference(overlay(b"x"), overlay(b"y")).paths() == ("a", "new")
    assert difference(overlay(b"x"), overlay(b"x")).empty
    assert difference(BASE, overlay(b"1\n")).paths() == ("new",)


def test_the_upper_of_two_patches_wins() -> None:
    def patch(**contents: bytes | None) -> Patch:
        return Patch(
            base=BASE.commit,
            changes=tuple(FileChange(path=path, mode="100644", content=content) for path, content in contents.items()),
        )

    both = apply_patch(patch(a=b"lower", b=b"lower"), patch(b=None, c=b"upper"))
    assert both == patch(a=b"lower", b=None, c=b"upper")
    assert apply_patch(None, both) == apply_patch(both, None) == both
    assert apply_patch(None, None) is None


@pytest.mark.parametrize(("one", "other"), [("a/b", "a/b/c"), ("a/b/c", "a/b")])
def test_a_file_and_a_directory_of_one_name_exclude_each_other(one: str, other: str) -> None:
    first, second = (
        Patch(base="0", changes=(FileChange(path=path, mode="100644", content=b""),)) for path in (one, other)
    )
    both = apply_patch(first, second)
    assert both is not None
    assert both.paths() == (other,)


def test_tests_of_an_earlier_patch_take_the_place_of_the_later_ones() -> None:
    later = patch_of({"a.py": "1", "tests/test_a.py": "later", "tests/data": "a file"})
    earlier = patch_of({"a.py": "0", "tests/test_a.py": "earlier", "tests/data/one.txt": "x"})
    found = {change.path: change.content for change in with_tests_of(later, earlier).changes}
    assert found == {"a.py": b"1", "tests/test_a.py": b"earlier", "tests/data/one.txt": b"x"}
