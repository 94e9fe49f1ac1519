"""What a newcomer reads agrees with what is there: links, tests behind promises, commands, settings, pictures."""

import re
from pathlib import Path

import pytest

from app.cli import parser
from app.config.roles import ALLOWED_VARIABLES, API_TOKEN
from app.core.job import Budget
from app.jobs.schema import ALL
from app.triggers.commands import COMMAND_NAMES

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
SOURCES = {
    f"/{path.relative_to(ROOT)}": path.read_text()
    for top in ("app", "tests", "bench", "docs", "deploy")
    for path in sorted(ROOT.glob(f"{top}/**/*.py"))
}
MOST_OF_A_PICTURE = 150 * 1024
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_TEST = re.compile(r"`(tests/[\w./]+)(?:::((?:Test\w+::)?test_\w+)(?:\[(\w+)\])?)?`")
_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def read(name: str) -> str:
    return (ROOT / name).read_text()


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    lost = []
    for address in _LINK.findall(_FENCE.sub("", page.read_text())):
        path, _, place = address.partition("#")
        if "://" in path or path.startswith("mailto:"):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (place and place not in anchors(target)):
            lost.append(address)
    assert lost == []


@pytest.mark.parametrize("name", NAMES)
def test_the_tests_behind_promises_are_there(name: str) -> None:
    lost = [
        found[0]
        for found in _TEST.finditer(read(name))
        if not (ROOT / found[1]).exists() or (found[2] and not _has_test(read(found[1]), found[2], found[3] or ""))
    ]
    assert lost == []


def _has_test(source: str, test: str, story: str) -> bool:
    owner, _, function = test.rpartition("::")
    _, found, below = source.partition(f"class {owner}:\n") if owner else ("", "", source)
    there = re.search(rf"^{'    ' if owner else ''}(?:async )?def {function}\(", below, re.MULTILINE)
    return bool((found or not owner) and there and (not story or f"\ndef {story}(" in source))


@pytest.mark.parametrize("name", NAMES)
def test_modules_and_private_names_on_a_page_exist(name: str) -> None:
    """A path may begin at any directory: `app/jobs/queue.py`, `jobs/queue.py` or `queue.py`."""
    modules = re.findall(r"`([\w./-]+\.py)`", read(name))
    assert [each for each in modules if not any(path.endswith(f"/{each}") for path in SOURCES)] == []
    assert [path for path in re.findall(r"`(app/[\w./-]+)`", read(name)) if not (ROOT / path).exists()] == []
    names = set(re.findall(r"`(_\w+)`", read(name)))
    assert [each for each in names if not any(re.search(rf"\b{each}\b", text) for text in SOURCES.values())] == []


def test_every_promise_names_a_test() -> None:
    _, found, below = read("docs/how-to/use-on-github.md").partition("| Promise | Test |\n")
    rows = [line for line in below.partition("\n\n")[0].splitlines()[1:] if line.startswith("|")]
    assert found
    assert len(rows) > 5
    assert [row for row in rows if not _TEST.search(row)] == []


def test_every_requirement_has_a_test_and_a_state_with_its_reason() -> None:
    rows = [
        line.strip("| ").split(" | ") for line in read("docs/requirements.md").splitlines() if line.startswith("| ")
    ]
    rows = [row for row in rows if row[0] != "Requirement"]
    assert len(rows) > 60
    assert [row for row in rows if len(row) != 4 or not _TEST.fullmatch(row[2])] == []
    assert [row for row in rows if not re.fullmatch(r"done(: .+)?|(?:partly|open): .{20,}", row[3])] == []
    places = [path for row in rows for path in re.findall(r"`([\w./-]+)`", row[1])]
    assert [path for path in places if not (ROOT / path).exists()] == []


def test_the_overview_has_every_table_of_the_database() -> None:
    _, _, below = read("docs/explanation/architecture.md").partition("| Table | A row is |")
    rows = [line.split("|")[1] for line in below.partition("\n\n")[0].splitlines()[2:]]
    told = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(told) == sorted(table.name for tables in ALL for table in tables.tables.values())


def test_the_recorded_conversation_has_todays_words() -> None:
    source = "".join(path.read_text() for path in sorted((ROOT / "app/publish").glob("*.py")))
    recorded = read("docs/pictures/conversation.json")
    hints = {hint.strip(" .)") for hint in re.findall(r"`/agent [^`]+` ([^·\\\"]+)", recorded)}
    assert len(hints) > 5
    assert [hint for hint in hints if " ".join(hint.split()[-2:]) not in source] == [], "python -m docs.pictures.record"


def test_the_page_for_users_has_every_command_and_no_other() -> None:
    told = set(re.findall(r"`/agent ([a-z]+)\b", read("docs/reference/commands.md")))
    assert told == set(COMMAND_NAMES)


def test_the_limits_on_the_page_are_the_defaults() -> None:
    budget = Budget()
    told = f"{budget.usd / 1_000_000:g} dollars, {budget.minutes:g} minutes, {budget.steps} turns"
    assert told in read("docs/how-to/use-on-github.md")


@pytest.mark.parametrize("name", NAMES)
def test_settings_on_a_page_are_read(name: str) -> None:
    others = {"AGENT_FIX_GITHUB_TOKEN", API_TOKEN}  # of `doctor --github` and `jobs --server`, which are no roles
    known = others.union(*ALLOWED_VARIABLES.values())
    assert set(re.findall(r"\bAGENT_FIX_[A-Z_]+\b", read(name))) <= known


def test_the_commands_of_the_readme_exist() -> None:
    told = set(re.findall(r"\bagent-fix (fix|serve|jobs|doctor|demo|sweep|action)\b", read("README.md")))
    there = parser().format_help()
    assert {"fix", "serve", "jobs", "doctor", "demo"} <= told
    assert [command for command in sorted(told) if f"\n    {command} " not in there] == []


def test_pictures_are_small_and_all_of_them_are_shown() -> None:
    pictures = sorted((ROOT / "docs/pictures").glob("*.png"))
    pages = "".join(map(read, NAMES))
    assert pictures
    assert [each.name for each in pictures if each.stat().st_size > MOST_OF_A_PICTURE] == []
    assert [each.name for each in pictures if f"pictures/{each.name})" not in pages] == []


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
