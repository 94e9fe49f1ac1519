"""The stored set-ups: bounded in size, the least recently used go, and never one in use."""

import os
from pathlib import Path

import pytest

from app.sandbox.bubblewrap.layers import GONE, prune, take_lease

SIZE = 64 * 1024


@pytest.fixture
def layers(tmp_path: Path) -> dict[str, Path]:
    """Three layers of about SIZE, the first unused for longest; and files that are no layers."""
    made = {name: tmp_path / name for name in ("old", "middle.job", "new")}
    for age, layer in enumerate(made.values()):
        (layer / "env").mkdir(parents=True)
        (layer / "env" / "file").write_bytes(os.urandom(SIZE))
        os.utime(layer, (1_000_000 + age, 1_000_000 + age))
    (tmp_path / "old.lock").touch()
    (tmp_path / "other.building").mkdir()
    return made


def left(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()} - {"old.lock", "other.building"}


def test_those_unused_for_longest_are_removed(layers: dict[str, Path], tmp_path: Path) -> None:
    assert prune(tmp_path, 2 * SIZE + SIZE // 2) == 1
    assert left(tmp_path) == {"middle.job", "new"}
    assert (tmp_path / "other.building").exists()


def test_nothing_is_removed_below_the_limit(layers: dict[str, Path], tmp_path: Path) -> None:
    assert prune(tmp_path, 4 * SIZE) == 0
    assert left(tmp_path) == {"old", "middle.job", "new"}


def test_a_use_counts(layers: dict[str, Path], tmp_path: Path) -> None:
    lease = take_lease(layers["old"])
    assert lease is not None
    lease.close()
    prune(tmp_path, SIZE + SIZE // 2)
    assert left(tmp_path) == {"old"}


def test_a_layer_in_use_stays_until_its_last_lease_ends(layers: dict[str, Path], tmp_path: Path) -> None:
    leases = [take_lease(layers["middle.job"]) for _ in range(2)]
    for lease in leases:
        assert prune(tmp_path, 0) == (2 if lease is leases[0] else 0)
        assert left(tmp_path) == {"middle.job"}
        assert lease is not None
        lease.close()
        lease.close()
    assert prune(tmp_path, 0) == 1
    assert left(tmp_path) == set()


def test_a_missing_layer_has_no_lease(tmp_path: Path) -> None:
    assert take_lease(tmp_path / "none") is None


def test_a_removal_that_was_interrupted_is_finished(layers: dict[str, Path], tmp_path: Path) -> None:
    layers["old"].rename(tmp_path / f"{GONE}x")
    assert prune(tmp_path, 4 * SIZE) == 0
    assert left(tmp_path) == {"middle.job", "new"}
