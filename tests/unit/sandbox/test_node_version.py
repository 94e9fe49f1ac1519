"""The version of Node that a project gets: the machine's, unless the project needs another, or is tested on another."""

import json
from datetime import date

import pytest

from app.sandbox.setup.declared.node import choose_node
from app.sandbox.setup.ecosystems.base import SetupChoice
from app.sandbox.setup.manifests import ManifestFiles
from app.verify.candidates import Surroundings, candidates
from tests.support.memory_tree import MemoryTree
from tests.support.setup_plans import PACKAGE, plan

OWN = "v20.11.2"
DAY = date(2026, 4, 1)
BRING = "npm install --global --prefix /env --no-audit --no-fund"


def files(
    engines: str = "", more: dict[str, str] | None = None, package: dict[str, object] | None = None
) -> MemoryTree:
    described = {**({"engines": {"node": engines}} if engines else {}), **(package or {})}
    texts = {"package.json": json.dumps(described), **(more or {})}
    return MemoryTree({path: text.encode() for path, text in texts.items()})


@pytest.mark.parametrize(
    ("engines", "needed"),
    [
        ("", ""),
        ("*", ""),
        (">=18", ""),
        (">= 0.8", ""),
        ("18 || 20 || 22", ""),
        ("20.5.1", ""),
        (">=20.19 || >=22.12", "20"),
        ("^18.18.0 || >=22.0.0", "22"),
        (">20", "22"),
        (">=23.4", "24"),
        ("14.x", "14"),
        ("12 - 16", "16"),
        ("~18.2", "18"),
        ("<=16.3", "16"),
        (">= 6 < 11", "10"),
    ],
)
def test_the_machines_version_is_replaced_if_engines_do_not_admit_it(engines: str, needed: str) -> None:
    assert choose_node(ManifestFiles(files(engines)), "", OWN, DAY) == (needed, "")
    assert choose_node(ManifestFiles(files(engines)), "", "", DAY) == ("", "")


WORKFLOW = """\
jobs:
  test:
    strategy: {matrix: {node-version: [%s]}}
    steps: [{uses: actions/setup-node@v4, with: {node-version: '${{ matrix.node-version }}'}}, {run: npm test}]
"""
CI = ".github/workflows/test.yml"


@pytest.mark.parametrize(
    ("engines", "more", "package", "chosen"),
    [
        ("", {".nvmrc": "v24.1.0\n"}, {}, ("24", "")),
        (">=18", {".nvmrc": "lts/*"}, {}, ("", "24")),
        ("", {".node-version": "12"}, {}, ("", "12")),
        ("", {".tool-versions": "python 3.12\nnodejs 22.1.0\n"}, {}, ("22", "")),
        ("", {}, {"volta": {"node": "16.1.0"}}, ("", "16")),
        ("", {CI: WORKFLOW % "18, 20, 22"}, {}, ("", "")),
        ("", {CI: WORKFLOW % "22.x, 24.x"}, {}, ("22", "")),
        (">=24", {CI: WORKFLOW % "22.x, 24.x"}, {}, ("24", "")),
        ("", {".travis.yml": "node_js: ['8', '10', node]\n"}, {}, ("", "24")),
        ("", {".travis.yml": "node_js: ['8', '10']\n"}, {}, ("", "10")),
        (">=18", {}, {"packageManager": "pnpm@11.0.2"}, ("22", "")),
        (">=18", {}, {"packageManager": "pnpm@9.1.0+sha"}, ("", "")),
        ("", {".nvmrc": "stable-ish"}, {"packageManager": "pnpm"}, ("", "")),
    ],
)
def test_versions_that_a_project_names_are_needed_or_tried_too(
    engines: str, more: dict[str, str], package: dict[str, object], chosen: tuple[str, str]
) -> None:
    assert choose_node(ManifestFiles(files(engines, more, package)), "", OWN, DAY) == chosen


def test_all_candidates_get_the_version_that_is_needed_and_one_more_what_is_only_named() -> None:
    surroundings = Surroundings({}, "3.11", DAY, DAY, OWN, {"22": "/opt/22/bin/node"})
    package: dict[str, object] = {"scripts": {"test": "mocha"}, "devDependencies": {"mocha": "1"}}
    (only,) = candidates(files(">=22", None, package), surroundings)
    assert (only.choice.node, only.reason) == ("/opt/22/bin/node", "what its manifests and scripts say, on Node 22")
    first, second = candidates(files("", {".nvmrc": "18"}, package), surroundings)
    assert (first.choice.node, second.choice.node, second.name) == ("", "18", "manifests on Node 18")
    aged = Surroundings({}, "3.11", DAY, date(2027, 4, 1), OWN)
    names = [(one.name, one.choice.node) for one in candidates(files("", {".nvmrc": "18"}, package), aged)]
    assert names == [("manifests", ""), ("manifests on Node 18", "18"), ("manifests as of 2026-04-02", "18")]


@pytest.mark.parametrize(("node", "npm"), [("24", "11"), ("20", "10"), ("14", "8"), ("10", "6")])
async def test_npm_brings_another_node_with_an_npm_that_it_can_run(node: str, npm: str) -> None:
    setup = await plan({"package.json": PACKAGE, "package-lock.json": "{}"}, choice=SetupChoice(node=node))
    brought = f'{BRING} "node@npm:node-linux-$(node -p process.arch)@{node}" npm@{npm}'
    assert setup.commands[0] == f"{brought} || echo 'Node {node} cannot be had: the one of this machine is used'"
    assert setup.short == (setup.commands[0], "npm ci")
    assert (await plan({"package.json": "{}"}, choice=SetupChoice(node=node))).commands[0] == setup.commands[0]
    assert dict(setup.environment)["npm_package_config_node_gyp_nodedir"] == "/env/lib/node_modules/node"


async def test_another_node_of_the_machine_is_put_in_front() -> None:
    setup = await plan({"package.json": PACKAGE}, choice=SetupChoice(node="/opt/n o/bin/node"))
    programs = "'/opt/n o/bin/node' '/opt/n o/bin/npm' '/opt/n o/bin/npx'"
    assert setup.commands[0] == f"mkdir -p /env/bin && ln -sf {programs} /env/bin/"
