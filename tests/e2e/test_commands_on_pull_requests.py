"""What people say to the bot on pull requests, ours and theirs, and what happens around them meanwhile."""

from concurrent.futures import Future

import pytest

from app.triggers.rules import LABEL
from tests.support.conversation_model import ModelQuestion, called, submitted
from tests.support.e2e_server import E2ERepository, Story
from tests.support.github.authentication import APP_ID
from tests.support.github.world import Issue
from tests.support.openai_endpoint import Reply
from tests.support.repositories import git
from tests.support.sample_project import FIXED, MONEY, Barrier, fixes

pytestmark = [pytest.mark.xdist_group("commands-on-pulls"), pytest.mark.timeout(1_200)]

BRANCH = "agent-fix/issue-1-half-loses-a-cent"
NAMED = {"path": "money.py", "old_text": "def half", "new_text": "# Rounded up.\ndef half"}


def comments_the_code(asked: ModelQuestion) -> Reply:
    """The mind of an agent that does a small follow-up."""
    assert not asked.wants_a_plan
    if asked.turn == 1:
        return called(("edit", NAMED))
    return submitted("A comment says how it is rounded.")


def our_pull(place: E2ERepository) -> Issue:
    """As if we had opened it earlier."""
    pull = place.opens_pull(BRANCH, FIXED, by=place.world.bot)
    pull.body = "Fixes #1\n\n---\n\n<sub>agent-fix · job x</sub>\n"
    return pull


def parents(place: E2ERepository, branch: str) -> list[str]:
    return git(place.repo.path, "show", "-s", "--format=%P", branch).split()


def a_persons_commit_is_never_overwritten(place: E2ERepository) -> None:
    gate = Barrier()

    def think(asked: ModelQuestion) -> Reply:
        gate.pass_through()
        return comments_the_code(asked)

    place.model_answers(think)
    pull = our_pull(place)
    place.says("/agent say how it is rounded", pull)
    place.until(gate.is_reached, "the follow-up")
    theirs = place.pushes(BRANCH, {"notes.txt": "mine\n"}, pull)
    gate.open()
    body = place.told("Someone else has pushed", "never overwrites", "The change was saved", issue=pull)
    assert "`/agent retry`" in body
    assert place.repo.branches[BRANCH] == theirs
    job = place.comes_to("error", issue=pull)
    place.has("agent-needs-human", pull)
    place.says("/agent retry", pull)
    place.comes_to("pr_updated", issue=pull, not_before=job.job.id)
    assert parents(place, BRANCH) == [theirs]
    assert "# Rounded up." in place.file("money.py", BRANCH)
    assert place.file("notes.txt", BRANCH) == "mine\n"


def the_base_moves_while_the_agent_works(place: E2ERepository) -> None:
    gate = Barrier()

    def think(asked: ModelQuestion) -> Reply:
        if not asked.wants_a_plan and asked.turn == 1:
            gate.pass_through()
        return fixes(asked)

    place.model_answers(think)
    place.labels()
    place.until(gate.is_reached, "the first turn")
    before = place.repo.branches["main"]
    place.pushes("main", {"notes.txt": "new\n"})
    gate.open()
    pull = place.pull()
    assert pull.pull is not None
    assert parents(place, pull.pull.head) == [before]
    changed = git(place.repo.path, "diff", "--name-only", f"main...{pull.pull.head}").split()
    assert changed == ["money.py", "test_money.py"]
    place.told("A draft pull request is open", "**Proved.**")


def a_pull_request_is_closed_while_the_agent_works(place: E2ERepository) -> None:
    gate = Barrier()

    def think(asked: ModelQuestion) -> Reply:
        gate.pass_through()
        return comments_the_code(asked)

    place.model_answers(think)
    pull = our_pull(place)
    head = place.repo.branches[BRANCH]
    said = place.says("/agent say how it is rounded", pull)
    place.until(gate.is_reached, "the follow-up")
    place.closes(pull)
    place.told("⏹️ Stopped", "The pull request was closed.", issue=pull)
    gate.open()
    assert "confused" not in place.reactions(said), "who closed it knows"
    assert place.repo.branches[BRANCH] == head


