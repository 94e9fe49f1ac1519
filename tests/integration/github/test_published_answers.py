"""Every answer that GitHub describes is read by our models: with all fields, and null wherever that is allowed."""

from typing import Any

import httpx
import pytest

from app.github import calls, models
from app.github.calls import Call
from app.github.http_client import parsed
from tests.support.openapi import NEWEST, operations

READ: list[tuple[Call, Any]] = [
    (calls.GET_ISSUE, models.GitHubIssue),
    (calls.CREATE_ISSUE, models.GitHubIssue),
    (calls.LIST_ISSUES, list[models.GitHubIssue]),
    (calls.SEARCH_ISSUES, list[models.GitHubIssue]),
    (calls.LIST_ISSUE_COMMENTS, list[models.IssueComment]),
    (calls.CREATE_COMMENT, models.IssueComment),
    (calls.LIST_ALL_PULL_COMMENTS, list[models.InlineComment]),
    (calls.GET_PULL_COMMENT, models.InlineComment),
    (calls.LIST_PULL_COMMENTS, list[models.IssueComment]),
    (calls.LIST_ISSUE_EVENTS, list[models.IssueEvent]),
    (calls.LIST_REVIEWS, list[models.PullRequestReview]),
    (calls.LIST_REVIEWERS, models.RequestedReviewersResponse),
    (calls.GET_PULL, models.PullRequest),
    (calls.LIST_PULLS, list[models.PullRequest]),
    (calls.LIST_PULL_FILES, list[models.ChangedFile]),
    (calls.LIST_PULL_COMMITS, list[models.PullRequestCommit]),
    (calls.GET_COMMIT, models.PullRequestCommit),
    (calls.GET_REPOSITORY, models.Repository),
    (calls.GET_USER_BY_ID, models.Account),
    (calls.GET_PERMISSION, models.ActorPermission),
    (calls.LIST_CHECK_RUNS, list[models.CheckRunResponse]),
    (calls.GET_COMBINED_STATUS, list[models.StatusResponse]),
    (calls.LIST_ANNOTATIONS, list[models.AnnotationResponse]),
    (calls.LIST_MATCHING_REFS, list[models.ReferenceResponse]),
    (calls.COMPARE_COMMITS, models.ComparisonResponse),
]
DEEPEST = 7
PLAIN = {"integer": 1, "number": 1, "boolean": True}


def example(schema: dict[str, Any], known: dict[str, Any], name: str = "", *, null: bool, depth: int = 0) -> Any:
    """A value that fits a schema; with `null`, null wherever that fits. Texts are made by their fields' names."""

    def inner(schema: dict[str, Any], name: str = name, deeper: int = 0) -> Any:
        return example(schema, known, name, null=null, depth=depth + deeper)

    fields = schema.get("properties", {}) if depth < DEEPEST else {}
    match schema:
        case {"$ref": reference}:
            return inner(known[reference.rpartition("/")[2]])
        case {"anyOf": kinds} if (null or depth > DEEPEST) and {"type": "null"} in kinds:
            return None
        case {"anyOf": kinds}:
            beside = {key: value for key, value in schema.items() if key not in {"anyOf", "propertyNames"}}
            return inner(next(each for each in kinds if each != {"type": "null"}) | beside)
        case {"type": "array"}:
            return [inner(schema["items"], deeper=1)] if depth < DEEPEST else []
        case {"enum": [first, *_]} | {"type": ("integer" | "number" | "boolean" | "string") as first}:
            return PLAIN.get(first, first) if first != "string" else _text(name)
    return {key: inner(each, key, 1) for key, each in fields.items()}


def _text(name: str) -> str:
    if name.endswith(("_at", "date")):
        return "2026-01-02T03:04:05Z"
    return "a" * 40 if "sha" in name or name == "commit_id" else "text"


@pytest.mark.parametrize("null", [False, True], ids=["filled", "null"])
@pytest.mark.parametrize(("call", "model"), READ, ids=[call.title for call, _ in READ])
def test_an_answer_as_published_is_read(call: Call, model: Any, *, null: bool) -> None:
    found = operations()
    if isinstance(found, str):
        pytest.skip(f"NOT TESTED: {found}")
    description = found[NEWEST]
    answers = description["operations"][call.title]["answers"]
    schema = next(schema for status, schema in answers.items() if status.startswith("2") and schema)
    answer = example(schema, description["$defs"], null=null)
    assert parsed(model, httpx.Response(200, json=answer), call.inside) is not None
