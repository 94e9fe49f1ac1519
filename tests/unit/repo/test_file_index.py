"""The index reads what is new and nothing else, and its cache may break without harm."""

import sqlite3
from pathlib import Path

import pytest

from app.repo.index.file_index import VERSION, CodeIndex, FeatureStore, features_of, pack, unpack
from tests.support.memory_tree import MemoryTree

FILES = {
    "a.py": b"class Cart:\n    def add(self): pass\n",
    "b.go": b"package b\nfunc Total() int { return 0 }\n",
    "notes.txt": b"carts and totals\n",
    "logo.png": b"\x89PNG\0\0",
}


def built(
    files: dict[str, bytes], cache: Path | None, modes: dict[str, str] | None = None
) -> tuple[CodeIndex, list[str]]:
    tree = MemoryTree(files, modes=modes or {})
    return CodeIndex.build(tree, cache), tree.reads


def cache_file(cache: Path) -> Path:
    return cache / f"features-{VERSION}.sqlite3"


def test_names_and_words_of_each_file() -> None:
    index, _ = built(FILES, None)
    features = {file.path: file.features for file in index.files}
    assert list(features) == sorted(FILES)
    assert features["a.py"].names == ("Cart", "add")
    assert features["b.go"].names == ("Total",)
    assert features["notes.txt"].length == 3
    assert features["logo.png"].length == 0


def test_only_new_blobs_are_read(tmp_path: Path) -> None:
    first, reads = built(FILES, tmp_path)
    assert reads == sorted(FILES)
    changed = {**FILES, "a.py": b"class Basket: pass\n", "moved/b.go": FILES["b.go"]}
    second, reads = built(changed, tmp_path)
    assert reads == ["a.py"]
    features = {file.path: file.features for file in second.files}
    assert features["a.py"].names == ("Basket",)
    assert features["moved/b.go"] == features["b.go"] == {file.path: file.features for file in first.files}["b.go"]


def test_the_same_bytes_in_another_language_define_other_names(tmp_path: Path) -> None:
    index, _ = built({"a.py": b"def f(): pass\n", "a.txt": b"def f(): pass\n"}, tmp_path)
    again, reads = built({"a.py": b"def f(): pass\n", "a.txt": b"def f(): pass\n"}, tmp_path)
    assert reads == []
    assert [file.features.names for file in again.files] == [("f",), ()]
    assert again.files == index.files


def test_links_data_and_huge_files_are_known_by_path_only() -> None:
    files = {"link.py": b"a.py", "huge.py": b"x = 1\n" * 100_000, "data.txt": b"word " * 30_000}
    index, reads = built(files, None, {"link.py": "120000"})
    assert reads == []
    assert [file.features.length for file in index.files] == [0, 0, 0]


@pytest.mark.parametrize("damage", [b"", b"not a database", b"SQLite format 3\0" + b"\xff" * 4_000])
def test_a_damaged_cache_is_replaced(tmp_path: Path, damage: bytes) -> None:
    expected, _ = built(FILES, tmp_path)
    cache_file(tmp_path).write_bytes(damage)
    assert built(FILES, tmp_path)[0].files == expected.files
    assert built(FILES, tmp_path)[0].files == expected.files
    assert built(FILES, tmp_path)[1] == []


def test_a_damaged_record_is_read_anew(tmp_path: Path) -> None:
    expected, _ = built(FILES, tmp_path)
    connection = sqlite3.connect(cache_file(tmp_path))
    with connection:
        connection.execute("UPDATE blob SET record = substr(record, 1, 20) WHERE key LIKE '%.python'")
    connection.close()
    index, reads = built(FILES, tmp_path)
    assert (index.files, reads) == (expected.files, ["a.py"])


def test_a_locked_cache_is_done_without(tmp_path: Path) -> None:
    built({"a.py": FILES["a.py"]}, tmp_path)
    store = FeatureStore(tmp_path, timeout=0)
    connection = sqlite3.connect(cache_file(tmp_path))
    connection.execute("BEGIN EXCLUSIVE")
    try:
        assert store.load(["x"]) == {}
        store.save({"x": features_of("b.go", FILES["b.go"])})
    finally:
        connection.close()
    assert cache_file(tmp_path).is_file()


def test_a_cache_that_cannot_be_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    index, reads = built(FILES, tmp_path / "file")
    assert len(reads) == len(index.files) == len(FILES)


@pytest.mark.parametrize("path", sorted(FILES))
def test_features_are_the_same_packed_and_unpacked(path: str) -> None:
    features = features_of(path, FILES[path])
    assert unpack(pack(features)) == features


@pytest.mark.parametrize("record", [b"", b"x", pack(features_of("a.py", FILES["a.py"]))[:-1]])
def test_an_archive_from_elsewhere_is_refused(record: bytes) -> None:
    with pytest.raises(ValueError):
        unpack(record)


def test_text_and_names_that_are_not_unicode_are_indexed_all_the_same(tmp_path: Path) -> None:
    files = {"latin.py": "def weiß(): pass\n".encode("latin-1"), "b\udcff.py": b"def odd(): pass\n"}
    built(files, tmp_path)
    index, reads = built(files, tmp_path)
    assert reads == []
    assert {file.path: file.features.names for file in index.files}["b\udcff.py"] == ("odd",)