def a_forks_pull_request_gets_a_sibling(place: E2ERepository) -> None:
    place.model_answers(comments_the_code)
    fork = place.opens_pull("patch-1", FIXED, by=place.people.sam, fork=4_242)
    head = place.repo.branches["patch-1"]
    place.says("/agent fix say how it is rounded", fork, by=place.people.grace)
    sibling = place.pull()
    assert sibling.pull is not None
    assert (sibling.pull.base, sibling.pull.draft) == ("main", True)
    assert parents(place, sibling.pull.head) == [head]
    assert place.repo.branches["patch-1"] == head
    assert all(each.split()[2] == f"refs/heads/{sibling.pull.head}" for each in place.repo.pushes)
    place.told("A draft pull request is open", f"/pull/{sibling.number}", issue=fork)
    assert "Fixes #" not in sibling.body


def a_persons_pull_request_gets_a_commit(place: E2ERepository) -> None:
    place.model_answers(comments_the_code)
    theirs = place.opens_pull("topic", FIXED, by=place.people.grace)
    head, text = place.repo.branches["topic"], theirs.body
    place.says("/agent fix say how it is rounded", theirs)
    body = place.told("The pull request is up to date", issue=theirs)
    assert "/agent ci" not in body, "it is for our own branches"
    assert f"Pushed: {place.repo.branches['topic']}" in body
    assert parents(place, "topic") == [head]
    assert "# Rounded up." in place.file("money.py", "topic")
    assert (place.pulls, theirs.body) == ([], text)


def a_review_with_threads_is_answered(place: E2ERepository) -> None:
    place.model_answers(comments_the_code)
    pull = our_pull(place)
    near = place.starts_thread(pull, "Say how it is rounded.", path="money.py", line=4)
    elsewhere = place.starts_thread(pull, "Is this enough?", path="test_money.py", line=9)
    place.reviews(pull, "/agent please see to these", near, elsewhere)
    place.told("The pull request is up to date", issue=pull)
    head = place.repo.branches[BRANCH]

    def answers() -> list[str] | None:
        found = [place.repo.comments[each.comments[-1]].body for each in (near, elsewhere) if len(each.comments) == 2]
        return found if len(found) == 2 else None

    changed, untouched = place.until(answers, "the threads' answers")
    assert head in changed
    assert f"{head} does not change `test_money.py`" in untouched
    place.until(lambda: near.resolved, "the resolved thread")
    assert not elsewhere.resolved
    (first, *_) = place.asked
    assert first.says("Say how it is rounded.")
    assert first.says("Is this enough?")
    place.until(lambda: "Follow-up" in pull.body, "the pull request's text")
    first_job = place.comes_to("pr_updated", issue=pull)
    place.reviews(pull, "One more line of comment, please.")
    second_job = place.comes_to("pr_updated", issue=pull, not_before=first_job.job.id)
    assert second_job.job_context.aim == "revise", "a review that asks for changes needs no command"
    assert parents(place, BRANCH) == [head]


def failing_checks_are_mended_until_the_cap(place: E2ERepository) -> None:
    place.configure("iterate: {max: 1}\n")
    place.model_answers(comments_the_code)
    pull = our_pull(place)
    place.e2e_server.server.server_context.job_queries.has_jobs_in(place.repo.id)
    place.says("/agent say how it is rounded", pull)
    place.told("The pull request is up to date", issue=pull)
    first = place.comes_to("pr_updated", issue=pull)
    head = place.repo.branches[BRANCH]
    own = place.world.add_check(place.repo, head, "agent-fix", "failure", app="agent-fix-test")
    own.app_id = APP_ID
    place.checks_end(own)
    place.model_answers(fixes_the_check)
    log = "x\n" * 20_000 + "AssertionError: the last line of the log"
    place.checks_end(place.world.add_check(place.repo, head, "lint", "failure", log=log))
    mended = place.comes_to("pr_updated", issue=pull, not_before=first.job.id)
    assert mended.job_context.aim == "fix_checks"
    brief = place.asked[-1]
    assert brief.says("the last line of the log")
    assert brief.says("lint")
    assert not brief.says("agent-fix: failure")
    again = place.repo.branches[BRANCH]
    assert again != head
    place.checks_end(place.world.add_check(place.repo, again, "lint", "failure"))
    place.told("Checks still fail after 1 round", issue=pull)
    place.has("agent-needs-human", pull)
    assert place.repo.branches[BRANCH] == again
    job = place.job(pull)
    assert job is not None
    assert job.job.id == mended.job.id


