"""AGENTS.md, CONTRIBUTING.md, the licence, the changelog and the CI workflow agree with the project."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import app

ROOT = Path(__file__).parents[2]


def test_agents_md_is_short_and_its_commands_exist() -> None:
    text = (ROOT / "AGENTS.md").read_text()
    assert len(text.splitlines()) <= 60
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z0-9-]+)`", text)) <= targets


@pytest.mark.parametrize("page", ["AGENTS.md", "CONTRIBUTING.md"])
def test_pages_name_only_files_that_exist(page: str) -> None:
    named = set(re.findall(r"`((?:app|tests|docs|requirements)/[\w./-]+)`", (ROOT / page).read_text()))
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_changelog_has_this_version() -> None:
    assert f"## [{app.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_licence_is_the_one_that_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_ci_holds_few_rights_and_pins_what_it_uses() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    assert workflow["permissions"] == {}
    for job in workflow["jobs"].values():
        assert job["permissions"] == {"contents": "read"}
        assert job["timeout-minutes"] <= 60
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"])
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False
            assert "${{" not in step.get("run", "")
    commands = [step.get("run") for job in workflow["jobs"].values() for step in job["steps"]]
    assert {"make test", 'make "$TIER"', "make demo"} <= set(commands)
    tiers = workflow["jobs"]["tier"]["strategy"]["matrix"]["tier"]
    makefile = (ROOT / "Makefile").read_text()
    everything = re.search(r"^test-all: (.*)\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert everything
    for tier in tiers:
        target = re.search(rf"^{tier}: .*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
        assert target
        paths = re.findall(r"tests/\w+", target[1])
        assert tier in everything[1].split() or (paths and all(path in everything[2] for path in paths)), tier
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
