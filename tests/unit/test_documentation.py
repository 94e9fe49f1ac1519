"""The reference pages say what the code says, and every page is in the site's menu."""

import re
from pathlib import Path

import pytest

from app.github.auth import PERMISSIONS
from docs.generate import PAGES, REFERENCE, in_words
from tests.support.workflow_templates import permissions_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_up_to_date(name: str) -> None:
    assert (REFERENCE / name).read_text("utf-8") == PAGES[name](), "run `python -m docs.generate`"


@pytest.mark.parametrize("page", ["docs/how-to/run-a-server.md"])
def test_pages_tell_the_apps_permissions_as_they_are(page: str) -> None:
    told = in_words(PERMISSIONS)
    assert told in " ".join((ROOT / page).read_text("utf-8").split()), f"write into {page}: {told}"


def test_the_actions_page_tells_what_its_job_needs() -> None:
    page, needed = DOCS / "how-to" / "github-action.md", permissions_of("agent-fix.yml", "work")
    told = in_words(needed, lambda name: f"`{name}`")
    assert told in " ".join(page.read_text("utf-8").split()), f"write into {page.name}: {told}"


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


def test_the_tests_named_on_the_projects_page_exist() -> None:
    named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", (DOCS / "development" / "projects.md").read_text("utf-8"))
    absent = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / "tests" / path).exists() or f"def {name}" not in (ROOT / "tests" / path).read_text("utf-8")
    ]
    assert len(named) > 20
    assert absent == []


def test_the_tests_on_the_projects_page_are_part_of_make_test_where_it_says_so() -> None:
    named = re.findall(r"`([\w/]+\.py(?:::\w+)?)`( \*)?", (DOCS / "development" / "projects.md").read_text("utf-8"))
    stories = re.findall(r"tests/([\w/]+(?:\.py)?(?:::\w+)?)", (ROOT / "Makefile").read_text("utf-8"))
    always = {
        path
        for path, star in named
        if path.startswith("unit/") or path.partition("::")[0] in stories or path in stories
    }
    assert {path for path, star in named if not star} == always
