"""Jobs that were handed over end: with a pull request or the reason for none, and with every thread answered."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.config.repository import RepoConfig
from app.core.verification import EarlierProof
from app.publish.effects import MAX_BODY, AnswerReviewThread, Effect
from app.publish.publisher import STOPPED, Publisher
from tests.support.github.fake import FakeGitHubSetup
from tests.support.github.faults import Fault
from tests.support.github.world import Issue, Pull
from tests.support.publisher_harness import PublisherHarness
from tests.support.repositories import git

LINES = "".join(f"line {number}\n" for number in range(1, 101))


async def finish(harness: PublisherHarness) -> None:
    """Everybody works on, and the clock goes on, until nothing is due any more."""
    for _ in range(4):
        await harness.everything()
        harness.fake_github.world.tick(11)


async def opened(harness: PublisherHarness, fake_github: FakeGitHubSetup, **changes: Any) -> Issue:
    """Our own pull request, for the ground's issue."""
    made = await harness.admit(config=RepoConfig(**changes))
    await harness.work(made)
    await finish(harness)
    return fake_github.repo.pulls[-1]


async def test_the_result_links_to_the_pull_request(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    made = await harness.admit()
    await harness.work(made)
    assert await harness.finalizer.finalize() == 0, "nothing is published yet"
    await harness.publish()
    assert await harness.finalizer.finalize() == 1
    state, result = harness.ended(made.id)
    assert state == result.exit_status == "pr_opened"
    assert result.url.endswith(f"/pull/{fake_github.repo.pulls[0].number}")
    assert harness.unlearned == []
    assert harness.job_queries.active(fake_github.repo.id, fake_github.issue.number) is None
    assert await harness.finalizer.finalize() == 0


async def test_a_job_reports_its_own_branch_if_the_name_was_taken(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made = await harness.admit()
    fake_github.world.push_as_human(fake_github.repo, made.branch, {"mine.txt": "mine\n"})
    await harness.work(made)
    await finish(harness)
    _, result = harness.ended(made.id)
    assert result.branch == f"{made.branch}-2"
    assert fake_github.repo.pulls[0].pull is not None
    assert fake_github.repo.pulls[0].pull.head == result.branch


async def test_configured_labels_and_reviewers_are_added(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    for login in ("grace", "alan"):
        fake_github.repo.collaborators[fake_github.world.add_user(login).id] = "write"
    fake_github.installation.permissions["members"] = "read"
    pull = await opened(harness, fake_github, labels=("bot", "Bug"), reviewers=("grace", "acme/core"))
    assert [name for name in pull.labels if not name.startswith("agent-")] == ["bot", "Bug"]
    assert pull.asked == ["grace", "team/core"]
    assert pull.pull is not None
    assert pull.pull.draft


async def test_one_invalid_reviewer_does_not_block_others(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    fake_github.repo.collaborators[fake_github.world.add_user("grace").id] = "write"
    pull = await opened(harness, fake_github, reviewers=("nobody", "grace"))
    assert pull.asked == ["grace"]
    assert pull.body.count("No review was requested from nobody. GitHub answered 422") == 1
    state, _ = harness.ended("j1")
    assert state == "pr_opened"


async def test_a_team_that_cannot_be_asked_is_told_in_the_draft(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    pull = await opened(harness, fake_github, reviewers=("acme/core",))
    assert pull.body.count("No review was requested from") == 1
    assert "acme/core" in pull.body
    assert "Members: read" in pull.body


def close_pull(fake_github: FakeGitHubSetup, branch: str) -> None:
    fake_github.world.open_issue(
        fake_github.repo, fake_github.world.bot, "Old", pull=Pull(branch, "main", draft=True)
    ).state = "closed"


def protect(fake_github: FakeGitHubSetup, branch: str) -> None:
    fake_github.repo.protect(branch)


def suspend(fake_github: FakeGitHubSetup, branch: str) -> None:
    fake_github.installation.suspended = True


def close_issue(fake_github: FakeGitHubSetup, branch: str) -> None:
    fake_github.issue.state = "closed"


def archive(fake_github: FakeGitHubSetup, branch: str) -> None:
    fake_github.repo.archived = True


@pytest.mark.parametrize(
    ("happens", "state", "words"),
    [
        (close_pull, "error", "was closed; agent-fix does not reopen it"),
        (protect, "error", "GH006"),
        (suspend, "no_access", "suspended"),
        (close_issue, "stopped", "The issue has been closed"),
        (archive, "no_access", "archived"),
    ],
)
async def test_a_refused_publication_ends_the_job_with_its_reason(
    harness: PublisherHarness,
    fake_github: FakeGitHubSetup,
    happens: Callable[[FakeGitHubSetup, str], None],
    state: str,
    words: str,
) -> None:
    """R19, R22: one refusal, one reason, no endless trying."""
    made = await harness.admit()
    await harness.work(made)
    happens(fake_github, made.branch)
    await finish(harness)
    ended, result = harness.ended(made.id)
    assert (ended, result.exit_status) == (state, state)
    assert words in result.reason
    assert harness.unlearned == [(fake_github.repo.id, made.id)], "what was not published teaches nothing"
    row = harness.job_with_context(made.id).row
    assert row.reason == result.reason
    assert result.patch
    pushed = made.branch if made.branch in fake_github.repo.branches else ""
    assert (result.branch, bool(result.compare)) == (pushed, bool(pushed))
    if state == "error":
        assert f"`agent-fix jobs show {made.id} --patch` on the server" in harness.comments()[0]
        assert "### 💥" in harness.comments()[0]
        assert "agent-needs-human" in fake_github.issue.labels
    before = len(fake_github.github.calls)
    fake_github.world.tick(3_600)
    await harness.publish()
    assert len(fake_github.github.calls) == before, "nothing is tried again"


MAY_NOT_OPEN = '{"message": "GitHub Actions is not permitted to create or approve pull requests."}'
"""GitHub's words where the switch is off: peter-evans/create-pull-request#1175, #3979."""


async def test_a_refused_pull_request_leaves_a_link_that_opens_it(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made = await harness.admit()
    fake_github.world.push_as_human(fake_github.repo, made.branch, {"mine.txt": "mine\n"})
    await harness.work(made)
    fake_github.github.faults.append(Fault("POST /repos/ada/sample/pulls", 403, MAY_NOT_OPEN))
    await finish(harness)
    state, result = harness.ended(made.id)
    assert (state, result.branch) == ("no_access", f"{made.branch}-2")
    assert result.compare.endswith(f"/ada/sample/compare/main...{made.branch}-2?expand=1")
    (told,) = harness.comments()
    assert f"[Open a pull request for it]({result.compare})" in told
    assert f"`{made.branch}-2`" in told
    assert "organisation" in told
    assert f"agent-fix jobs show {made.id} --patch" in told


async def test_a_stop_takes_back_what_nobody_began(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    """R33: what is acknowledged as stopped is not pushed afterwards."""
    made = await harness.admit()
    await harness.work(made)
    harness.queue.stop(made.id, "ada stopped it.")
    assert await harness.finalizer.finalize() == 1
    state, result = harness.ended(made.id)
    assert (state, result.reason) == ("stopped", STOPPED)
    await finish(harness)
    assert fake_github.repo.pushes == []
    assert "### ⏹️ Stopped" in harness.comments()[0]


async def test_a_stop_that_comes_while_it_is_pushed_waits_for_how_that_ends(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made = await harness.admit()
    await harness.work(made)
    claim = harness.outbox.claim("another publisher")
    assert claim is not None
    harness.queue.stop(made.id, "ada stopped it.")
    assert await harness.finalizer.finalize() == 0, "it may be on GitHub already"
    fake_github.world.tick(301)
    await harness.publish()
    assert await harness.finalizer.finalize() == 1
    assert harness.ended(made.id)[0] == "stopped"
    assert fake_github.repo.pushes == []


@pytest.mark.parametrize("claimed", [False, True], ids=["waits", "claimed by a publisher that died"])
async def test_a_stop_after_the_push_leaves_a_link_to_the_branch(
    harness: PublisherHarness, fake_github: FakeGitHubSetup, claimed: bool
) -> None:
    made = await harness.admit()
    await harness.work(made)
    fake_github.github.faults.append(Fault("POST /repos/ada/sample/pulls", times=1))
    await harness.publish()
    assert made.branch in fake_github.repo.branches
    fake_github.world.tick(11)
    if claimed:
        assert harness.outbox.claim("another publisher", kinds=["open_draft_pr"]) is not None
    harness.queue.stop(made.id, "ada stopped it.")
    fake_github.world.tick(301 if claimed else 0)
    await finish(harness)
    state, result = harness.ended(made.id)
    assert (state, result.branch) == ("stopped", made.branch)
    assert result.reason != STOPPED
    assert f"`{made.branch}`. [Open a pull request for it]({result.compare})" in harness.comments()[0]
    assert fake_github.repo.pulls == []


async def test_every_moment_of_a_stop_ends_without_a_push_after_it(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    """R33 on both sides of each step: stopped means not pushed, pushed means opened."""
    for moment in range(6):
        branch = f"agent-fix/moment-{moment}"
        made = await harness.admit(job_changes={"branch": branch})
        steps: list[Callable[[], Awaitable[object]]] = [
            harness.status_updater.post_due,
            harness.publisher.publish_next,
            harness.finalizer.finalize,
            harness.publish,
            harness.finalizer.finalize,
        ]
        await harness.work(made)
        for number, step in enumerate(steps):
            if number == moment:
                harness.queue.stop(made.id, "ada stopped it.")
            await step()
        await finish(harness)
        state, _ = harness.ended(made.id)
        assert (state == "stopped") != (branch in fake_github.repo.branches), (moment, state)


async def test_a_temporary_failure_is_retried(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    made = await harness.admit()
    await harness.work(made)
    fake_github.github.faults.append(Fault("POST /repos/ada/sample/pulls", times=1))
    await harness.publish()
    assert await harness.finalizer.finalize() == 0
    await finish(harness)
    assert harness.ended(made.id)[0] == "pr_opened"
    assert len(fake_github.repo.pulls) == 1


async def follow_up(
    harness: PublisherHarness,
    fake_github: FakeGitHubSetup,
    pull: Issue,
    files: dict[str, str | bytes | None],
    **changes: object,
) -> str:
    assert pull.pull is not None
    head = fake_github.repo.branches[pull.pull.head]
    made = await harness.admit(
        base=head,
        number=pull.number,
        aim="follow_up",
        publish_target="same_branch",
        pull=pull.number,
        expected=head,
        job_changes={"branch": pull.pull.head, "plan_mode": "none"},
        **changes,
    )
    await harness.work(made, files)
    await finish(harness)
    return made.id


async def test_a_follow_up_updates_branch_and_description(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    pull = await opened(harness, fake_github)
    opening, _, foot = pull.body.rpartition("\n---\n\n<sub>")
    opening, _, _ = opening.partition("<!-- agent-fix:verdict -->")
    assert pull.pull is not None
    before = fake_github.repo.branches[pull.pull.head]
    name = await follow_up(harness, fake_github, pull, {"app/money.py": "half = 0.125\n"})
    state, result = harness.ended(name)
    assert state == "pr_updated", result.reason
    assert result.url.endswith(f"/pull/{pull.number}")
    assert git(fake_github.repo.path, "rev-list", pull.pull.head).splitlines()[:2] == [result.commit, before]
    assert pull.body.startswith(opening)
    assert foot in pull.body
    assert f"newest commit `{result.commit[:10]}`" in pull.body
    assert f"## Follow-up in {result.commit}" in pull.body
    again = await follow_up(harness, fake_github, pull, {"app/money.py": "half = 0.0\n"})
    assert harness.ended(again)[0] == "pr_updated"
    assert pull.body.count("## Follow-up in ") == 2
    assert len(fake_github.repo.pulls) == 1
    assert "### 🚀 The pull request is up to date" in harness.comments(pull.number)[-1]


async def test_a_follow_up_knows_what_the_newest_commit_was_proved_by(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    pull = await opened(harness, fake_github)
    _, first = harness.ended("j1")
    name = await follow_up(harness, fake_github, pull, {"app/money.py": "half = 0.125\n"})
    where = harness.job_with_context(name)
    known = harness.job_queries.earlier_proof(where.job_context, where.job.branch)
    assert known is not None
    assert known.commit == harness.ended(name)[1].commit != first.commit
    assert known.verdict == "proved"
    elsewhere = where.job_context.model_copy(update={"pull": 4_711})
    unknown = harness.job_queries.earlier_proof(elsewhere, where.job.branch)
    assert unknown == EarlierProof(commit="", verdict="tested")
    assert harness.job_queries.earlier_proof(elsewhere, "a-persons-branch") is None
    assert harness.job_queries.earlier_proof(harness.job_with_context("j1").job_context, where.job.branch) is None


async def test_a_description_with_many_follow_ups_stays_short_enough(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    pull = await opened(harness, fake_github)
    for number in range(3):
        pull.body = pull.body.replace("## Verification", f"{'x' * 15_000}\n\n## Verification", 1)
        await follow_up(harness, fake_github, pull, {"app/money.py": f"half = {number}\n"})
    assert len(pull.body) <= MAX_BODY


async def test_a_persons_pull_request_keeps_its_text_and_gets_our_commit(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    theirs = fake_github.world.push_as_human(fake_github.repo, "feature", {"a.py": "x = 1\n"})
    pull = fake_github.world.open_issue(
        fake_github.repo, fake_github.owner, "Mine", "My words.", pull=Pull("feature", "main", draft=False)
    )
    name = await follow_up(harness, fake_github, pull, {"a.py": "x = 2\n"})
    assert harness.ended(name)[0] == "pr_updated"
    assert git(fake_github.repo.path, "rev-list", "feature").splitlines()[1] == theirs
    assert pull.body == "My words."


async def test_a_person_who_pushes_meanwhile_is_never_overwritten(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    pull = await opened(harness, fake_github)
    assert pull.pull is not None
    head = fake_github.repo.branches[pull.pull.head]
    made = await harness.admit(
        base=head, number=pull.number, aim="follow_up", publish_target="same_branch", pull=pull.number, expected=head,
        job_changes={"branch": pull.pull.head},
    )  # fmt: skip
    await harness.work(made, {"app/money.py": "half = 0.125\n"})
    theirs = fake_github.world.push_as_human(fake_github.repo, pull.pull.head, {"mine.txt": "mine\n"})
    await finish(harness)
    state, result = harness.ended(made.id)
    assert state == "error"
    assert "Someone else has pushed" in result.reason
    assert not result.unpublished, "pushing it again would be refused again: a retry starts from their commit"
    assert not harness.queue.publish_again(made.id)
    assert fake_github.repo.branches[pull.pull.head] == theirs


@pytest.mark.parametrize("where", ["fork", "default", "other", "gone", "closed"])
async def test_a_branch_that_is_not_the_pull_requests_is_not_pushed(
    harness: PublisherHarness, fake_github: FakeGitHubSetup, where: str
) -> None:
    head = fake_github.world.push_as_human(fake_github.repo, "feature", {"a.py": "x = 1\n"})
    pull = fake_github.world.open_issue(
        fake_github.repo, fake_github.owner, "Mine", pull=Pull("feature", "main", draft=False)
    )
    assert pull.pull is not None
    branch = "main" if where == "default" else "feature"
    head = fake_github.repo.branches[branch]
    made = await harness.admit(
        base=head, number=pull.number, aim="follow_up", publish_target="same_branch", pull=pull.number, expected=head,
        job_changes={"branch": branch},
    )  # fmt: skip
    await harness.work(made, {"a.py": "x = 2\n"})
    match where:
        case "fork":
            pull.pull.fork = 99
        case "other":
            pull.pull.head = "main"
        case "gone":
            del fake_github.repo.issues[pull.number]
        case "closed":
            pull.state = "closed"
    await finish(harness)
    assert harness.ended(made.id)[0] in {"error", "stopped", "no_access"}
    assert fake_github.repo.branches[branch] == head
    assert fake_github.repo.pushes == []


async def test_threads_are_answered_and_only_what_was_changed_is_resolved(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    head = fake_github.world.push_as_human(fake_github.repo, "feature", {"a.py": LINES, "b.py": LINES})
    pull = fake_github.world.open_issue(
        fake_github.repo, fake_github.owner, "Mine", pull=Pull("feature", "main", draft=False)
    )
    places = {"near": ("a.py", 12), "far": ("a.py", 80), "elsewhere": ("b.py", 10)}
    threads = {
        name: fake_github.world.start_thread(
            fake_github.repo, pull, fake_github.owner, path=path, line=line, body="why?"
        )
        for name, (path, line) in places.items()
    }
    nowhere = fake_github.world.start_thread(
        fake_github.repo, pull, fake_github.owner, path="a.py", line=1, body="outdated"
    )
    refs = [
        {"comment": thread.comments[0], "thread": thread.id, "path": path, "start": line, "end": line}
        for thread, (path, line) in zip(threads.values(), places.values(), strict=True)
    ]
    refs.append({"comment": nowhere.comments[0], "thread": nowhere.id, "path": "a.py"})
    changed = LINES.replace("line 10\n", "line ten\n")
    name = await follow_up(harness, fake_github, pull, {"a.py": changed}, threads=refs)
    _, result = harness.ended(name)
    assert {name: thread.resolved for name, thread in threads.items()} == {
        "near": True,
        "far": False,
        "elsewhere": False,
    }
    assert not nowhere.resolved
    said = {name: fake_github.repo.comments[thread.comments[1]].body for name, thread in threads.items()}
    assert said["near"].startswith(f"Changed in {result.commit}.\n\n> Half cents go up.")
    assert "but nothing near these lines" in said["far"]
    assert "does not change `b.py`" in said["elsewhere"]
    assert all(len(thread.comments) == 2 for thread in threads.values())
    assert head != result.commit


async def test_an_answer_stands_where_resolving_is_refused(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    pull = fake_github.world.open_issue(
        fake_github.repo, fake_github.owner, "Fix", pull=Pull("main", "main", draft=True)
    )
    thread = fake_github.world.start_thread(
        fake_github.repo, pull, fake_github.owner, path="app/money.py", line=1, body="why?"
    )
    refusal = '{"data": null, "errors": [{"type": "FORBIDDEN", "message": "Resource not accessible by integration"}]}'
    made = await harness.admit(number=pull.number, aim="follow_up", publish_target="same_branch", pull=pull.number)
    answer = AnswerReviewThread(comment=thread.comments[0], body="Because.", thread=thread.id)

    class RefusesToResolve(Fault):
        def hits(self, method: str, path: str) -> bool:
            return path == "/graphql" and len(thread.comments) > 1

    fake_github.github.faults.append(RefusesToResolve("", 200, body=refusal))
    key = harness.outbox.add(made.id, harness.job_with_context(made.id).row.epoch, harness.place(pull.number), answer)
    await harness.publish()
    standing = harness.effect_status(key)
    assert (standing.state, standing.reason) == ("done", "")
    assert standing.receipt is not None
    assert standing.receipt.url.endswith(f"#discussion_r{thread.comments[1]}")
    assert not thread.resolved


async def test_a_fork_gets_a_separate_pull_request(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    pull = fake_github.world.open_issue(
        fake_github.repo, fake_github.owner, "Theirs", pull=Pull("topic", "main", draft=False, fork=99)
    )
    thread = fake_github.world.start_thread(
        fake_github.repo, pull, fake_github.owner, path="app/money.py", line=1, body="why?"
    )
    refs = [{"comment": thread.comments[0], "thread": thread.id, "path": "app/money.py", "start": 1, "end": 1}]
    made = await harness.admit(
        number=pull.number, aim="follow_up", publish_target="sibling", pull=pull.number, threads=refs
    )
    await harness.work(made)
    await finish(harness)
    state, result = harness.ended(made.id)
    assert state == "pr_opened"
    assert result.url in fake_github.repo.comments[thread.comments[1]].body
    assert not thread.resolved


async def test_a_crash_before_the_final_state_adds_the_same_effects(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    fake_github.repo.collaborators[fake_github.world.add_user("grace").id] = "write"
    made = await harness.admit(config=RepoConfig(labels=("bot",), reviewers=("grace",)))
    await harness.work(made)
    await harness.publish()
    await harness.finalizer.finalize()
    harness.store.enter(made.id, "publishing")
    await finish(harness)
    kinds = [standing.effect.kind for standing in harness.outbox.of(made.id)]
    assert kinds.count("labels_and_review") == 1
    assert not [each for each in harness.outbox.of(made.id) if isinstance(each.effect, AnswerReviewThread)]
    assert harness.ended(made.id)[0] == "pr_opened"


async def test_a_change_that_github_refused_is_published_later_without_other_work(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made = await harness.admit()
    fake_github.repo.protect(made.branch)
    await harness.work(made)
    await finish(harness)
    state, result = harness.ended(made.id)
    assert (state, bool(result.diff)) == ("error", True)
    assert "The change was saved" in harness.comments()[0]
    assert "`/agent retry` publishes it" in harness.comments()[0]
    fake_github.repo.protect("another")
    assert harness.queue.publish_again(made.id)
    assert not harness.queue.publish_again(made.id), "it is being published"
    await finish(harness)
    state, result = harness.ended(made.id)
    assert state == result.exit_status == "pr_opened"
    assert result.url.endswith(f"/pull/{fake_github.repo.pulls[0].number}")
    assert (result.branch, result.hint, result.error_code) == (made.branch, "", None)
    assert not harness.queue.publish_again(made.id), "it is published"


async def test_an_error_of_our_own_is_told_after_some_tries(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    async def grant(*_: object) -> Effect:
        raise KeyError("a bug")

    harness.publisher = Publisher(harness.outbox, harness.open, grant, "p1")
    made = await harness.admit()
    await harness.work(made)
    for _ in range(12):
        await harness.everything()
        fake_github.world.tick(130)
    state, result = harness.ended(made.id)
    assert state == "error"
    assert "KeyError: 'a bug'" in result.reason
    assert result.diff