def fixes_the_check(asked: ModelQuestion) -> Reply:
    if asked.turn == 1:
        return called(("edit", {"path": "money.py", "old_text": "# Rounded up.", "new_text": "# It is rounded up."}))
    return submitted("The comment is a sentence.")


def a_branch_is_brought_up_to_its_base(place: E2ERepository) -> None:
    """Without a conflict no model is asked; what conflicts is resolved by one."""
    place.configure("iterate: {conflicts: false}\n")

    def think(asked: ModelQuestion) -> Reply:
        assert not asked.wants_a_plan
        if asked.turn == 1:
            assert asked.says("money.py")
            resolved = FIXED["money.py"].replace('"""Money."""', '"""Money in cents."""').replace("half(", "half_of(")
            checks = FIXED["test_money.py"].replace("half(", "half_of(").replace("import half", "import half_of")
            return called(
                ("write", {"path": "money.py", "content": resolved}),
                ("write", {"path": "test_money.py", "content": checks}),
            )
        return submitted("Both sides are kept.")

    place.model_answers(think)
    pull = our_pull(place)
    head = place.repo.branches[BRANCH]
    base = place.pushes("main", {"notes.txt": "new\n"})
    asked = place.says("/agent rebase", pull)
    place.told("The pull request is up to date", "was merged into the branch without conflicts", issue=pull)
    assert place.asked == []
    assert parents(place, BRANCH) == [head, base]
    place.until(lambda: "rocket" in place.reactions(asked), "🚀")
    place.says("/agent rebase", pull)
    place.told("already contains everything in `main`", issue=pull)

    merged = place.repo.branches[BRANCH]
    base = place.pushes(
        "main", {"money.py": MONEY.replace("def half", "def half_of").replace("cents // 2", "cents / 2")}
    )
    first = place.comes_to("pr_updated", issue=pull)
    place.says("/agent rebase", pull)
    place.comes_to("pr_updated", issue=pull, not_before=first.job.id)
    assert parents(place, BRANCH) == [merged, base]
    assert "def half_of" in place.file("money.py", BRANCH)
    assert "<<<<" not in place.file("money.py", BRANCH)


def ci_is_let_start(place: E2ERepository) -> None:
    pull = our_pull(place)
    head = place.repo.branches[BRANCH]
    place.says("/agent ci", pull)
    place.told("CI may start", issue=pull)
    assert parents(place, BRANCH) == [head]
    message = git(place.repo.path, "show", "-s", "--format=%B", BRANCH)
    assert "[skip ci]" not in message
    assert git(place.repo.path, "diff", "--name-only", head, BRANCH) == ""
    assert place.asked == []
    assert LABEL not in pull.labels


STORIES: tuple[Story, ...] = (
    a_persons_commit_is_never_overwritten,
    the_base_moves_while_the_agent_works,
    a_pull_request_is_closed_while_the_agent_works,
    a_forks_pull_request_gets_a_sibling,
    a_persons_pull_request_gets_a_commit,
    a_review_with_threads_is_answered,
    failing_checks_are_mended_until_the_cap,
    a_branch_is_brought_up_to_its_base,
    ci_is_let_start,
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_story(story_results: "dict[str, Future[None]]", story: Story) -> None:
    story_results[story.__name__].result()
