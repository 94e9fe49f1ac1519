"""The measurement of the localisation: its figures, its JSON, and what it does with repositories that are not there."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench.localisation import main, masked
from tests.support.repositories import commit_files, make_repository

CART = "class Cart:\n    def add_item(self, item):\n        return self.items + [item]\n"


def manifest(path: Path, *instances: dict[str, Any]) -> Path:
    path.write_text("\n".join(map(json.dumps, instances)) + "\n\n")
    return path


def instance(repo: str, commit: str, gold: list[str], text: str, number: int = 1) -> dict[str, Any]:
    name = f"{repo.replace('/', '__')}-{number}"
    return {"instance_id": name, "repo": repo, "base_commit": commit, "gold_files": gold, "problem_statement": text}


def measured(tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[dict[str, Any], str]:
    places = ["--manifest", tmp_path / "manifest", "--mirrors", tmp_path / "mirrors", "--json", tmp_path / "out.json"]
    assert main([*map(str, places), *options]) == 0
    return json.loads((tmp_path / "out.json").read_text()), capsys.readouterr().out


def test_all_gold_files_count_and_left_out_instances_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"shop/cart.py": CART, "shop/tax.go": "package shop\nfunc TaxOf(cents int) int { return cents }\n"}
    repository = make_repository(tmp_path / "mirrors" / "o+shop" / "repo", files)
    base = commit_files(repository, {"shop/money.rb": "class Money\n  def half\n  end\nend\n"}, "Round money")
    commit_files(repository, {"later.py": CART}, "After the issue")
    manifest(
        tmp_path / "manifest",
        instance("o/shop", base, ["shop/cart.py"], "add_item of the cart loses items"),
        instance("o/shop", base, ["shop/tax.go", "nowhere.go"], "TaxOf is wrong in shop/tax.go", 2),
        instance("o/shop", "0" * 40, ["shop/cart.py"], "gone", 3),
        instance("o/elsewhere", base, ["a.py"], "no mirror"),
    )
    result, printed = measured(tmp_path, capsys)
    assert result["all_gold_at"] == {"1": 50.0, "5": 50.0, "10": 50.0, "20": 50.0}
    assert result["recall"]["20"] == 66.7
    assert (result["instances"], result["unreachable"]) == (2, 2)
    assert set(result["unreachable_instances"]) == {"o__shop-3", "o__elsewhere-1"}
    assert result["masked"]["all_gold_at"]["5"] == 50.0
    row = result["repositories"]["o/shop"]
    assert row["index_seconds_cold"] >= 0
    assert row["index_seconds_incremental"] >= 0
    assert row["query_milliseconds"] >= 0
    assert "2 instances left out" in printed


def test_paths_can_be_masked_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repository = make_repository(tmp_path / "bare" / "x")
    base = commit_files(repository, {"lib/a.py": "volcano = 1\n", "lib/b.py": "volcano = 1\n"})
    (tmp_path / "mirrors" / "o+r").mkdir(parents=True)
    (repository / ".git").rename(tmp_path / "mirrors" / "o+r" / "repo")  # as a bare mirror is
    manifest(tmp_path / "manifest", instance("o/r", base, ["lib/b.py"], "The volcano is odd\nsee lib/b.py"))
    assert measured(tmp_path, capsys)[0]["all_gold_at"]["1"] == 100.0
    result, _ = measured(tmp_path, capsys, "--mask-paths", "--no-history")
    assert result["all_gold_at"] == {"1": 0.0, "5": 100.0, "10": 100.0, "20": 100.0}
    assert "masked" not in result


def test_empty_manifest_does_not_crash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest(tmp_path / "manifest")
    assert measured(tmp_path, capsys)[0]["all_gold_at"]["1"] == 0.0


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("see src/shop/cart.py now", "see   now"),
        ("C:\\shop\\cart.py", "C: "),
        ("cart.ts:12 and e.g. 1/2", " :12 and e.g.  "),
        ("mail@example.org", "mail@example.org"),
    ],
)
def test_masking_takes_paths_and_file_names_out(text: str, left: str) -> None:
    assert masked(text).split() == left.split()
