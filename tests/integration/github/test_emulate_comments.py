"""What else the publisher reads: new comments, events, editors, and which pull request closes which issue."""

from datetime import UTC, datetime

import pytest

from app.github.auth import AppRegistration
from app.github.base import NeedsHumanAction
from app.github.reader import RepositoryReader
from tests.support.emulate.person import InlineComment
from tests.support.emulate.repository import BRANCH, EmulatedRepository, later

pytestmark = pytest.mark.xdist_group("emulate")


async def test_one_comment_by_its_number(place: EmulatedRepository) -> None:
    talk, ada = RepositoryReader(place.repository_api), place.repository.as_user("ada")
    number = ada.comment(place.issue, "/agent fix")
    found = await talk.comment(number)
    assert found is not None
    assert (found.id, found.number, found.author, found.body) == (number, place.issue, ada.number, "/agent fix")
    assert (found.kind, found.app) == ("User", None)
    ada.delete_comment(number)
    assert await talk.comment(number) is None


async def test_our_comment_carries_our_apps_id(place: EmulatedRepository) -> None:
    await place.forge.ensure_comment("j1", "working")
    (comment,) = place.repository.site.comments(place.issue)
    found = await RepositoryReader(place.repository_api).comment(comment.id)
    assert found is not None
    assert (found.kind, found.app) == ("Bot", place.github.app_id)


async def test_the_last_editor_of_a_comment_is_known(place: EmulatedRepository) -> None:
    talk = RepositoryReader(place.repository_api)
    await place.forge.ensure_comment("j1", "the plan")
    (comment,) = place.repository.site.comments(place.issue)
    found = await talk.comment_edit(comment.id)
    assert found is not None
    assert (found.editor_name, found.edited_at) == ("", None)
    grace = place.repository.as_user("grace")
    grace.edit_comment(comment.id, "a better plan")
    found = await talk.comment_edit(comment.id)
    assert found is not None
    assert (found.body, found.editor, found.editor_name) == ("a better plan", grace.number, "grace")
    assert found.edited_at is not None
    assert found.edited_at <= later()
    assert await talk.comment_edit(99_999) is None


async def test_everything_that_was_said_since(place: EmulatedRepository) -> None:
    number, talk = await place.opened(), RepositoryReader(place.repository_api)
    ada = place.repository.as_user("ada")
    begun = datetime.now(UTC).replace(microsecond=0)
    on_issue, on_pull = ada.comment(place.issue, "one"), ada.comment(number, "two")
    first = ada.comment_inline(number, InlineComment("app/money.py", 2, "three", 1))
    second = ada.reply(number, first, "four")
    said = {item.id: item.number for item in await talk.comments_since(begun)}
    assert said == {on_issue: place.issue, on_pull: number}
    inline = {item.id: item for item in await talk.inline_comments_since(begun)}
    assert inline.keys() == {first, second}
    assert (inline[second].thread.comment, inline[second].number, inline[second].body) == (first, number, "four")
    thread = inline[first].thread
    assert (thread.start, thread.end, thread.path) == (1, 2, "app/money.py")
    assert thread.hunk.endswith("third = 0.3")
    assert await talk.inline_comment(first) == inline[first]
    assert await talk.comments_since(later()) == ()
    assert await talk.inline_comments_since(later()) == ()


async def test_a_review_and_the_comments_that_belong_to_it(place: EmulatedRepository) -> None:
    number, talk = await place.opened(), RepositoryReader(place.repository_api)
    ada = place.repository.as_user("ada")
    review = ada.review(number, "/agent please", comments=[InlineComment("app/money.py", 1, "why?")])
    found = await talk.review(number, review)
    assert found is not None
    assert (found.author, found.state, found.body) == (ada.number, "commented", "/agent please")
    (comment,) = place.repository.site.inline_comments(number)
    inline = await talk.inline_comment(comment.id)
    assert inline is not None
    assert inline.review == review
    (thread,) = await place.forge.reads.review_threads(number, later())
    assert thread.root == comment.id


