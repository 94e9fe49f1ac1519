"""Who may start, guide and stop what, and when: one test for each rule."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any, get_args

import pytest

from app.config.repository import RepoConfig
from app.core.errors import ConfigError
from app.core.job import FINAL, JobState
from app.github.models import Account, ActorPermission, BotAccount
from app.github.permission import refusal
from app.triggers.commands import Verb
from app.triggers.decisions import (
    Decision,
    Ignored,
    JobRequest,
    Notification,
    Reply,
)
from app.triggers.events import read
from app.triggers.handlers import HANDLERS
from app.triggers.rules import PER_HOUR, command_of, decide, should_ignore
from tests.support import webhook_requests as made
from tests.support.published_payloads import published
from tests.support.rule_decisions import (
    ACTIVE,
    NOW,
    OURS,
    THEIRS,
    US,
    ask,
    event_of,
    facts_of,
    label,
    on_pull_request,
    order,
    replied,
    skipped,
    state,
)


def test_a_label_by_somebody_with_write_access_starts_a_fix() -> None:
    found = order(ask(label()))
    assert (found.aim, found.destination, found.trigger) == ("fix", "new_branch", "issue")
    assert (found.subject.number, found.subject.body) == (7, "Badly.")


def test_the_person_who_adds_the_label_counts_not_the_author() -> None:
    by_stranger = label(sender=made.STRANGER, issue=made.issue(user=made.OCTOCAT))
    stranger = ActorPermission(id=2, login="stranger", permission="read")
    assert skipped(ask(by_stranger, requester=stranger)) == ("no_access", False)


def test_another_label_asks_nothing() -> None:
    assert skipped(ask(label(label="bug"))) == ("not_addressed", False)
    assert order(ask(label(label="Agent-Fix"))).aim == "fix"
    assert order(ask(label(label="agent-reproduce"), state(labels=("agent-reproduce",)))).aim == "reproduce"


@pytest.mark.parametrize("text", ["thanks", "> /agent fix", "```\n/agent fix\n```"])
def test_text_without_a_command_is_ignored(text: str) -> None:
    assert skipped(ask(text)) == ("not_addressed", False)


ROLES = {
    "admin": True,
    "maintain": True,
    "write": True,
    "triage": False,
    "read": False,
    "none": False,
    "": False,
    "Write": False,
    "a role of their own": False,
}
TRIGGERS: dict[str, tuple[str, dict[str, Any]]] = {
    "label": ("issues", made.label_added()),
    "label on a pull request": (
        "pull_request",
        made.payload("labeled", pull_request=made.pull_request(), label={"name": "agent-fix"}),
    ),
    "comment": ("issue_comment", made.comment("/agent fix")),
    "comment on a pull request": ("issue_comment", made.comment_on_pull_request("/agent fix")),
    "inline comment": ("pull_request_review_comment", made.review_comment("/agent fix")),
    "review": ("pull_request_review", made.review("/agent fix")),
}


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("role", ROLES)
def test_only_people_with_write_access_start_jobs(trigger: str, role: str) -> None:
    decision = ask(event_of(*TRIGGERS[trigger]), requester=ActorPermission(id=1, login="octocat", permission=role))
    assert isinstance(decision, JobRequest) is ROLES[role]
    if not ROLES[role]:
        assert skipped(decision) == ("no_access", False)


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("kind", ["Bot", "Organization", "Mannequin", "", "user"])
def test_only_user_accounts_start_jobs(trigger: str, kind: str) -> None:
    event = event_of(*TRIGGERS[trigger])
    event = event.model_copy(update={"actor": Account(id=1, login="octocat", kind=kind)})
    assert skipped(ask(event, requester=ActorPermission(id=1, login="octocat", permission="admin"))) == (
        "no_access",
        False,
    )


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_an_unknown_permission_or_one_of_another_account_starts_nothing(trigger: str) -> None:
    event = event_of(*TRIGGERS[trigger])
    assert skipped(ask(event, requester=None)) == ("no_access", False)
    took_the_name = ActorPermission(id=99, login="octocat", permission="admin")
    assert skipped(ask(event, requester=took_the_name)) == ("no_access", False)


def test_a_bot_starts_jobs_only_if_the_operator_allowed_its_app() -> None:
    named = BotAccount(app=made.APP, user=made.BOT, allowed_apps=frozenset({123}))
    payload = made.comment("/agent fix", made.DEPENDABOT)
    requester = ActorPermission(id=3, login="dependabot[bot]", permission="write")
    payload["comment"]["performed_via_github_app"] = {"id": 123}
    assert order(ask(event_of("issue_comment", payload), requester=requester, bot=named)).aim == "fix"
    payload["comment"]["performed_via_github_app"] = {"id": 124}
    assert skipped(ask(event_of("issue_comment", payload), requester=requester, bot=named)) == ("no_access", False)
    payload["comment"]["performed_via_github_app"] = {"id": 123}
    assert skipped(ask(event_of("issue_comment", payload), requester=requester)) == ("no_access", False)


def test_a_bots_login_in_allowed_actors_has_no_effect() -> None:
    config = RepoConfig(allowed_actors=("dependabot[bot]",))
    event = event_of("issue_comment", made.comment("/agent fix", made.DEPENDABOT))
    requester = ActorPermission(id=3, login="dependabot[bot]", permission="admin")
    assert skipped(ask(event, config=config, requester=requester)) == ("no_access", False)


def test_a_label_by_an_allowed_app_is_identified_through_the_api() -> None:
    named = BotAccount(app=made.APP, user=made.BOT, allowed_apps=frozenset({123}))
    requester = ActorPermission(id=3, login="dependabot[bot]", permission="none", app=123)
    assert order(ask(label(sender=made.DEPENDABOT), requester=requester, bot=named)).aim == "fix"


def test_allowed_actors_are_matched_with_the_login_the_id_has_now() -> None:
    config = RepoConfig(allowed_actors=("New-Name",))
    assert order(
        ask("/agent fix", config=config, requester=ActorPermission(id=1, login="new-name", permission="write"))
    )
    assert skipped(ask("/agent fix", config=config)) == ("no_access", False)
    reader = ActorPermission(id=1, login="new-name", permission="read")
    assert skipped(ask("/agent fix", config=config, requester=reader)) == ("no_access", False)


def test_an_account_with_a_bots_login_is_not_a_person() -> None:
    assert refusal(
        Account(id=1, login="write[bot]", kind="User"), ActorPermission(id=1, login="write[bot]", permission="admin")
    )


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_the_bots_own_events_are_ignored(trigger: str) -> None:
    event = event_of(*TRIGGERS[trigger])
    ours = event.model_copy(update={"actor": Account(id=made.BOT, login="agent-fix[bot]", kind="Bot")})
    admin = ActorPermission(id=made.BOT, login="agent-fix[bot]", permission="admin")
    everybody = BotAccount(app=made.APP, user=made.BOT, allowed_apps=frozenset({made.APP}))
    assert skipped(ask(ours, requester=admin, bot=everybody)) == ("own_doing", False)


def test_comments_written_through_our_app_count_as_the_bots() -> None:
    payload = made.comment("/agent fix")
    payload["comment"]["performed_via_github_app"] = {"id": made.APP}
    event = event_of("issue_comment", payload)
    assert should_ignore(event, command_of(event), US) == Ignored(rule="own_doing", reason="it is the bot's own event")


def test_an_old_comment_is_ignored() -> None:
    written = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert order(ask("/agent fix", at=written + timedelta(days=4))).aim == "fix"
    assert skipped(ask("/agent fix", at=written + timedelta(days=8))) == ("too_old", False)


def test_a_redelivered_label_counts_only_while_it_is_there() -> None:
    assert skipped(ask(label(), state(labels=("bug",)))) == ("withdrawn", False)
    assert order(ask(label(), state(labels=("bug", "Agent-Fix")))).aim == "fix"


def test_a_label_that_somebody_else_added_again_since_is_their_request() -> None:
    assert skipped(ask(label(), state(withdrawn=True))) == ("withdrawn", False)


def test_an_assignment_by_a_stranger_is_refused_before_its_issue_is_read() -> None:
    event = event_of("issues", made.payload("assigned", issue=made.issue(), assignee=made.OURSELVES))
    facts = replace(facts_of(event, requester=None), issue=None)
    assert skipped(decide(facts, now=NOW)) == ("no_access", False)


def test_a_deleted_comment_is_ignored() -> None:
    assert skipped(ask("/agent fix", state(text_deleted=True))) == ("withdrawn", False)


def test_an_archived_repository_is_ignored_silently() -> None:
    assert skipped(ask("/agent fix", state(archived=True))) == ("archived", False)


@pytest.mark.parametrize("text", ["/agent fix", "/agent plan", "/agent retry", "/agent do it"])
@pytest.mark.parametrize(
    ("now", "rule"),
    [
        ({"open": False}, "closed"),
        ({"locked": True}, "locked"),
        ({"assignees": (5,)}, "assigned_elsewhere"),
        ({"linked": 12}, "has_pull_request"),
    ],
)
def test_the_reason_why_no_job_starts_is_reported(text: str, now: dict[str, Any], rule: str) -> None:
    assert skipped(ask(text, state(**now))) == (rule, True)
    assert skipped(ask(label(), state(**now))) == (rule, True)


@pytest.mark.parametrize("text", ["/agent ask why?", "/agent status", "/agent remember x", "/agent forget 1"])
def test_commands_that_start_no_job_still_work(text: str) -> None:
    order(ask(text, state(open=False, locked=True, assignees=(5,), linked=12)))


@pytest.mark.parametrize("assignees", [(), (1,), (5, 1), (made.BOT, 5)])
def test_an_issue_assigned_to_the_actor_or_the_bot_may_be_worked_on(assignees: tuple[int, ...]) -> None:
    assert order(ask(label(), state(assignees=assignees))).aim == "fix"


def test_a_pull_request_may_be_assigned_to_anybody() -> None:
    assert order(ask(on_pull_request("/agent fix"), state(assignees=(5,), pull=THEIRS))).aim == "fix"


def test_a_retry_may_replace_our_own_pull_request() -> None:
    assert order(ask("/agent retry", state(linked=12, linked_is_ours=True))).aim == "retry"
    decision = ask("/agent fix", state(linked=12, linked_is_ours=True))
    assert skipped(decision) == ("has_pull_request", True)
    assert isinstance(decision, Ignored)
    assert "#12" in decision.reason


def test_too_many_commands_are_reported_once() -> None:
    assert order(ask("/agent fix", state(recent_requests=PER_HOUR - 1))).aim == "fix"
    assert skipped(ask("/agent fix", state(recent_requests=PER_HOUR))) == ("too_many", True)
    assert skipped(ask("/agent fix", state(recent_requests=PER_HOUR + 1))) == ("too_many", False)
    stop = ask("/agent stop", state(recent_requests=5_000, job="j", job_state="working"))
    assert order(stop).aim == "stop"


def test_an_unclear_command_is_answered_only_for_people_with_access() -> None:
    assert order(ask("/agent aprove")).aim == "help"
    assert skipped(ask("/agent aprove", requester=None)) == ("no_access", False)


def test_with_a_broken_configuration_only_stop_and_status_work() -> None:
    broken = ConfigError(".github/agent-fix.yml:3: model: must be text")
    decision = ask("/agent fix", config=broken)
    assert replied(decision) == "broken_config"
    assert isinstance(decision, Reply)
    assert ":3: model:" in decision.text
    assert replied(ask(label(), config=broken)) == "broken_config"
    assert order(ask("/agent stop", state(job="j", job_state="working"), config=broken)).aim == "stop"


@pytest.mark.parametrize("active", ACTIVE)
def test_further_commands_go_to_the_active_job(active: JobState) -> None:
    now = state(job="j1", job_state=active, open=False)
    if active == "paused":
        assert replied(ask("/agent use a dict", now)) == "busy"
        return
    for text in ("/agent use a dict", "/agent fix use a dict"):
        found = order(ask(text, now))
        assert (found.aim, found.text) == ("steer", "use a dict")
    assert skipped(ask(label(), now)) == ("busy", True)
    assert skipped(ask("/agent plan", now)) == ("busy", True)


@pytest.mark.parametrize("ended", sorted(FINAL))
def test_after_a_job_ended_a_command_starts_another_or_answers_its_question(ended: JobState) -> None:
    found = order(ask("/agent it was on Windows", state(job="j1", job_state=ended)))
    assert found.aim == ("answer" if ended == "needs_input" else "fix")


@pytest.mark.parametrize("job_state", [None, *ACTIVE, *sorted(FINAL)])
def test_commands_that_need_a_job_say_when_there_is_none(job_state: JobState | None) -> None:
    now = state(job="j1", job_state=job_state)
    possible = {
        "approve": job_state == "awaiting_approval",
        "continue": job_state == "paused",
        "stop": job_state in ACTIVE,
        "status": True,
        "retry": True,
    }
    for verb, can in possible.items():
        decision = ask(f"/agent {verb}", now)
        if can:
            assert order(decision).aim == verb
        else:
            assert replied(decision) == "nothing_to_act_on"


def test_stop_ends_the_rest_of_a_published_jobs_suite() -> None:
    found = order(ask("/agent stop", state(job="j1", job_state="pr_opened", rest_runs=True)))
    assert found.aim == "stop"
    again = order(ask("/agent use a dict", state(job="j1", job_state="pr_opened", rest_runs=True)))
    assert again.aim == "fix", "work may begin beside it"


def test_a_budget_goes_with_the_command() -> None:
    found = order(ask("/agent continue --budget +3", state(job="j1", job_state="paused")))
    assert found.options.extra == 3_000_000


@pytest.mark.parametrize("verb", ["rebase", "ci"])
def test_other_peoples_pull_requests_are_not_rebased_and_their_ci_is_not_started(verb: str) -> None:
    assert replied(ask(f"/agent {verb}")) == "only_our_pull_request"
    assert replied(ask(on_pull_request(f"/agent {verb}"), state(pull=THEIRS))) == "only_our_pull_request"
    assert order(ask(on_pull_request(f"/agent {verb}"), state(pull=OURS))).aim == verb


@pytest.mark.parametrize(
    ("head", "destination"),
    [
        ({}, "same_branch"),
        ({"head_repository": 601}, "sibling"),
        ({"head_repository": None}, "sibling"),
        ({"head_branch": "main"}, "sibling"),
    ],
)
def test_a_fork_is_only_read_and_so_is_the_default_branch(head: dict[str, Any], destination: str) -> None:
    found = order(ask(on_pull_request("/agent fix"), state(pull=THEIRS.model_copy(update=head))))
    assert found.destination == destination


def test_a_pull_request_that_could_not_be_looked_up_is_not_pushed_to() -> None:
    assert order(ask(on_pull_request("/agent fix"), state(pull=None))).destination == "sibling"


def test_a_branch_that_moved_after_a_review_counts_as_changed() -> None:
    event = event_of("pull_request_review", made.review("/agent fix"))
    pushed = THEIRS.model_copy(update={"head": made.OTHER_SHA})
    assert order(ask(event, state(pull=pushed))).changed == ("head",)


def test_texts_edited_since_the_event_are_not_used() -> None:
    now = state(title="Other", body="rm -rf", text="/agent stop")
    found = order(ask("/agent fix it", now))
    assert found.changed == ("title", "description", "comment")
    assert found.text == "it"
    assert (found.subject.title, found.subject.body) == ("It breaks", "Badly.")


def test_unchanged_or_unfetched_texts_do_not_count_as_edited() -> None:
    same = state(title="It breaks", body="Badly.", text="/agent fix")
    assert order(ask("/agent fix", same)).changed == ()
    assert order(ask("/agent fix")).changed == ()


def test_an_inline_comment_brings_its_lines() -> None:
    event = event_of("pull_request_review_comment", made.review_comment("/agent fix the loop"))
    found = order(ask(event, state(pull=OURS)))
    assert found.thread is not None
    assert (found.thread.path, found.thread.start, found.thread.end, found.trigger) == (
        "a.py",
        7,
        9,
        "review_comment:41",
    )


def test_every_command_has_a_handler() -> None:
    assert set(HANDLERS) == set(get_args(Verb))


def signal(decision: Decision) -> str:
    assert isinstance(decision, Notification), decision
    return decision.aim


WORKING = {"job": "j1", "job_state": "working"}


@pytest.mark.parametrize(
    ("name", "payload", "now", "aim"),
    [
        ("issues", made.payload("closed", issue=made.issue()), {"open": False, **WORKING}, "stop"),
        ("issues", made.payload("closed", issue=made.issue()), {"open": True, **WORKING}, None),
        ("issues", made.payload("closed", issue=made.issue()), {"open": False}, None),
        ("issues", made.payload("deleted", issue=made.issue()), WORKING, "stop"),
        ("issues", made.payload("edited", issue=made.issue()), WORKING, "edited"),
        ("issues", made.payload("edited", issue=made.issue()), {}, None),
        ("issues", made.payload("reopened", issue=made.issue()), WORKING, None),
        ("issues", {**made.label_added(), "action": "unlabeled"}, {"labels": (), **WORKING}, "stop"),
        ("issues", {**made.label_added(), "action": "unlabeled"}, WORKING, None),
        ("issues", {**made.label_added("agent-in-progress"), "action": "unlabeled"}, WORKING, "stop"),
        ("issues", {**made.label_added("bug"), "action": "unlabeled"}, WORKING, None),
        ("pull_request", made.payload("closed", pull_request=made.pull_request()), {"open": False, **WORKING}, "stop"),
        ("pull_request", made.payload("closed", pull_request=made.pull_request()), {"open": False}, None),
        ("pull_request", made.payload("synchronize", pull_request=made.pull_request()), {"pull": OURS}, "head_moved"),
        ("pull_request", made.payload("synchronize", pull_request=made.pull_request()), {"pull": THEIRS}, None),
        ("push", made.push(), {}, "base_moved"),
        ("repository", made.payload("renamed"), {}, "moved"),
        ("repository", made.payload("transferred"), {}, "moved"),
        ("repository", made.payload("archived"), {}, "no_access"),
        ("repository", made.payload("unarchived"), {}, "reconcile"),
        ("installation", made.installation("deleted"), {}, "no_access"),
        ("installation", made.installation("suspend"), {}, "no_access"),
        ("installation", made.installation("created"), {}, "reconcile"),
        ("installation_repositories", made.installation("removed", repositories_removed=[{"id": 4}]), {}, "no_access"),
    ],
)
def test_events_that_concern_an_active_job_notify_it(
    name: str, payload: dict[str, Any], now: dict[str, Any], aim: str | None
) -> None:
    decision = ask(event_of(name, payload), state(**now))
    if aim is None:
        assert skipped(decision)[1] is False
    else:
        assert signal(decision) == aim


def test_labels_removed_by_the_bot_stop_nothing() -> None:
    taken_off = event_of("issues", {**made.label_added(sender=made.OURSELVES), "action": "unlabeled"})
    assert skipped(ask(taken_off, state(labels=(), **WORKING))) == ("own_doing", False)


def test_a_suspended_installation_is_all_of_its_repositories_and_a_removed_one_is_itself() -> None:
    suspended = ask(event_of("installation", made.installation("suspend", repositories=[{"id": 4}])))
    removed = ask(event_of("installation_repositories", made.installation("removed", repositories_removed=[{"id": 4}])))
    assert isinstance(suspended, Notification)
    assert isinstance(removed, Notification)
    assert (suspended.repositories, removed.repositories) == ((), (4,))


STORY = {
    "labelled": label(),
    "edited": event_of("issues", made.payload("edited", issue=made.issue())),
    "commented": event_of("issue_comment", made.comment("/agent use a dict")),
    "unlabelled": event_of("issues", {**made.label_added(), "action": "unlabeled"}),
    "closed": event_of("issues", made.payload("closed", issue=made.issue())),
}


@pytest.mark.parametrize(
    ("labels", "is_open", "expected"),
    [(("agent-fix",), True, "working"), ((), False, None), (("agent-fix",), False, None)],
)
def test_the_order_of_deliveries_does_not_change_where_things_end(
    labels: tuple[str, ...], is_open: bool, expected: str | None
) -> None:
    """All 120 orders of five events, after which the issue stands as given: its state is asked, not told."""
    ends = set()
    for names in permutations(STORY):
        job: JobState | None = None
        for name in names:
            now = state(labels=labels, open=is_open, job="j" if job else "", job_state=job)
            decision = ask(STORY[name], now)
            if isinstance(decision, JobRequest) and decision.aim in {"fix", "steer"}:
                job = "working"
            if isinstance(decision, Notification) and decision.aim == "stop":
                job = None
        ends.add(job)
    assert ends == {expected}


def test_githubs_published_payloads_start_nothing() -> None:
    """None of them holds our label or an `/agent` line, so none may become an order."""
    decided = []
    for name, payload in published():
        event = read(name, {"installation": {"id": 1}, **payload})
        if not isinstance(event, str):
            requester = ActorPermission(id=event.actor.id, login=event.actor.login, permission="admin")
            decided.append(decide(facts_of(event, requester=requester), now=NOW))
    assert len(decided) == 49
    assert not [decision for decision in decided if isinstance(decision, JobRequest | Reply)]


def test_every_job_request_survives_json() -> None:
    for name, payload in TRIGGERS.values():
        found = order(ask(event_of(name, payload), state(pull=OURS)))
        assert JobRequest.model_validate_json(found.model_dump_json()) == found


EARLIER, LATER = NOW - timedelta(minutes=9), NOW - timedelta(minutes=1)


@pytest.mark.parametrize("text", ["/agent fix it", "/agent please", "/agent plan", "/agent retry", "/agent ask why?"])
def test_a_command_before_a_stop_starts_nothing_after_it(text: str) -> None:
    """Deliveries come in any order; their times say which request was the last."""
    assert skipped(ask(text, state(asked_at=EARLIER, stopped_at=LATER))) == ("superseded", False)
    order(ask(text, state(asked_at=LATER, stopped_at=EARLIER)))
    order(ask(text, state(asked_at=LATER, stopped_at=LATER)))  # in doubt it is done


def test_a_stop_does_not_end_a_job_requested_after_it() -> None:
    working = {"job": "one", "job_state": "working"}
    assert skipped(ask("/agent stop", state(asked_at=EARLIER, begun_at=LATER, **working))) == ("superseded", False)
    assert order(ask("/agent stop", state(asked_at=LATER, begun_at=EARLIER, **working))).aim == "stop"


def test_status_may_be_requested_at_any_time() -> None:
    assert order(ask("/agent status", state(asked_at=EARLIER, stopped_at=LATER, begun_at=LATER))).aim == "status"


def test_a_stop_is_not_revealed_to_people_without_access() -> None:
    stranger = ActorPermission(id=1, login="octocat", permission="read")
    superseded = state(asked_at=EARLIER, stopped_at=LATER)
    assert skipped(ask("/agent fix it", superseded, requester=stranger))[0] == "no_access"


def test_a_plan_that_was_only_made_can_be_approved_like_one_that_waits() -> None:
    planned = {"job": "one", "job_state": "answered", "planned": True}
    assert order(ask("/agent approve", state(**planned))).aim == "approve"
    assert replied(ask("/agent approve", state(**{**planned, "planned": False}))) == "nothing_to_act_on"
    assert skipped(ask("/agent approve", state(**planned, open=False))) == ("closed", True)
    assert skipped(ask("/agent approve", state(**planned, linked=9))) == ("has_pull_request", True)


def test_a_label_taken_off_before_work_was_asked_for_again_stops_nothing() -> None:
    event = event_of("issues", made.payload("unlabeled", issue=made.issue(), label={"name": "agent-fix"}))
    working = {"job": "one", "job_state": "working", "labels": ()}
    assert skipped(ask(event, state(asked_at=EARLIER, begun_at=LATER, **working)))[0] == "unlabelled"
    found = ask(event, state(asked_at=LATER, begun_at=EARLIER, **working))
    assert isinstance(found, Notification)
    assert found.aim == "stop"


@pytest.mark.parametrize("removed", [[], None])
def test_an_empty_list_of_removed_repositories_ends_nothing(removed: list[object] | None) -> None:
    event = read("installation_repositories", made.installation("removed", repositories_removed=removed))
    assert not isinstance(event, str)
    found = decide(facts_of(event), now=NOW)
    assert isinstance(found, Ignored)
