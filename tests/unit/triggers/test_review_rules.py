"""Which reviews and failing checks of the bot's pull requests start a job."""

from datetime import timedelta
from typing import Any

import pytest

from app.config.repository import IterateConfig, RepoConfig
from app.core.errors import ConfigError
from app.github.models import ActorPermission, BotAccount
from app.triggers.decisions import (
    Ignored,
)
from app.triggers.events import Event
from app.triggers.rules import command_of, should_ignore
from tests.support import webhook_requests as made
from tests.support.rule_decisions import (
    CONFIG,
    NOW,
    OURS,
    THEIRS,
    US,
    WRITER,
    ask,
    event_of,
    order,
    replied,
    skipped,
    state,
)


def reviewed(body: str = "Rounds the wrong way.", **how: Any) -> Event:
    """A review of our own pull request."""
    payload = made.review(body, **how)
    payload["pull_request"]["user"] = made.OURSELVES
    return event_of("pull_request_review", payload)


def test_requested_changes_on_our_pull_request_need_no_command() -> None:
    found = order(ask(reviewed(), state(pull=OURS)))
    assert (found.aim, found.destination, found.trigger) == ("revise", "same_branch", "review:42")
    assert found.text == "Rounds the wrong way."


def test_quotes_in_a_review_are_ignored() -> None:
    text = "> /agent fix everything\nand lazily so\n\nNo.\n\n- > nor this\n- `a > b`"
    assert order(ask(reviewed(text), state(pull=OURS))).text == "No.\n\n- `a > b`"


@pytest.mark.parametrize("verdict", ["APPROVED", "COMMENTED", "DISMISSED"])
def test_other_reviews_start_nothing(verdict: str) -> None:
    assert skipped(ask(reviewed(state=verdict), state(pull=OURS))) == ("not_addressed", False)


def test_a_review_of_another_persons_pull_request_starts_nothing() -> None:
    event = event_of("pull_request_review", made.review("Not this way."))
    assert should_ignore(event, command_of(event), US) is not None
    assert skipped(ask(event, state(pull=THEIRS))) == ("not_addressed", False)
    assert skipped(ask(reviewed(), state(pull=THEIRS))) == ("review", False)


def test_a_bots_review_is_not_followed_even_where_its_app_may_ask() -> None:
    allowed = BotAccount(app=made.APP, user=made.BOT, allowed_apps=frozenset({5}))
    bot = ActorPermission(id=3, login="dependabot[bot]", permission="none", app=5)
    event = reviewed(sender=made.DEPENDABOT)
    assert skipped(ask(event, state(pull=OURS), requester=bot, bot=allowed)) == ("not_addressed", False)
    said = reviewed("/agent fix it", sender=made.DEPENDABOT)
    assert order(ask(said, state(pull=OURS), requester=bot, bot=allowed)).aim == "fix"


@pytest.mark.parametrize(
    "requester", [None, WRITER.model_copy(update={"permission": "read"}), WRITER.model_copy(update={"id": 2})]
)
def test_a_strangers_review_is_not_followed(requester: ActorPermission | None) -> None:
    assert skipped(ask(reviewed(), state(pull=OURS), requester=requester)) == ("no_access", False)


def test_a_review_by_somebody_whom_the_repository_does_not_name() -> None:
    config = RepoConfig(allowed_actors=("grace",))
    assert skipped(ask(reviewed(), state(pull=OURS), config=config)) == ("no_access", False)


@pytest.mark.parametrize(
    ("config", "now"),
    [
        (RepoConfig(iterate=IterateConfig(reviews=False)), {}),
        (RepoConfig(iterate=IterateConfig(max=0)), {}),
        (ConfigError("agent-fix.yml:1: no"), {}),
        (CONFIG, {"open": False}),
        (CONFIG, {"locked": True}),
    ],
)
def test_reviews_between_people_are_ignored_silently(config: RepoConfig | ConfigError, now: dict[str, Any]) -> None:
    assert skipped(ask(reviewed(), state(pull=OURS, **now), config=config)) == ("review", False)


def test_reviews_are_followed_as_often_as_the_repository_lets_it() -> None:
    assert order(ask(reviewed(), state(pull=OURS, follow_ups=2))).aim == "revise"
    assert skipped(ask(reviewed(), state(pull=OURS, follow_ups=3))) == ("reviews_cap", True)
    assert order(ask(reviewed("/agent fix it"), state(pull=OURS, follow_ups=3))).aim == "fix"


def test_a_review_joins_the_active_job() -> None:
    found = order(ask(reviewed(), state(pull=OURS, job="j1", job_state="working", follow_ups=3)))
    assert found.aim == "steer"
    assert replied(ask(reviewed(), state(pull=OURS, job="j1", job_state="paused"))) == "busy"


def test_a_review_before_a_later_stop_is_not_followed() -> None:
    earlier, later = NOW - timedelta(hours=1), NOW
    assert skipped(ask(reviewed(), state(pull=OURS, asked_at=earlier, stopped_at=later))) == ("superseded", False)


def test_a_job_names_its_trigger() -> None:
    assert order(ask("/agent fix")).trigger == "comment:40"
    assert (
        order(ask(event_of("pull_request_review", made.review("/agent fix")), state(pull=OURS))).trigger == "review:42"
    )


FAILED = event_of("check_suite", made.checks())


def test_failing_checks_of_our_pull_request_start_a_follow_up() -> None:
    found = order(ask(FAILED, state(pull=OURS, follow_ups=2)))
    assert (found.aim, found.destination, found.trigger) == ("fix_checks", "same_branch", "check_suite:43")


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        ({"pull": None}, "not on a pull request"),
        ({"pull": THEIRS}, "not on a pull request of the bot"),
        ({"pull": OURS.model_copy(update={"head": made.OTHER_SHA})}, "has moved"),
        ({"pull": OURS.model_copy(update={"head_repository": 601})}, "not on a pull"),
        ({"open": False}, "closed"),
        ({"locked": True}, "locked"),
        ({"archived": True}, "archived"),
        ({"job": "j", "job_state": "working"}, "already working"),
    ],
)
def test_other_failing_checks_are_left_alone(now: dict[str, Any], reason: str) -> None:
    decision = ask(FAILED, state(**{"pull": OURS, **now}))
    assert isinstance(decision, Ignored)
    assert reason in decision.reason
    assert not decision.visible


def test_the_repository_says_whether_and_how_often_checks_are_mended() -> None:
    assert skipped(ask(FAILED, state(pull=OURS), config=RepoConfig(iterate=IterateConfig(ci=False)))) == (
        "checks",
        False,
    )
    assert skipped(ask(FAILED, state(pull=OURS), config=ConfigError("x"))) == ("checks", False)
    assert skipped(ask(FAILED, state(pull=OURS, follow_ups=3))) == ("checks_cap", True)


def test_our_own_failing_check_starts_no_follow_up() -> None:
    own = event_of("check_run", made.checks("check_run", app={"id": made.APP}))
    assert skipped(ask(own, state(pull=OURS))) == ("checks", False)
