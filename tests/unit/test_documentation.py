"""The reference pages say what the code says, and every page is in the site's menu."""

import re
from pathlib import Path

import pytest

from docs.generate import PAGES, REFERENCE

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_up_to_date(name: str) -> None:
    assert (REFERENCE / name).read_text("utf-8") == PAGES[name](), "run `python -m docs.generate`"


def test_the_menu_lists_every_page_once() -> None:
    listed = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    pages = sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))
    assert sorted(listed) == pages


def test_no_link_leaves_the_site() -> None:
    """The site has only what is below docs/."""
    leaving = [
        f"{page.relative_to(DOCS)}: {target}"
        for page in DOCS.rglob("*.md")
        for target in re.findall(r"\]\(([^)\s#]+)", page.read_text("utf-8"))
        if "://" not in target and not (page.parent / target).resolve().is_relative_to(DOCS)
    ]
    assert leaving == []
