"""Every way an issue's file can be wrong has its own message and exit code; a right one is read as people meant it."""

import io
import os
from pathlib import Path

import pytest

from app.core.errors import ExitCode, IssueError
from app.core.issue_file import MAX_BYTES, read_issue
from app.core.task import Issue


def read(tmp_path: Path, content: bytes) -> Issue:
    path = tmp_path / "issue.md"
    path.write_bytes(content)
    return read_issue(path)


def failure(path: Path) -> IssueError:
    with pytest.raises(IssueError) as caught:
        read_issue(path)
    return caught.value


@pytest.mark.parametrize(
    ("content", "title", "body"),
    [
        (b"Title\n\nBody\nmore\n", "Title", "Body\nmore"),
        (b"# Title\n\nBody", "Title", "Body"),
        (b"### Title ###\nBody", "Title", "Body"),
        (b"#12 is broken\nBody", "#12 is broken", "Body"),
        (b"Title\n=====\n\nBody", "Title", "Body"),
        (b"\n\n  Title\n", "Title", ""),
        (b"Only a title", "Only a title", ""),
        (b"\xef\xbb\xbf# Title\r\n\r\nBody\r\nmore", "Title", "Body\nmore"),
        (b"Title\n\n    indented code\n", "Title", "    indented code"),
        ("Größe wird falsch berechnet\n\nΔ".encode(), "Größe wird falsch berechnet", "Δ"),
    ],
)
def test_first_line_is_the_title(tmp_path: Path, content: bytes, title: str, body: str) -> None:
    assert read(tmp_path, content) == Issue(title=title, body=body)


def test_issue_number_is_not_guessed(tmp_path: Path) -> None:
    assert read(tmp_path, b"Fix #12\n\nSee #12").number is None


def test_hidden_text_is_counted(tmp_path: Path) -> None:
    issue = read(tmp_path, "Ti\u200btle\n\nBody <!-- evil -->x".encode())
    assert issue == Issue(title="Title", body="Body x", hidden_characters=14)


def test_long_first_line_is_repeated_in_the_body(tmp_path: Path) -> None:
    issue = read(tmp_path, b"word " * 100 + b"\n\nBody")
    assert len(issue.title) <= 256
    assert issue.title.endswith("…")
    assert issue.body == ("word " * 100).strip() + "\n\nBody"


def test_issue_is_read_from_standard_input() -> None:
    assert read_issue(Path("-"), stdin=io.BytesIO(b"Title\nBody")) == Issue(title="Title", body="Body")


def test_issue_is_read_from_a_pipe() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb"), os.fdopen(writer, "wb") as end:
        end.write(b"Title")
        end.close()
        assert read_issue(Path(f"/dev/fd/{reader}")).title == "Title"


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (b"", ExitCode.ISSUE_EMPTY, "is empty"),
        (b" \n\t\r\n", ExitCode.ISSUE_EMPTY, "is empty"),
        (b"\xef\xbb\xbf", ExitCode.ISSUE_EMPTY, "is empty"),
        ("\u200b\u2060".encode(), ExitCode.ISSUE_EMPTY, "is empty"),
        (b"<!-- template -->\n", ExitCode.ISSUE_EMPTY, "is empty"),
        (b"##\n\nBody", ExitCode.ISSUE_EMPTY, "no title"),
        (b"Title\n\0\x01", ExitCode.ISSUE_BINARY, "byte 7 is NUL"),
        (b"\x89PNG\r\n\x1a\n", ExitCode.ISSUE_BINARY, "byte 1 cannot be decoded"),
        (b"Caf\xe9", ExitCode.ISSUE_BINARY, "byte 4 cannot be decoded"),
        ("Title".encode("utf-16"), ExitCode.ISSUE_BINARY, "UTF-16"),
        (b"x" * 1_048_576, ExitCode.ISSUE_TOO_LARGE, "1,048,576 bytes"),
        (b"x" * (MAX_BYTES + 1), ExitCode.ISSUE_TOO_LARGE, "262,145 bytes"),
    ],
)
def test_unusable_content_is_refused(tmp_path: Path, content: bytes, code: ExitCode, words: str) -> None:
    path = tmp_path / "issue.md"
    path.write_bytes(content)
    error = failure(path)
    assert error.code == code
    assert words in error.message
    assert str(path) in error.message


def test_largest_allowed_issue_is_read(tmp_path: Path) -> None:
    assert len(read(tmp_path, b"Title\n" + b"x" * (MAX_BYTES - 6)).body) == MAX_BYTES - 6


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    assert failure(tmp_path / "missing.md").message.endswith("does not exist")
    assert failure(tmp_path).message.endswith("is a directory")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert "cannot be read" in failure(loop).message
    assert "cannot be read" in failure(Path("a\0b")).message
    file = tmp_path / "file"
    file.touch()
    errors = [failure(path) for path in (tmp_path / "missing.md", tmp_path, loop, file / "below")]
    assert {error.code for error in errors} == {ExitCode.ISSUE_UNREADABLE}


def test_too_large_standard_input_is_refused() -> None:
    with pytest.raises(IssueError, match="standard input is more than 262,144 bytes") as caught:
        read_issue(Path("-"), stdin=io.BytesIO(b"x" * 1_000_000))
    assert caught.value.code == ExitCode.ISSUE_TOO_LARGE


def test_labels_may_be_given_in_front_matter(tmp_path: Path) -> None:
    content = b"---\r\nlabels: [bug, 'type: shop']\r\nstate: OPEN\r\n---\r\n# Sum\r\n\r\nIt is 5.\r\n"
    issue = read(tmp_path, content)
    assert (issue.labels, issue.title, issue.body) == (("bug", "type: shop"), "Sum", "It is 5.")
    assert read(tmp_path, b"---\nlabels: bug, shop\n---\nSum\n").labels == ("bug", "shop")


@pytest.mark.parametrize(
    "content", [b"---\nSum\n", b"---\n\nSum\n\n---\nmore\n", b"---\na: [\n---\nSum\n", b"Sum\n---\n"]
)
def test_other_lines_of_dashes_are_part_of_the_issue(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path, content).labels == ()
    assert "Sum" in str(read(tmp_path, content))
