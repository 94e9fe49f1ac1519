"""The page of a job's steps: whole, escaped, and without anything from elsewhere."""

import json
import os
import re
from pathlib import Path

import pytest

from app.cli import main

HOSTILE = "<script>alert(1)</script><img src=https://evil.example/x onerror=alert(2)>\x1b[31m"


def recorded(folder: Path, text: str = "Half cents are lost.") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "job": "abc123",
        "exit_status": "branch_made",
        "task": {"issue": {"title": f"Totals are wrong {text}"}},
        "plan": {"summary": text, "steps": ["Read money.py", text]},
        "verification": {"verdict": "proved", "reasons": ["Two tests fail on the base."]},
        "usage": {"calls": 3, "cost": 0},
        "model": "acme/coder",
    }
    step = {
        "step": 1,
        "model": "acme/coder",
        "content": text,
        "actions": [
            {"tool": "bash", "arguments": {"command": text}, "outcome": "ok", "observation": text},
            {"tool": text, "arguments": None, "outcome": "refused", "observation": "No."},
        ],
        "notes": [text],
        "usage": {"prompt_tokens": 1200, "completion_tokens": 30, "cost": 0.0123},
        "seconds": {"model": 2.0, "actions": 0.5},
    }
    (folder / "job.json").write_text(json.dumps(document))
    (folder / "trajectory.jsonl").write_text(f"{json.dumps(step)}\n")


@pytest.mark.parametrize("name", ["job.json", "trajectory.jsonl", ""])
def test_page_is_written_beside_the_results(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(tmp_path)
    assert main(["view", str(tmp_path / name), "--no-open", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    page = Path(told["page"])
    assert told["address"] == page.as_uri()
    assert page.parent == tmp_path
    text = page.read_text()
    for each in ("abc123", "proved", "price unknown", "Step 1", "1,200 tokens in, 30 out", "$0.0123", "Read money.py"):
        assert each in text


def test_page_has_no_scripts_or_external_resources(tmp_path: Path) -> None:
    recorded(tmp_path, HOSTILE)
    assert main(["view", str(tmp_path), "--no-open", "--out", str(tmp_path / "p.html")]) == 0
    text = (tmp_path / "p.html").read_text()
    assert "<script" not in text
    assert "<img" not in text
    assert "\x1b" not in text
    assert "&lt;script&gt;" in text
    assert "default-src &#39;none&#39;" in text or "default-src 'none'" in text
    assert not re.findall(r"<[^>]*(?:src|href)=", text)


def test_invalid_record_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.json").write_text("{")
    assert main(["view", str(tmp_path), "--no-open"]) == 2
    assert "cannot be shown" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("trajectory", "document"),
    [
        ("[1]", "{}"),
        ("not JSON", "{}"),
        ('{"usage": {"cost": "x"}}', "{}"),
        ('{"actions": [1]}', "{}"),
        ("{}", "[1]"),
        ("{}", '{"plan": 5}'),
        ("[" * 100_000, "{}"),
        ("{}", "[" * 100_000),
    ],
)
def test_a_file_that_is_not_a_trajectory_is_a_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], trajectory: str, document: str
) -> None:
    (tmp_path / "trajectory.jsonl").write_text(trajectory)
    (tmp_path / "job.json").write_text(document)
    assert main(["view", str(tmp_path), "--no-open"]) == 2
    assert capsys.readouterr().err.count("\n") <= 3
    assert not (tmp_path / "trajectory.html").exists()


def test_a_link_in_the_place_of_the_page_is_replaced_and_not_followed(tmp_path: Path) -> None:
    recorded(tmp_path / "bundle")
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "bundle" / "trajectory.html").symlink_to(tmp_path / "precious")
    assert main(["view", str(tmp_path / "bundle"), "--no-open"]) == 0
    assert (tmp_path / "precious").read_text() == "mine"
    assert "Step 1" in (tmp_path / "bundle" / "trajectory.html").read_text()


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trajectory.jsonl")
    assert main(["view", str(tmp_path / "trajectory.jsonl"), "--no-open"]) == 2
