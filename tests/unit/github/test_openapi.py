"""What the tests' fake GitHub is held against is GitHub's own description, and what does not fit it is noticed."""

from typing import Any

import pytest

from app.github.calls import (
    ADD_LABELS,
    CALLS,
    CREATE_CHECK_RUN,
    CREATE_PULL,
    GET_ISSUE,
    LIST_CHECK_RUNS,
    LIST_ISSUES,
    REQUEST_REVIEWERS,
    SEARCH_ISSUES,
    UNDOCUMENTED,
    Call,
)
from tests.support.github.shapes import shaped
from tests.support.openapi import NEWEST, OLDEST, operations, wrong_answer, wrong_request

PULL = {"title": "Fix", "head": "b", "base": "main", "draft": True}
CHECK = {"name": "n", "head_sha": "a" * 40, "status": "in_progress"}


@pytest.fixture(autouse=True)
def described() -> None:
    """Every fake in every test is held against it; where it cannot be had, that is said here once."""
    if isinstance(found := operations(), str):
        pytest.skip(f"NOT TESTED against GitHub's description of its API: {found}")


def test_every_call_is_in_the_github_description() -> None:
    found = operations()
    assert not isinstance(found, str)
    rows = {call.title for call in CALLS if call.method != "GIT" and not call.text and call.source != UNDOCUMENTED}
    for name in (NEWEST, OLDEST):
        assert found[name]["operations"].keys() == rows


@pytest.mark.parametrize(
    ("call", "query", "body"),
    [
        (
            LIST_ISSUES,
            {"labels": "agent-fix", "state": "open", "sort": "updated", "per_page": "100", "page": "2"},
            None,
        ),
        (LIST_CHECK_RUNS, {"app_id": "7", "filter": "all"}, None),
        (CREATE_PULL, {}, PULL),
        (CREATE_CHECK_RUN, {}, CHECK),
        (ADD_LABELS, {}, {"labels": ["bug"]}),
        (REQUEST_REVIEWERS, {}, {"team_reviewers": ["core"]}),
    ],
)
def test_valid_requests_pass(call: Call, query: dict[str, str], body: dict[str, Any] | None) -> None:
    assert list(wrong_request(call, query, body)) == []


@pytest.mark.parametrize(
    ("call", "query", "body", "words"),
    [
        (LIST_ISSUES, {"label": "agent-fix"}, None, "has no parameter label"),
        (LIST_ISSUES, {"state": "opened"}, None, "parameter state"),
        (LIST_CHECK_RUNS, {"app_id": "agent-fix"}, None, "parameter app_id"),
        (SEARCH_ISSUES, {"q": "x", "sort": "reactions", "order": "+1-desc"}, None, "parameter order"),
        (CREATE_PULL, {}, {**PULL, "labels": ["bug"]}, "labels"),
        (CREATE_PULL, {}, {"title": "Fix"}, "required"),
        (CREATE_PULL, {}, {**PULL, "draft": "yes"}, "yes"),
        (CREATE_CHECK_RUN, {}, {**CHECK, "summary": "s"}, "summary"),
        (GET_ISSUE, {}, {"number": 1}, "takes no body"),
    ],
)
def test_invalid_requests_are_reported(
    call: Call, query: dict[str, str], body: dict[str, Any] | None, words: str
) -> None:
    found = list(wrong_request(call, query, body))
    assert any(words in each for each in found), found


def test_invalid_answers_are_reported() -> None:
    assert list(wrong_answer(GET_ISSUE, 404, {"message": "Not Found"})) == []
    assert "without a message" in "".join(wrong_answer(GET_ISSUE, 404, {}))
    assert "published are" in "".join(wrong_answer(GET_ISSUE, 202, {}))
    assert "invented" in "".join(wrong_answer(GET_ISSUE, 200, {"invented": 1}))
    assert "number" in "".join(wrong_answer(GET_ISSUE, 200, {"number": "one"}))


def test_models_get_only_fields_they_define() -> None:
    from githubkit_schemas.latest import models

    with pytest.raises(AssertionError, match="Issue has no assignee"):
        shaped(models.Issue, assignee=None)
