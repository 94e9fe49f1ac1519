"""Payloads of webhooks: a known one becomes an event, any other gets a reason, none raises."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.github.models import Account, DiffThread
from app.triggers.events import (
    Assigned,
    BranchHead,
    ChecksFailed,
    IgnoredReason,
    InstallationChanged,
    IssueChanged,
    IssueCommented,
    LabelAdded,
    LabelRemoved,
    PullRequestChanged,
    Pushed,
    RepositoryChanged,
    ReviewCommented,
    ReviewSubmitted,
    decode,
    read,
)
from tests.support import webhook_requests as made
from tests.support.published_payloads import COUNT, Published, published

IGNORED = set(get_args(IgnoredReason))


def test_a_labelled_issue_knows_who_labelled_and_what_was_signed() -> None:
    event = read("issues", made.label_added())
    assert isinstance(event, LabelAdded)
    assert event.actor == Account(id=1, login="octocat", kind="User")
    assert (event.installation, event.repository.id) == (500, 600)
    assert (event.repository.owner, event.repository.name) == ("octo-org", "hello")
    assert (event.subject.number, event.subject.title, event.subject.author) == (7, "It breaks", 2)
    assert event.subject.body == "Badly."
    assert not event.subject.is_pull_request


def test_an_assigned_issue_knows_who_was_assigned_and_by_whom() -> None:
    event = read("issues", made.payload("assigned", issue=made.issue(), assignee=made.OURSELVES))
    assert isinstance(event, Assigned)
    assert (event.actor.login, event.assignee) == ("octocat", made.BOT)


def test_a_labelled_pull_request_tells_its_head() -> None:
    event = read("pull_request", made.payload("labeled", pull_request=made.pull_request(), label={"name": "x"}))
    assert isinstance(event, LabelAdded)
    assert event.subject.is_pull_request
    assert event.subject.head == BranchHead(repository=600, ref="topic", sha=made.SHA)


def test_a_head_whose_fork_is_gone_has_no_repository() -> None:
    gone = made.pull_request(head_repository=None)
    event = read("pull_request", made.payload("synchronize", pull_request=gone))
    assert isinstance(event, PullRequestChanged)
    assert event.subject.head is not None
    assert event.subject.head.repository is None


def test_comments_on_pull_requests_and_on_issues_are_distinguished() -> None:
    on_pull = read("issue_comment", made.comment_on_pull_request("/agent fix"))
    on_issue = read("issue_comment", made.comment("/agent fix"))
    assert isinstance(on_pull, IssueCommented)
    assert isinstance(on_issue, IssueCommented)
    assert on_pull.subject.is_pull_request
    assert not on_issue.subject.is_pull_request
    assert on_issue.text == "/agent fix"


def test_an_inline_comment_knows_its_lines_and_the_thread_it_answers() -> None:
    event = read("pull_request_review_comment", made.review_comment("/agent fix", in_reply_to_id=39))
    assert isinstance(event, ReviewCommented)
    assert event.thread == DiffThread(comment=39, path="a.py", start=7, end=9, hunk="@@ -1 +1 @@")


def test_an_outdated_inline_comment_keeps_the_line_it_was_written_on() -> None:
    comment = made.review_comment("x", line=None, start_line=None, original_line=5)
    event = read("pull_request_review_comment", comment)
    assert isinstance(event, ReviewCommented)
    assert (event.thread.comment, event.thread.start, event.thread.end) == (41, 5, 5)


def test_a_review_without_words_is_still_an_event() -> None:
    event = read("pull_request_review", made.review(None))
    assert isinstance(event, ReviewSubmitted)
    assert (event.text, event.verdict) == ("", "changes_requested")


@pytest.mark.parametrize("kind", ["check_run", "check_suite", "workflow_run"])
@pytest.mark.parametrize("conclusion", ["failure", "timed_out", "startup_failure"])
def test_a_bad_end_of_checks(kind: str, conclusion: str) -> None:
    event = read(kind, made.checks(kind, conclusion))
    assert isinstance(event, ChecksFailed)
    assert (event.source, event.conclusion, event.pull_requests, event.app) == (kind, conclusion, (7,), 15368)
    assert (event.head_ref, event.head_sha) == ("topic", made.SHA)


@pytest.mark.parametrize("conclusion", ["success", "neutral", "cancelled", "skipped", "stale", None])
def test_other_conclusions_of_checks_are_not_failures(conclusion: str | None) -> None:
    assert read("check_suite", made.payload("completed", check_suite={"id": 1, "head_sha": made.SHA})) in IGNORED
    ended = made.checks(conclusion="failure")
    ended["check_suite"]["conclusion"] = conclusion
    assert read("check_suite", ended) == "no_failure"


def test_a_run_finds_its_branch_in_its_suite() -> None:
    ended = made.checks("check_run", head_branch=None, check_suite={"head_branch": "from-suite"})
    event = read("check_run", ended)
    assert isinstance(event, ChecksFailed)
    assert event.head_ref == "from-suite"


@pytest.mark.parametrize(
    ("action", "change"),
    [("created", "created"), ("deleted", "deleted"), ("suspend", "suspended"), ("unsuspend", "unsuspended")],
)
def test_installations(action: str, change: str) -> None:
    event = read("installation", made.installation(action, repositories=[{"id": 4}]))
    assert isinstance(event, InstallationChanged)
    assert (event.change, event.repositories) == (change, (4,))


def test_repositories_of_an_installation_come_and_go() -> None:
    changed = made.installation("removed", repositories_added=[], repositories_removed=[{"id": 4}, {"id": 5}])
    event = read("installation_repositories", changed)
    assert isinstance(event, InstallationChanged)
    assert (event.change, event.repositories) == ("removed", (4, 5))


@pytest.mark.parametrize("action", ["renamed", "transferred", "archived", "unarchived", "deleted"])
def test_repositories(action: str) -> None:
    event = read("repository", made.payload(action))
    assert isinstance(event, RepositoryChanged)
    assert event.change == action


def test_a_push_is_of_a_branch() -> None:
    event = read("push", made.push("refs/heads/feature/x"))
    assert isinstance(event, Pushed)
    assert (event.branch, event.after) == ("feature/x", made.OTHER_SHA)
    assert read("push", made.push("refs/tags/v1")) == "no_branch"


@pytest.mark.parametrize("action", ["closed", "reopened", "edited", "deleted", "transferred"])
def test_each_issue_event_has_its_effect(action: str) -> None:
    event = read("issues", made.payload(action, issue=made.issue()))
    assert isinstance(event, IssueChanged)
    assert event.change == action


@pytest.mark.parametrize(
    ("name", "payload", "reason"),
    [
        ("ping", {"zen": "…"}, "unknown_event"),
        ("no such event", made.label_added(), "unknown_event"),
        ("", made.label_added(), "unknown_event"),
        ("issues", made.payload("opened", issue=made.issue()), "unknown_action"),
        ("issues", {**made.label_added(), "action": ["labeled"]}, "unknown_action"),
        ("issues", {**made.label_added(), "action": {}}, "unknown_action"),
        ("issue_comment", {**made.comment("/agent fix"), "action": "edited"}, "edited"),
        ("issue_comment", {**made.comment("/agent fix"), "action": "deleted"}, "unknown_action"),
        ("pull_request_review", {**made.review("/agent fix"), "action": "edited"}, "edited"),
        ("issues", {**made.label_added(), "installation": None}, "no_installation"),
        ("issues", {k: v for k, v in made.label_added().items() if k != "installation"}, "no_installation"),
        ("issues", made.label_added(sender=None), "no_sender"),
        ("issue_comment", {**made.comment("/agent fix"), "sender": made.STRANGER}, "not_the_author"),
        ("issues", {**made.label_added(), "label": None}, "malformed"),
        ("issues", made.label_added(issue=made.issue(number="7")), "malformed"),
        ("issues", made.label_added(issue=made.issue(number=True)), "malformed"),
        ("issues", made.label_added(issue=made.issue(number=-7)), "malformed"),
        ("issues", made.label_added(issue=made.issue(number=2**70)), "malformed"),
        ("issues", made.label_added(issue=made.issue(title="\ud800")), "malformed"),
        ("issues", made.label_added(pull_request=made.pull_request()), "malformed"),
        ("issues", made.label_added(repository={}), "malformed"),
        ("issue_comment", made.label_added(), "unknown_action"),
        ("pull_request_review_comment", made.comment("/agent fix"), "malformed"),
        ("push", {**made.push(), "after": "--upload-pack=x"}, "malformed"),
        ("issues", [made.label_added()], "not_an_object"),
        ("issues", None, "not_an_object"),
    ],
)
def test_ignored_events_have_a_reason(name: str, payload: Any, reason: str) -> None:
    assert read(name, payload) == reason


def test_a_ghost_wrote_the_comment() -> None:
    ghost = made.comment("/agent fix")
    ghost["comment"]["user"] = None
    assert read("issue_comment", ghost) == "not_the_author"


def test_a_ghost_wrote_the_issue() -> None:
    event = read("issues", made.label_added(issue=made.issue(user=None)))
    assert isinstance(event, LabelAdded)
    assert event.subject.author is None


def test_an_unlabelled_issue() -> None:
    event = read("issues", {**made.label_added(), "action": "unlabeled"})
    assert isinstance(event, LabelRemoved)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"1",
        b'"x"',
        b"null",
        b"\xff\xfe{}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a": "\\ud800"}',
        b"{}x",
    ],
)
def test_a_body_that_is_not_a_json_object(body: bytes) -> None:
    with pytest.raises(ValueError):
        decode(body)


def test_a_body_is_decoded_as_the_forge_sends_it() -> None:
    assert decode('{"a": "é", "b": {"c": [1, null]}}'.encode()) == {"a": "é", "b": {"c": [1, None]}}


def test_the_published_payloads_as_they_are() -> None:
    """Most were recorded by plain repository webhooks, without an installation."""
    readings = [read(*example) for example in published()]
    assert len(readings) == COUNT
    reasons = Counter(reading for reading in readings if isinstance(reading, str))
    assert reasons == {
        "unknown_event": 200,
        "unknown_action": 61,
        "no_installation": 32,
        "edited": 5,
        "no_branch": 1,
    }
    assert sum(not isinstance(reading, str) for reading in readings) == COUNT - reasons.total()


def with_installation() -> Iterator[Published]:
    for name, payload in published():
        yield Published(name, {"installation": {"id": 1}, **payload})


def test_the_published_payloads_as_an_app_would_get_them() -> None:
    readings = [read(*example) for example in with_installation()]
    assert "malformed" not in readings
    kinds = Counter(type(reading).__name__ for reading in readings if not isinstance(reading, str))
    assert kinds == {
        "InstallationChanged": 9,
        "IssueChanged": 6,
        "IssueCommented": 5,
        "PullRequestChanged": 5,
        "LabelAdded": 4,
        "Assigned": 3,
        "RepositoryChanged": 4,
        "LabelRemoved": 4,
        "ReviewCommented": 3,
        "ReviewSubmitted": 3,
        "Pushed": 2,
        "ChecksFailed": 1,
    }


def test_every_event_comes_back_from_its_json() -> None:
    events = [event for example in with_installation() if not isinstance(event := read(*example), str)]
    for event in events:
        assert type(event).model_validate_json(event.model_dump_json()) == event


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
SEEDS: list[tuple[str, dict[str, Any]]] = [
    ("issues", made.label_added()),
    ("issue_comment", made.comment("/agent fix")),
    ("pull_request_review_comment", made.review_comment("/agent fix")),
    ("pull_request_review", made.review("/agent fix")),
    ("pull_request", made.payload("synchronize", pull_request=made.pull_request())),
    ("check_run", made.checks("check_run")),
    ("installation", made.installation("created", repositories=[{"id": 4}])),
    ("push", made.push()),
    ("repository", made.payload("renamed")),
]


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*path, key)
        yield from paths(item, (*path, key))


@given(st.sampled_from(SEEDS), st.data())
def test_no_change_of_a_payload_is_a_crash(seed: tuple[str, dict[str, Any]], data: st.DataObject) -> None:
    name, original = seed
    payload = json.loads(json.dumps(original))
    path = data.draw(st.sampled_from(list(paths(payload))))
    target = payload
    for key in path[:-1]:
        target = target[key]
    if data.draw(st.booleans()):
        del target[path[-1]]
    else:
        target[path[-1]] = data.draw(JSON)
    reading = read(name, payload)
    assert not isinstance(reading, str) or reading in IGNORED


@given(st.sampled_from([name for name, _ in SEEDS]) | st.text(), JSON)
def test_no_payload_at_all_is_a_crash(name: str, payload: Any) -> None:
    assert read(name, payload) in IGNORED


@given(st.binary(max_size=200))
def test_bytes_are_an_object_or_an_error(body: bytes) -> None:
    try:
        decoded = decode(body)
    except ValueError:
        return
    assert isinstance(decoded, dict)
