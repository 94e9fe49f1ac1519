"""Each effect is made once, on a GitHub emulator by a third party, with real git beside it."""

import pytest

from app.github.base import NeedsHumanAction, NewCheckRun, NoAccess, ReactionTarget
from tests.support.emulate.person import InlineComment
from tests.support.emulate.repository import BRANCH, EmulatedRepository, later, wanted
from tests.support.repositories import git

pytestmark = pytest.mark.xdist_group("emulate")


async def test_a_branch_is_pushed_once(place: EmulatedRepository) -> None:
    await place.forge.branches.fetch(place.repository.head)
    ours = place.commit("half = 0.25\n")
    assert [await place.forge.ensure_branch(BRANCH, ours) for _ in range(2)] == [BRANCH, BRANCH]
    assert place.repository.site.branches()[BRANCH] == ours, "git and emulate know it by the same id"
    assert place.repository.site.file("app/money.py", BRANCH) == b"half = 0.25\n"
    assert git(place.repository.path, "show", "-s", "--format=%ae", ours) == place.forge.bot.person.email


async def test_a_name_that_is_taken_is_left_alone(place: EmulatedRepository) -> None:
    theirs = place.repository.as_user("grace").push(BRANCH, {"mine.txt": "mine\n"})
    await place.forge.branches.fetch(place.repository.head)
    assert await place.forge.ensure_branch(BRANCH, place.commit("half = 0.25\n")) == f"{BRANCH}-2"
    assert place.repository.site.branches()[BRANCH] == theirs


async def test_our_branch_and_pull_request_are_updated(place: EmulatedRepository) -> None:
    number = await place.opened()
    first = place.repository.head_of(BRANCH)
    second = place.commit("half = 0.125\n", base=first)
    assert [await place.forge.advance_branch(BRANCH, second, first) for _ in range(2)] == [BRANCH, BRANCH]
    assert place.repository.site.pull(number).head == second
    assert git(place.repository.path, "rev-parse", f"refs/pull/{number}/head") == second


async def test_a_humans_commit_is_never_overwritten(place: EmulatedRepository) -> None:
    await place.opened()
    first = place.repository.head_of(BRANCH)
    theirs = place.repository.as_user("grace").push(BRANCH, {"mine.txt": "mine\n"})
    second = place.commit("half = 0.125\n", base=first)
    for expected in (first, theirs):
        with pytest.raises(NeedsHumanAction, match="Someone else"):
            await place.forge.advance_branch(BRANCH, second, expected)
    assert place.repository.site.branches()[BRANCH] == theirs


async def test_a_draft_is_opened_once_and_brought_up_to_date(place: EmulatedRepository) -> None:
    number = await place.opened()
    url = await place.forge.ensure_pull_request(wanted())
    assert url == f"{place.github.server_url}/{place.repository.full_name}/pull/{number}"
    await place.forge.ensure_pull_request(wanted(body="Fixes #1, better"))
    (pull,) = place.repository.site.pulls()
    assert (pull.draft, pull.body, pull.author) == (True, "Fixes #1, better", place.github.bot)


async def test_without_draft_pull_requests_the_title_says_draft(place: EmulatedRepository) -> None:
    place.repository.memory.drafts = False
    await place.opened()
    await place.forge.ensure_pull_request(wanted(body="Fixes #1, better"))
    (pull,) = place.repository.site.pulls()
    assert (pull.draft, pull.title, pull.author) == (False, "Draft: Fix totals", place.github.bot)
    assert "Fixes #1, better" in pull.body


@pytest.mark.parametrize("merged", [False, True])
async def test_a_closed_pull_request_stays_closed(place: EmulatedRepository, merged: bool) -> None:
    number = await place.opened()
    ada = place.repository.as_user("ada")
    if merged:
        ada.make_ready(number)
        ada.merge(number)
        assert place.repository.site.file("app/money.py") == b"half = 0.25\nthird = 0.3\n"
        assert not place.repository.site.issue(place.issue).open, "it said that it fixes it"
    else:
        ada.close(number)
    with pytest.raises(NeedsHumanAction, match="merged" if merged else "closed"):
        await place.forge.ensure_pull_request(wanted())
    assert len(place.repository.site.pulls()) == 1