@pytest.mark.parametrize("on", ["issue", "pull request"])
async def test_events_are_listed_in_order(place: EmulatedRepository, on: str) -> None:
    number = place.issue if on == "issue" else await place.opened()
    grace = place.repository.as_user("grace")
    grace.label(number, "agent-fix")
    grace.unlabel(number, "agent-fix")
    grace.close(number)
    grace.reopen(number)
    found = await RepositoryReader(place.repository_api).issue_events(number)
    told = [(item.event, item.label, item.actor.id) for item in found if item.event != "opened"]
    me = grace.number
    assert told == [
        ("labeled", "agent-fix", me),
        ("unlabeled", "agent-fix", me),
        ("closed", "", me),
        ("reopened", "", me),
    ]


async def test_pull_requests_that_will_close_an_issue(place: EmulatedRepository) -> None:
    await place.opened()
    grace = place.repository.as_user("grace")
    grace.push("theirs", {"a.txt": "a\n"})
    theirs = grace.open_pull("theirs", "Mine", f"This resolves #{place.issue}.")
    grace.push("other", {"b.txt": "b\n"})
    grace.open_pull("other", "Other", f"See #{place.issue}, closes #{place.issue}1.")
    pulls = RepositoryReader(place.repository_api)
    bot = int(place.forge.bot.person.email.partition("+")[0])
    assert {item.author for item in await pulls.linked_pull_requests(place.issue)} == {grace.number, bot}
    grace.close(theirs)
    assert [item.author for item in await pulls.linked_pull_requests(place.issue)] == [bot]
    assert {item.head_branch for item in await pulls.open_pull_requests()} == {BRANCH, "other"}
    assert await pulls.open_pull_requests(base="other") == ()


async def test_the_commits_of_a_pull_request_and_where_it_parted(place: EmulatedRepository) -> None:
    number = await place.opened()
    base, first = place.repository.head, place.repository.head_of(BRANCH)
    second = place.repository.as_user("grace").push(BRANCH, {"c.txt": "c\n"}, "theirs")
    place.repository.as_user("ada").push("main", {"d.txt": "d\n"})
    pulls = RepositoryReader(place.repository_api)
    assert [item.id for item in await pulls.commits(number)] == [first, second]
    assert await pulls.merge_base(place.repository.head, second) == base


async def test_only_our_pull_requests_get_labels_and_edits(place: EmulatedRepository) -> None:
    number, site = await place.opened(), place.repository.site
    forge = place.forge
    forge.number = number
    for _ in range(2):
        await forge.ensure_labels_and_reviewers(BRANCH, ["bug"], ["grace"])
        await forge.amend_pull_request(lambda body: f"{body.removesuffix(' (more)')} (more)")
    assert site.labels(number) == {"bug"}
    assert site.pull(number).body == "Fixes #1 (more)"
    assert site.pull(number).reviewers == ("grace",)
    grace = place.repository.as_user("grace")
    grace.push("theirs", {"a.txt": "a\n"})
    theirs = grace.open_pull("theirs", "Mine")
    forge.number = theirs
    with pytest.raises(NeedsHumanAction, match="not agent-fix's own"):
        await forge.amend_pull_request(lambda body: "ours now")


async def test_installations_list_their_repositories(place: EmulatedRepository) -> None:
    registration = AppRegistration(place.app)
    (found,) = await registration.installations()
    assert (found.id, found.suspended_at) == (place.github.installation_id, None)
    opened = {facts.id: facts.name for facts in await registration.repositories(found.id)}
    assert opened[place.repository.id] == place.repository.name
    facts = await RepositoryReader(place.repository_api).repository_by_id()
    assert (facts.id, facts.name) == (place.repository.id, place.repository.name)
    assert await RepositoryReader(place.repository_api).installation() == place.github.installation_id


async def test_another_app_by_its_name(place: EmulatedRepository) -> None:
    assert await RepositoryReader(place.repository_api).application("github-actions") == 15_368
    assert await RepositoryReader(place.repository_api).application("no-such-app") is None
