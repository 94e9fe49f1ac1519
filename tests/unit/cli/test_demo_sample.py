"""The bundled sample is what the demo needs: sound, green, without dependencies, and with the bug its issue reports."""

import csv
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from app.core.issue_file import read_issue

DEMO = Path(__file__).parents[3] / "demo"
SAMPLE = DEMO / "sample"


def python(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Python as the sandbox would start it: only the sample's own files to import, nothing written beside them."""
    return subprocess.run(
        [sys.executable, "-B", "-S", "-E", *arguments],
        cwd=SAMPLE,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )


def code_blocks() -> list[str]:
    return re.findall(r"```\n(.*?)```", read_issue(DEMO / "issue.md").body, re.DOTALL)


def test_sample_tests_pass() -> None:
    done = python("-m", "unittest")
    assert done.returncode == 0, done.stderr
    assert int(re.findall(r"Ran (\d+) tests", done.stderr)[0]) >= 25


def test_sample_issue_reads_as_a_user_would_write_it(tmp_path: Path) -> None:
    issue = read_issue(DEMO / "issue.md")
    assert issue.hidden_characters == 0
    subscriptions, output = code_blocks()
    file = tmp_path / "subscriptions.csv"
    file.write_text(subscriptions)
    command = re.findall(r"`python3 (-m duebook [^`]+)`", issue.body)[0].replace("subscriptions.csv", str(file))
    assert python(*command.split()).stdout == output


def test_sample_issue_does_not_name_the_cause() -> None:
    body = read_issue(DEMO / "issue.md").body
    names = {path.stem for path in (SAMPLE / "duebook").glob("*.py")} - {"__init__", "__main__"}
    names |= set(re.findall(r"def (\w+)", "".join(path.read_text() for path in (SAMPLE / "duebook").glob("*.py"))))
    named = {name for name in names if re.search(rf"\b{name}(?:\(|\.py)", body)}
    assert named == set()
    assert next(csv.DictReader(io.StringIO(code_blocks()[0])))["customer"] in body


def test_sample_has_a_realistic_size() -> None:
    code = sorted((SAMPLE / "duebook").glob("*.py"))
    lines = sum(len(path.read_text().splitlines()) for path in [*code, *(SAMPLE / "tests").glob("*.py")])
    assert len(code) >= 7
    assert 400 <= lines <= 800


@pytest.mark.parametrize(
    "path", sorted(path for path in SAMPLE.rglob("*") if path.is_file()), ids=lambda path: path.name
)
def test_sample_has_no_generated_or_hidden_files(path: Path) -> None:
    assert path.suffix in {".py", ".md", ".toml", ""} or "__pycache__" in path.parts, path
    assert path.is_symlink() is False
