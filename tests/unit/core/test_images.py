"""Images are known by their own bytes, bounded before anybody decodes them, and told of by number."""

import pytest

from app.core.images import MAX_IMAGE_BYTES, MAX_IMAGE_SIDE, ImageCollection, ImageRejected, ImageSize, image_size
from app.core.text import html_images, image_addresses, visible
from tests.support.image_bytes import gif, jpeg, png, webp

KINDS = {"image/png": png, "image/gif": gif, "image/jpeg": jpeg}


@pytest.mark.parametrize("media_type", KINDS)
@pytest.mark.parametrize("size", [(4, 3), (3_000, 2), (MAX_IMAGE_SIDE, MAX_IMAGE_SIDE)])
def test_kind_and_size_are_read_from_the_bytes(media_type: str, size: tuple[int, int]) -> None:
    assert image_size(KINDS[media_type](*size)) == ImageSize(media_type, *size)


@pytest.mark.parametrize("kind", [b"VP8 ", b"VP8L", b"VP8X"])
def test_all_three_webp_forms_are_read(kind: bytes) -> None:
    assert image_size(webp(kind, 1_234, 567)) == ImageSize("image/webp", 1_234, 567)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"<svg xmlns='http://www.w3.org/2000/svg'><script>x</script></svg>", "only PNG, JPEG, GIF and WebP are"),
        (b"<?xml version='1.0'?><svg/>", "only PNG"),
        (b"%PDF-1.7", "only PNG"),
        (b"<!doctype html><img src=x>", "only PNG"),
        (b"BM" + bytes(60), "only PNG"),
        (b"RIFF\0\0\0\0WAVEfmt ", "only PNG"),
        (b"", "only PNG"),
        (png(MAX_IMAGE_SIDE + 1, 1), "at most 8,000 pixels on a side are"),
        (png(60_000, 60_000), "at most 8,000 pixels"),
        (gif(1, 65_535), "at most 8,000 pixels"),
        (jpeg(65_535, 65_535), "at most 8,000 pixels"),
        (webp(b"VP8X", 1 << 24, 1 << 24), "at most 8,000 pixels"),
        (png(0, 3), "it does not say how large it is"),
        (png()[:18], "it does not say"),
        (b"\xff\xd8\xff", "it does not say"),
        (b"\xff\xd8\xff\xe0\x00\x00" * 50, "it does not say"),
        (b"\xff\xd8" + b"\xff" * 500, "it does not say"),
        (webp(b"VP8X")[:26], "it does not say"),
        (png() + bytes(MAX_IMAGE_BYTES), "at most 3,750,000 bytes are"),
    ],
)
def test_other_content_is_refused_with_the_reason(content: bytes, why: str) -> None:
    with pytest.raises(ImageRejected, match=why):
        image_size(content)


def test_omitted_images_are_listed_by_number_and_reason() -> None:
    image_collection = ImageCollection()
    image_collection.add(1, png())
    for number in range(2, 301):
        image_collection.leave_out(number, "at most 5 are" if number != 7 else "it could not be fetched")
    assert [(image.number, image.media_type, image.width) for image in image_collection.images] == [(1, "image/png", 4)]
    assert image_collection.notes == (
        "Images 2, 3, 4, 5, 6 and 293 more of the issue were not shown to a model: at most 5 are.",
        "Image 7 of the issue was not shown to a model: it could not be fetched.",
    )


def test_images_are_found_as_the_page_shows_them() -> None:
    issue = (
        '![one](https://a.example/1.png "title") and ![two](<2 2.png>)\n\n'
        "<img width='3' src=\"https://a.example/3.png?a=1&amp;b=2\" onerror=x>\n\n"
        "<p align=center><IMG SRC=4.png></p>\n\n> ![five](5.png) ![again](2%202.png)\n\n"
        "[![six](6.png)](https://elsewhere.example)\n"
    )
    assert image_addresses(visible(issue).text) == (
        "https://a.example/1.png",
        "2%202.png",
        "https://a.example/3.png?a=1&b=2",
        "4.png",
        "5.png",
        "6.png",
    )


@pytest.mark.parametrize("nonsense", ["<![foo[ x ]]>", "<![ >", "<![if x]>", "<!>", "<!doctype [ >", "</ >"])
def test_malformed_html_does_not_hide_later_images(nonsense: str) -> None:
    assert html_images(f"<div>{nonsense}<img src='1.png'>") == ("1.png",)
    assert image_addresses(visible(f"<div>\n{nonsense}\n<img src='1.png'>").text) == ("1.png",)


@pytest.mark.parametrize("nonsense", ["<![", "<!", "<!--", "<![CDATA[", "<?x", "<img src='", "&#xD800;", "<script>"])
def test_unclosed_html_ends_with_the_text(nonsense: str) -> None:
    assert html_images(f"<img src='1.png'><div>{nonsense}") == ("1.png",)


@pytest.mark.parametrize(
    "issue",
    [
        "no image < here",
        "`![code](1.png)`",
        "```\n![fence](1.png)\n<img src=1.png>\n```",
        "    ![indented](1.png)",
        "<!-- ![hidden](1.png) <img src=1.png> -->",
        "\\![escaped](1.png)",
        "![](  )",
        "<img alt=x>",
        "<imgsrc=1.png>",
        "[link](1.png)",
        "<svg><image href='1.png'/></svg>",
    ],
)
def test_images_in_code_or_comments_are_ignored(issue: str) -> None:
    assert image_addresses(visible(issue).text) == ()
