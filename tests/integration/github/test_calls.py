"""One table of calls: every request to GitHub is in it, and everything in it is used."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.github import calls
from app.github.auth import PERMISSIONS
from app.github.calls import BY_APP, CALLS, CREATE_COMMENT, GET_CONTENT, REMOVE_LABEL, Call, Purpose, grant

APP = Path(__file__).parents[3] / "app"
TABLE = APP / "github" / "calls.py"
SENDERS = {"http_client.py": "call", "auth.py": "CONVERT_MANIFEST"}
"""The two modules that send, and what they take method and path from."""
API_PATH = re.compile(r"/?(?:repos|repositories|app|apps|app-manifests|installation|search|user|users|orgs)/")
BELOW = re.compile(r"/(?:issues|pulls|commits|check-runs|check-suites|actions|git|contents|compare|collaborators)\b")


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted((APP / "github").rglob("*.py")) + sorted((APP / "triggers").rglob("*.py")):
        yield path, ast.parse(path.read_text())


def texts(tree: ast.Module) -> Iterator[str]:
    """Every string but docstrings, those of f-strings too."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    pages = [
        node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) and "site" in ast.unparse(node.values[0])
    ]
    prose |= {id(part) for page in pages for part in page.values}  # people's pages, not the API's
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value


def test_requests_are_sent_in_two_places_and_from_the_table() -> None:
    sent = []
    for path in sorted(APP.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in {"arequest", "arest", "agraphql", "async_graphql"}:
                sent.append(path.name)
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".arequest"):
                assert ast.unparse(node.args[0]) == f"{SENDERS[path.name]}.method", path
            assert not (
                isinstance(node, ast.Attribute) and node.attr == "rest" and "github" in path.relative_to(APP).parts
            ), path
    assert sorted(sent) == sorted(SENDERS)


def test_no_other_module_writes_a_path_of_the_api() -> None:
    written = [
        f"{path.name}: {text}"
        for path, tree in modules()
        if path != TABLE
        for text in texts(tree)
        if API_PATH.match(text) or BELOW.match(text)
    ]
    assert not written, f"{written}: each call of GitHub's API is a row of {TABLE.relative_to(APP.parent)}"


def test_every_call_is_made_somewhere() -> None:
    used = {
        node.id if isinstance(node, ast.Name) else node.attr
        for path, tree in modules()
        if path != TABLE
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
    }
    rows = {name for name, value in vars(calls).items() if isinstance(value, Call)}
    assert rows - used == set(), "a row that nobody uses asks for permissions that nobody needs"
    assert len(rows) == len(CALLS) == len({(call.method, call.path, call.text, call.purpose) for call in CALLS})


def test_every_document_is_a_row() -> None:
    written = {
        text for text in vars(calls).values() if isinstance(text, str) and text.startswith(("\nquery", "\nmutation"))
    }
    assert written == {call.text for call in CALLS if call.text}


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.title)
def test_each_call_names_its_permission_and_source(call: Call) -> None:
    assert call.source
    assert bool(call.needs) == (call.purpose is not Purpose.AS_APP)
    assert call.purpose is Purpose.AS_APP or grant([call.purpose]).items() >= {
        (name, access) for name, access in call.needs.items() if access == "write"
    }


def test_a_call_that_changes_something_needs_write() -> None:
    for call in CALLS:
        changes = call.is_mutation if call.text else call.method in {"POST", "PATCH", "DELETE", "PUT"}
        if call.purpose is not Purpose.AS_APP:
            assert ("write" in call.needs.values()) == (changes or call.path == "push"), call.title


def test_the_manifest_asks_for_what_the_calls_need() -> None:
    assert grant(BY_APP) == PERMISSIONS
    assert dict(sorted(PERMISSIONS.items())) == {
        "actions": "read",
        "checks": "write",
        "contents": "write",
        "issues": "write",
        "metadata": "read",
        "pull_requests": "write",
        "statuses": "read",
    }, "people who installed the App have to accept each new permission: say so in CHANGELOG.md"


def test_values_are_quoted_into_their_places() -> None:
    assert REMOVE_LABEL.at("ada", "sample", 7, "needs: a/b?") == (
        "/repos/ada/sample/issues/7/labels/needs%3A%20a%2Fb%3F"
    )
    assert GET_CONTENT.at("ada", "sample", ".github/a b#.yml") == "/repos/ada/sample/contents/.github/a%20b%23.yml"
    with pytest.raises(ValueError):
        CREATE_COMMENT.at("ada", "sample")