async def test_the_status_comment_is_one_and_ours(place: EmulatedRepository) -> None:
    urls = [await place.forge.ensure_comment("j1", text) for text in ("working", "done", "done")]
    (comment,) = place.repository.site.comments(place.issue)
    assert urls == [urls[0]] * 3
    assert (comment.author, comment.body.partition("\n")[0]) == (place.github.bot, "done")
    place.repository.as_user("ada").comment(place.issue, comment.body.replace("j1", "j2"))
    await place.forge.ensure_comment("j2", "ours")
    assert len(place.repository.site.comments(place.issue)) == 3, "who copies the mark is not us"


async def test_a_comment_on_a_pull_request(place: EmulatedRepository) -> None:
    number = await place.opened()
    await place.forge.ensure_comment("j1", "working")
    assert [item.author for item in place.repository.site.comments(number)] == [place.github.bot]


async def test_reactions_are_there_once(place: EmulatedRepository) -> None:
    number = await place.opened()
    ada, site = place.repository.as_user("ada"), place.repository.site
    comment = ada.comment(place.issue, "/agent fix")
    inline = ada.comment_inline(number, InlineComment("app/money.py", 1, "/agent rename"))
    for _ in range(2):
        await place.forge.ensure_reaction(ReactionTarget(kind="issue", id=place.issue), "rocket")
        await place.forge.ensure_reaction(ReactionTarget(kind="comment", id=comment), "eyes")
        await place.forge.ensure_reaction(ReactionTarget(kind="review comment", id=inline), "confused")
    assert site.reactions(f"issues/{place.issue}") == [(place.github.bot, "rocket")]
    assert site.reactions(f"issues/comments/{comment}") == [(place.github.bot, "eyes")]
    assert site.reactions(f"pulls/comments/{inline}") == [(place.github.bot, "confused")]
    with pytest.raises(NoAccess):
        await place.forge.ensure_reaction(ReactionTarget(kind="comment", id=99_999), "eyes")


@pytest.mark.parametrize("on", ["issue", "pull request"])
async def test_labels_are_ours_to_change_and_others_stay(place: EmulatedRepository, on: str) -> None:
    if on == "pull request":
        await place.opened()
    place.repository.as_user("grace").label(place.forge.number, "bug", "Agent-Fix", "odd / name?")
    for _ in range(2):
        await place.forge.ensure_labels(add=["agent-in-progress"], remove=["agent-fix", "agent-done", "odd / name?"])
    assert place.repository.site.labels(place.forge.number) == {"bug", "agent-in-progress"}


async def test_a_check_run_is_found_again_by_its_key(place: EmulatedRepository) -> None:
    head = place.repository.head
    begun = NewCheckRun(key="j1", name="agent-fix", commit=head, title="Verifying", summary="…")
    ended = NewCheckRun(key="j1", name="agent-fix", commit=head, title="Proved", summary="🟢", conclusion="success")
    for check in (begun, begun, ended, ended):
        await place.forge.ensure_check_run(check)
    (kept,) = place.repository.site.check_runs(head)
    assert (kept.conclusion, kept.title, kept.status) == ("success", "Proved", "completed")
    assert kept.app == place.github.app_slug


async def test_an_older_jobs_check_run_is_found_below_a_newer_one(place: EmulatedRepository) -> None:
    head = place.repository.head
    first = NewCheckRun(key="j1", name="agent-fix", commit=head, title="First", summary="…")
    second = NewCheckRun(key="j2", name="agent-fix", commit=head, title="Second", summary="…")
    ended = NewCheckRun(key="j1", name="agent-fix", commit=head, title="Stopped", summary="…", conclusion="cancelled")
    for check in (first, second, ended):
        await place.forge.ensure_check_run(check)
    found = {run.title: run.conclusion for run in place.repository.site.check_runs(head)}
    assert found == {"Stopped": "cancelled", "Second": None}


async def test_a_thread_is_answered_once_and_resolved(place: EmulatedRepository) -> None:
    number = await place.opened()
    asked = place.repository.as_user("ada").comment_inline(number, InlineComment("app/money.py", 1, "why?"))
    (thread,) = await place.forge.reads.review_threads(number, later())
    for _ in range(2):
        await place.forge.ensure_reply(asked, "j1/7", "Because.")
        await place.forge.ensure_resolved(thread.id)
    question, answer = place.repository.site.inline_comments(number)
    assert (answer.author, answer.reply_to, answer.path, answer.line) == (place.github.bot, asked, "app/money.py", 1)
    assert answer.body.startswith("Because.")
    assert question.id == asked
    (thread,) = await place.forge.reads.review_threads(number, later())
    assert thread.resolved
    assert len(thread.comments) == 2
