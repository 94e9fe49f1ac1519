"""On the command line only plain files below the issue's directory are read, wherever a path or a link may lead."""

import os
from pathlib import Path

import pytest

from app.cli.fix import images_beside
from app.core.images import MAX_IMAGE_BYTES, ImageCollection
from tests.support.image_bytes import gif, png


@pytest.fixture
def issue(tmp_path: Path) -> Path:
    (tmp_path / "private.png").write_bytes(png())
    folder = tmp_path / "issues"
    (folder / "shots").mkdir(parents=True)
    (folder / "shots" / "a b.png").write_bytes(png(40, 30))
    (folder / "two.gif").write_bytes(gif())
    return folder / "issue.md"


def beside(issue: Path, *addresses: str) -> ImageCollection:
    return images_beside(issue, "\n\n".join(f"![x](<{address}>)" for address in addresses))


def test_files_beside_the_issue_are_read(issue: Path) -> None:
    image_collection = beside(issue, "shots/a%20b.png", "two.gif", "./shots/../two.gif")
    assert [(image.number, image.width) for image in image_collection.images] == [(1, 40), (2, 4), (3, 4)]
    assert image_collection.contents == [png(40, 30), gif(), gif()]
    assert image_collection.notes == ()


@pytest.mark.parametrize(
    "address",
    [
        "../private.png",
        "shots/../../private.png",
        "..%2Fprivate.png",
        "link.png",
        "linked/private.png",
        "/etc/hostname",
        "//host.example/a.png",
        "https://host.example/a.png",
        "http://169.254.169.254/latest/meta-data/a.png",
        "data:image/png;base64,AAAA",
        "C:\\a.png",
        "a%00.png",
    ],
)
def test_files_elsewhere_are_not_read(issue: Path, address: str) -> None:
    (issue.parent / "link.png").symlink_to("../private.png")
    (issue.parent / "linked").symlink_to("..")
    image_collection = beside(issue, address)
    assert image_collection.contents == []
    assert image_collection.notes == (
        "Image 1 of the issue was not shown to a model: only files next to the issue's file are read.",
    )


def test_other_url_schemes_are_ignored(issue: Path) -> None:
    image_collection = beside(issue, "file:///etc/hostname", "javascript:x")
    assert (image_collection.contents, image_collection.notes) == ([], ())


def test_a_link_that_stays_inside_is_followed(issue: Path) -> None:
    (issue.parent / "link.gif").symlink_to("two.gif")
    assert beside(issue, "link.gif").contents == [gif()]


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("missing.png", "there is no such file"),
        ("loop.png", "there is no such file"),
        ("shots", "it "),
        ("pipe.png", "it is not a file"),
        ("drawing.svg", "only PNG"),
        ("large.png", "at most 3,750,000 bytes"),
        ("bomb.png", "at most 8,000 pixels"),
    ],
)
def test_non_images_are_reported(issue: Path, address: str, why: str) -> None:
    folder = issue.parent
    os.mkfifo(folder / "pipe.png")
    (folder / "loop.png").symlink_to("loop.png")
    (folder / "drawing.svg").write_text("<svg/>")
    with (folder / "large.png").open("wb") as file:
        file.write(png())
        file.truncate(MAX_IMAGE_BYTES + 1)
    (folder / "bomb.png").write_bytes(png(60_000, 60_000))
    image_collection = beside(issue, address)
    assert image_collection.contents == []
    assert f"Image 1 of the issue was not shown to a model: {why}" in image_collection.notes[0]


def test_five_of_three_hundred_images_are_read(issue: Path) -> None:
    for number in range(300):
        (issue.parent / f"{number}.png").write_bytes(png(number + 1))
    image_collection = beside(issue, "../first.png", *(f"{number}.png" for number in range(300)))
    assert [image.number for image in image_collection.images] == [2, 3, 4, 5, 6]
    assert (
        image_collection.notes[1]
        == "Images 7, 8, 9, 10, 11 and 290 more of the issue were not shown to a model: the limit is 5."
    )


def test_issue_from_standard_input_has_no_files(issue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(issue.parent)
    assert beside(Path("-"), "two.gif").contents == []
