"""`/agent verify` and its label on people's pull requests: one comment, one check, and never a push."""

from concurrent.futures import Future

import pytest

from tests.support.conversation_model import ModelQuestion, called, planned, submitted
from tests.support.e2e_server import E2ERepository, Story
from tests.support.github.world import Check, Issue
from tests.support.openai_endpoint import Reply, answer
from tests.support.sample_project import EXAMPLES, FIXED, MONEY, Barrier

pytestmark = [pytest.mark.xdist_group("verify-pulls"), pytest.mark.timeout(700)]

NAME = "agent-fix verify"
WRONG = FIXED | {"money.py": MONEY.replace("cents // 2", "cents // 2 + 1")}
MEANT = "Half a cent is rounded up."


def judges(asked: ModelQuestion) -> Reply:
    """Author, reviewer and second opinion."""
    if "You do not see the change" in asked.brief:
        assert not asked.says("(cents + 1) // 2"), "the author has seen the change"
        return planned(MEANT, examples=EXAMPLES)
    if asked.brief.startswith("Review the change below."):
        return called(("counter", {"examples": [], "reason": "It rounds up."}))
    assert "You work out what programs print." in asked.system
    return answer('{"answers": [{"number": 1, "output": "", "as_before": true}]}')


def checks(place: E2ERepository, commit: str) -> list[Check]:
    return [each for each in place.repo.checks if each.name == NAME and each.head_sha == commit]


def ends(place: E2ERepository, commit: str, conclusion: str) -> Check:
    def found() -> Check | None:
        return next((each for each in checks(place, commit) if each.conclusion), None)

    check = place.until(found, "the check")
    assert check.conclusion == conclusion, check
    return check


def opens(place: E2ERepository, files: dict[str, str], *, fork: int = 0, body: str = "Fixes #1") -> tuple[Issue, str]:
    pull = place.opens_pull("topic", files, by=place.people.sam if fork else place.people.grace, fork=fork)
    pull.body = body
    return pull, place.repo.branches["topic"]


def unchanged(place: E2ERepository, head: str) -> None:
    assert place.repo.branches["topic"] == head
    assert place.repo.pushes == []
    assert place.pulls == []


def a_persons_right_change_is_proved(place: E2ERepository) -> None:
    gate = Barrier()

    def think(asked: ModelQuestion) -> Reply:
        gate.pass_through()
        return judges(asked)

    place.model_answers(think)
    pull, head = opens(place, FIXED)
    asked = place.says("/agent verify", pull)
    place.until(gate.is_reached, "the author")
    (running,) = place.until(lambda: checks(place, head), "the check in progress")
    assert (running.status, running.conclusion) == ("in_progress", None)
    place.says("/agent verify", pull)
    place.told("it is being verified already", issue=pull)
    gate.open()
    body = place.told("**Proved.**", MEANT, "half(5)", issue=pull)
    assert "Is this what you meant?" in body
    assert "The agent" not in body
    ends(place, head, "success")
    assert len(checks(place, head)) == 1
    place.until(lambda: "rocket" in place.reactions(asked), "🚀")
    assert len([each for each in place.ours(pull) if each.body.startswith("###")]) == 1
    assert not {label for label in pull.labels if label.startswith("agent-")}
    unchanged(place, head)


def a_forks_wrong_change_is_broken(place: E2ERepository) -> None:
    place.model_answers(judges)
    pull, head = opens(place, WRONG, fork=4_242)
    place.labels(pull, label="agent-verify")
    place.told("**Broken.**", "half(2468)", "expected", issue=pull)
    ends(place, head, "failure")
    place.until(lambda: "agent-verify" not in pull.labels, "the label to be taken off")
    unchanged(place, head)


def a_change_that_nothing_shows_does_not_pass_a_required_check(place: E2ERepository) -> None:
    """The same without a rule of the base branch is neutral."""

    def think(asked: ModelQuestion) -> Reply:
        return planned("A page says more.") if "You do not see the change" in asked.brief else judges(asked)

    place.model_answers(think)
    pull, head = opens(place, {"README.md": "# Money\n\nMore.\n"}, body="More words.")
    place.says("/agent verify", pull)
    place.told("**Unproved.**", issue=pull)
    ends(place, head, "neutral")
    needed = {"required_status_checks": [{"context": NAME}], "strict_required_status_checks_policy": False}
    rule = {"ruleset_id": 1, "branches": "main", "type": "required_status_checks", "parameters": needed}
    place.repo.rules.append(rule)
    head = place.pushes("topic", {"README.md": "# Money\n\nStill more.\n"}, pull)
    place.says("/agent verify", pull)
    ends(place, head, "action_required")


def words_that_ask_for_an_opinion_never_push(place: E2ERepository) -> None:
    place.model_answers(lambda _: submitted("Nobody asked for this."))
    pull, head = opens(place, FIXED)
    for words in ("/agent review this", "/agent please test the parser", "/agent check", "@agent-fix validate it"):
        comment = place.says(words, pull)
        assert place.decided(comment).startswith("reply"), words
    place.told("asks for an opinion", "`/agent verify`", issue=pull)
    assert place.asked == []
    unchanged(place, head)
    on_issue = place.says("/agent verify")
    assert place.decided(on_issue).startswith("reply")
    place.told("judges a pull request")


def a_stranger_gets_no_answer(place: E2ERepository) -> None:
    place.model_answers(judges)
    pull, head = opens(place, FIXED, fork=4_242)
    comment = place.says("/agent verify", pull, by=place.people.sam)
    assert place.decided(comment).startswith("skip no_access")
    assert place.ours(pull) == []
    assert checks(place, head) == []


def a_new_commit_runs_the_frozen_examples_without_a_model(place: E2ERepository) -> None:
    place.model_answers(judges)
    pull, head = opens(place, FIXED)
    place.says("/agent verify", pull)
    ends(place, head, "success")
    asked, comments = len(place.asked), len(place.ours(pull))
    head = place.pushes("topic", {"money.py": WRONG["money.py"]}, pull)
    ends(place, head, "failure")
    head = place.pushes("topic", {"money.py": FIXED["money.py"] + "\n# Rounded up.\n"}, pull)
    check = ends(place, head, "neutral")
    assert "no reviewer has seen this one" in str(check.summary)
    assert (len(place.asked), len(place.ours(pull))) == (asked, comments)
    unchanged(place, head)


STORIES: tuple[Story, ...] = (
    a_persons_right_change_is_proved,
    a_forks_wrong_change_is_broken,
    a_change_that_nothing_shows_does_not_pass_a_required_check,
    words_that_ask_for_an_opinion_never_push,
    a_stranger_gets_no_answer,
    a_new_commit_runs_the_frozen_examples_without_a_model,
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_story(story_results: "dict[str, Future[None]]", story: Story) -> None:
    story_results[story.__name__].result()
