"""A job that was handed over ends: with its pull request, with why there is none, and with every thread answered."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from app.config import RepoConfig
from app.publish.intent import MAX_BODY, AnswerThread
from app.publish.settling import STOPPED
from tests.fakes.github.faults import Fault
from tests.fakes.github.ground import Ground, make_ground
from tests.fakes.github.world import Issue, Pull
from tests.publishing import Desk, desk_at
from tests.repositories import git

LINES = "".join(f"line {number}\n" for number in range(1, 101))


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return make_ground(tmp_path)


@pytest.fixture
async def desk(ground: Ground, tmp_path: Path) -> AsyncIterator[Desk]:
    async with desk_at(ground, tmp_path) as desk:
        yield desk


async def finish(desk: Desk) -> None:
    """Everybody works on, and the clock goes on, until nothing is due any more."""
    for _ in range(4):
        await desk.everything()
        desk.ground.world.tick(11)


async def opened(desk: Desk, ground: Ground, **changes: Any) -> Issue:
    """Our own pull request, for the ground's issue."""
    made = await desk.admit(config=RepoConfig(**changes))
    await desk.work(made)
    await finish(desk)
    return ground.repo.pulls[-1]


async def test_what_was_opened_is_told_with_its_address(desk: Desk, ground: Ground) -> None:
    made = await desk.admit()
    await desk.work(made)
    assert await desk.settling.settle() == 0, "nothing is published yet"
    await desk.publish()
    assert await desk.settling.settle() == 1
    state, result = desk.ended(made.id)
    assert state == result.exit_status == "pr_opened"
    assert result.url.endswith(f"/pull/{ground.repo.pulls[0].number}")
    assert desk.unlearned == []
    assert desk.roster.living(ground.repo.id, ground.issue.number) is None
    assert await desk.settling.settle() == 0


async def test_a_branch_whose_name_was_taken_is_told_by_its_own(desk: Desk, ground: Ground) -> None:
    made = await desk.admit()
    ground.world.push_as_human(ground.repo, made.branch, {"mine.txt": "mine\n"})
    await desk.work(made)
    await finish(desk)
    _, result = desk.ended(made.id)
    assert result.branch == f"{made.branch}-2"
    assert ground.repo.pulls[0].pull is not None
    assert ground.repo.pulls[0].pull.head == result.branch


async def test_the_house_labels_it_and_asks_for_reviews(desk: Desk, ground: Ground) -> None:
    for login in ("grace", "alan"):
        ground.repo.collaborators[ground.world.add_user(login).id] = "write"
    pull = await opened(desk, ground, labels=("bot", "Bug"), reviewers=("grace", "acme/core"))
    assert [name for name in pull.labels if not name.startswith("agent-")] == ["bot", "Bug"]
    assert pull.asked == ["grace", "team/core"]
    assert pull.pull is not None
    assert pull.pull.draft


async def test_a_reviewer_who_cannot_be_asked_hinders_no_other(desk: Desk, ground: Ground) -> None:
    ground.repo.collaborators[ground.world.add_user("grace").id] = "write"
    pull = await opened(desk, ground, reviewers=("nobody", "grace"))
    assert pull.asked == ["grace"]
    state, _ = desk.ended("j1")
    assert state == "pr_opened"


def close_pull(ground: Ground, branch: str) -> None:
    ground.world.open_issue(
        ground.repo, ground.world.bot, "Old", pull=Pull(branch, "main", draft=True)
    ).state = "closed"


def protect(ground: Ground, branch: str) -> None:
    ground.repo.protect(branch)


def suspend(ground: Ground, branch: str) -> None:
    ground.installation.suspended = True


def close_issue(ground: Ground, branch: str) -> None:
    ground.issue.state = "closed"


def archive(ground: Ground, branch: str) -> None:
    ground.repo.archived = True


@pytest.mark.parametrize(
    ("happens", "state", "words"),
    [
        (close_pull, "error", "was closed; it is not opened again"),
        (protect, "error", "GH006"),
        (suspend, "no_access", "suspended"),
        (close_issue, "stopped", "The issue was closed meanwhile"),
        (archive, "no_access", "archived"),
    ],
)
async def test_what_cannot_be_published_ends_visibly_and_the_work_is_kept(
    desk: Desk, ground: Ground, happens: Callable[[Ground, str], None], state: str, words: str
) -> None:
    """R19, R22: one refusal, one reason, no endless trying."""
    made = await desk.admit()
    await desk.work(made)
    happens(ground, made.branch)
    await finish(desk)
    ended, result = desk.ended(made.id)
    assert (ended, result.exit_status) == (state, state)
    assert words in result.reason
    assert desk.unlearned == [(ground.repo.id, made.id)], "what was not published teaches nothing"
    row = desk.commissioned(made.id).row
    assert row.reason == result.reason
    assert result.patch
    pushed = made.branch if made.branch in ground.repo.branches else ""
    assert (result.branch, bool(result.compare)) == (pushed, bool(pushed))
    if state == "error":
        assert f"`agent-fix jobs show {made.id} --patch` on the server" in desk.comments()[0]
        assert "### 💥" in desk.comments()[0]
        assert "agent-needs-human" in ground.issue.labels
    before = len(ground.github.calls)
    ground.world.tick(3_600)
    await desk.publish()
    assert len(ground.github.calls) == before, "nothing is tried again"


MAY_NOT_OPEN = '{"message": "GitHub Actions is not permitted to create or approve pull requests."}'
"""GitHub's words where the switch is off: peter-evans/create-pull-request#1175, #3979."""


async def test_where_the_branch_is_there_and_the_pull_request_refused_people_open_it_with_one_click(
    desk: Desk, ground: Ground
) -> None:
    made = await desk.admit()
    ground.world.push_as_human(ground.repo, made.branch, {"mine.txt": "mine\n"})
    await desk.work(made)
    ground.github.faults.append(Fault("POST /repos/ada/sample/pulls", 403, MAY_NOT_OPEN))
    await finish(desk)
    state, result = desk.ended(made.id)
    assert (state, result.branch) == ("no_access", f"{made.branch}-2")
    assert result.compare.endswith(f"/ada/sample/compare/main...{made.branch}-2?expand=1")
    (told,) = desk.comments()
    assert f"[open its pull request]({result.compare})" in told
    assert f"`{made.branch}-2`" in told
    assert "organisation" in told
    assert f"agent-fix jobs show {made.id} --patch" in told


async def test_a_stop_takes_back_what_nobody_began(desk: Desk, ground: Ground) -> None:
    """R33: what is acknowledged as stopped is not pushed afterwards."""
    made = await desk.admit()
    await desk.work(made)
    desk.queue.stop(made.id, "ada stopped it.")
    assert await desk.settling.settle() == 1
    state, result = desk.ended(made.id)
    assert (state, result.reason) == ("stopped", STOPPED)
    await finish(desk)
    assert ground.repo.pushes == []
    assert "### ⏹️ Stopped" in desk.comments()[0]


async def test_a_stop_that_comes_while_it_is_pushed_waits_for_how_that_ends(desk: Desk, ground: Ground) -> None:
    made = await desk.admit()
    await desk.work(made)
    claim = desk.intents.claim("another publisher")
    assert claim is not None
    desk.queue.stop(made.id, "ada stopped it.")
    assert await desk.settling.settle() == 0, "it may be on GitHub already"
    ground.world.tick(301)
    await desk.publish()
    assert await desk.settling.settle() == 1
    assert desk.ended(made.id)[0] == "stopped"
    assert ground.repo.pushes == []


async def test_every_moment_of_a_stop_ends_without_a_push_after_it(desk: Desk, ground: Ground) -> None:
    """R33 on both sides of each step: stopped means not pushed, pushed means opened."""
    for moment in range(6):
        branch = f"agent-fix/moment-{moment}"
        made = await desk.admit(job_changes={"branch": branch})
        steps = [
            desk.herald.tell,
            desk.publisher.publish_next,
            desk.settling.settle,
            desk.publish,
            desk.settling.settle,
        ]
        await desk.work(made)
        for number, step in enumerate(steps):
            if number == moment:
                desk.queue.stop(made.id, "ada stopped it.")
            await step()
        await finish(desk)
        state, _ = desk.ended(made.id)
        assert (state == "stopped") != (branch in ground.repo.branches), (moment, state)


async def test_a_passing_trouble_is_no_end(desk: Desk, ground: Ground) -> None:
    made = await desk.admit()
    await desk.work(made)
    ground.github.faults.append(Fault("POST /repos/ada/sample/pulls", times=1))
    await desk.publish()
    assert await desk.settling.settle() == 0
    await finish(desk)
    assert desk.ended(made.id)[0] == "pr_opened"
    assert len(ground.repo.pulls) == 1


async def follow_up(
    desk: Desk, ground: Ground, pull: Issue, files: dict[str, str | bytes | None], **changes: object
) -> str:
    assert pull.pull is not None
    head = ground.repo.branches[pull.pull.head]
    made = await desk.admit(
        base=head,
        number=pull.number,
        aim="follow_up",
        goal="same_branch",
        pull=pull.number,
        expected=head,
        job_changes={"branch": pull.pull.head, "plan_mode": "none"},
        **changes,
    )
    await desk.work(made, files)
    await finish(desk)
    return made.id


async def test_a_follow_up_moves_our_branch_and_is_told_in_the_description(desk: Desk, ground: Ground) -> None:
    pull = await opened(desk, ground)
    first = pull.body
    assert pull.pull is not None
    before = ground.repo.branches[pull.pull.head]
    name = await follow_up(desk, ground, pull, {"app/money.py": "half = 0.125\n"})
    state, result = desk.ended(name)
    assert state == "pr_updated", result.reason
    assert result.url.endswith(f"/pull/{pull.number}")
    assert git(ground.repo.path, "rev-list", pull.pull.head).splitlines()[:2] == [result.commit, before]
    head, _, foot = first.rpartition("\n---\n\n<sub>")
    assert pull.body.startswith(head.rstrip())
    assert foot in pull.body
    assert f"## Follow-up in {result.commit}" in pull.body
    again = await follow_up(desk, ground, pull, {"app/money.py": "half = 0.0\n"})
    assert desk.ended(again)[0] == "pr_updated"
    assert pull.body.count("## Follow-up in ") == 2
    assert len(ground.repo.pulls) == 1
    assert "### 🚀 The pull request is up to date" in desk.comments(pull.number)[-1]


async def test_a_description_with_many_follow_ups_stays_short_enough(desk: Desk, ground: Ground) -> None:
    pull = await opened(desk, ground)
    for number in range(3):
        pull.body = pull.body.replace("## Notes", f"{'x' * 15_000}\n\n## Notes")
        await follow_up(desk, ground, pull, {"app/money.py": f"half = {number}\n"})
    assert len(pull.body) <= MAX_BODY


async def test_a_persons_pull_request_keeps_its_text_and_gets_our_commit(desk: Desk, ground: Ground) -> None:
    theirs = ground.world.push_as_human(ground.repo, "feature", {"a.py": "x = 1\n"})
    pull = ground.world.open_issue(
        ground.repo, ground.owner, "Mine", "My words.", pull=Pull("feature", "main", draft=False)
    )
    name = await follow_up(desk, ground, pull, {"a.py": "x = 2\n"})
    assert desk.ended(name)[0] == "pr_updated"
    assert git(ground.repo.path, "rev-list", "feature").splitlines()[1] == theirs
    assert pull.body == "My words."


async def test_a_person_who_pushes_meanwhile_is_never_overwritten(desk: Desk, ground: Ground) -> None:
    pull = await opened(desk, ground)
    assert pull.pull is not None
    head = ground.repo.branches[pull.pull.head]
    made = await desk.admit(
        base=head, number=pull.number, aim="follow_up", goal="same_branch", pull=pull.number, expected=head,
        job_changes={"branch": pull.pull.head},
    )  # fmt: skip
    await desk.work(made, {"app/money.py": "half = 0.125\n"})
    theirs = ground.world.push_as_human(ground.repo, pull.pull.head, {"mine.txt": "mine\n"})
    await finish(desk)
    state, result = desk.ended(made.id)
    assert state == "error"
    assert "Somebody else has pushed" in result.reason
    assert ground.repo.branches[pull.pull.head] == theirs


@pytest.mark.parametrize("where", ["fork", "default", "other", "gone", "closed"])
async def test_a_branch_that_is_not_the_pull_requests_is_not_pushed(desk: Desk, ground: Ground, where: str) -> None:
    head = ground.world.push_as_human(ground.repo, "feature", {"a.py": "x = 1\n"})
    pull = ground.world.open_issue(ground.repo, ground.owner, "Mine", pull=Pull("feature", "main", draft=False))
    assert pull.pull is not None
    branch = "main" if where == "default" else "feature"
    head = ground.repo.branches[branch]
    made = await desk.admit(
        base=head, number=pull.number, aim="follow_up", goal="same_branch", pull=pull.number, expected=head,
        job_changes={"branch": branch},
    )  # fmt: skip
    await desk.work(made, {"a.py": "x = 2\n"})
    match where:
        case "fork":
            pull.pull.fork = 99
        case "other":
            pull.pull.head = "main"
        case "gone":
            del ground.repo.issues[pull.number]
        case "closed":
            pull.state = "closed"
    await finish(desk)
    assert desk.ended(made.id)[0] in {"error", "stopped", "no_access"}
    assert ground.repo.branches[branch] == head
    assert ground.repo.pushes == []


async def test_threads_are_answered_and_only_what_was_changed_is_resolved(desk: Desk, ground: Ground) -> None:
    head = ground.world.push_as_human(ground.repo, "feature", {"a.py": LINES, "b.py": LINES})
    pull = ground.world.open_issue(ground.repo, ground.owner, "Mine", pull=Pull("feature", "main", draft=False))
    places = {"near": ("a.py", 12), "far": ("a.py", 80), "elsewhere": ("b.py", 10)}
    threads = {
        name: ground.world.start_thread(ground.repo, pull, ground.owner, path=path, line=line, body="why?")
        for name, (path, line) in places.items()
    }
    nowhere = ground.world.start_thread(ground.repo, pull, ground.owner, path="a.py", line=1, body="outdated")
    refs = [
        {"comment": thread.comments[0], "thread": thread.id, "path": path, "start": line, "end": line}
        for thread, (path, line) in zip(threads.values(), places.values(), strict=True)
    ]
    refs.append({"comment": nowhere.comments[0], "thread": nowhere.id, "path": "a.py"})
    changed = LINES.replace("line 10\n", "line ten\n")
    name = await follow_up(desk, ground, pull, {"a.py": changed}, threads=refs)
    _, result = desk.ended(name)
    assert {name: thread.resolved for name, thread in threads.items()} == {
        "near": True,
        "far": False,
        "elsewhere": False,
    }
    assert not nowhere.resolved
    said = {name: ground.repo.comments[thread.comments[1]].body for name, thread in threads.items()}
    assert said["near"].startswith(f"Changed in {result.commit}.\n\n> Half cents go up.")
    assert "but nothing near these lines" in said["far"]
    assert "does not change `b.py`" in said["elsewhere"]
    assert all(len(thread.comments) == 2 for thread in threads.values())
    assert head != result.commit


async def test_an_answer_stands_where_resolving_is_refused(desk: Desk, ground: Ground) -> None:
    pull = ground.world.open_issue(ground.repo, ground.owner, "Fix", pull=Pull("main", "main", draft=True))
    thread = ground.world.start_thread(ground.repo, pull, ground.owner, path="app/money.py", line=1, body="why?")
    refusal = '{"data": null, "errors": [{"type": "FORBIDDEN", "message": "Resource not accessible by integration"}]}'
    made = await desk.admit(number=pull.number, aim="follow_up", goal="same_branch", pull=pull.number)
    answer = AnswerThread(comment=thread.comments[0], body="Because.", thread=thread.id)

    class RefusesToResolve(Fault):
        def hits(self, method: str, path: str) -> bool:
            return path == "/graphql" and len(thread.comments) > 1

    ground.github.faults.append(RefusesToResolve("", 200, body=refusal))
    key = desk.intents.want(made.id, desk.commissioned(made.id).row.epoch, desk.place(pull.number), answer)
    await desk.publish()
    standing = desk.standing(key)
    assert (standing.state, standing.reason) == ("done", "")
    assert standing.receipt is not None
    assert standing.receipt.url.endswith(f"#discussion_r{thread.comments[1]}")
    assert not thread.resolved


async def test_a_fork_is_answered_beside_it(desk: Desk, ground: Ground) -> None:
    pull = ground.world.open_issue(
        ground.repo, ground.owner, "Theirs", pull=Pull("topic", "main", draft=False, fork=99)
    )
    thread = ground.world.start_thread(ground.repo, pull, ground.owner, path="app/money.py", line=1, body="why?")
    refs = [{"comment": thread.comments[0], "thread": thread.id, "path": "app/money.py", "start": 1, "end": 1}]
    made = await desk.admit(number=pull.number, aim="follow_up", goal="sibling", pull=pull.number, threads=refs)
    await desk.work(made)
    await finish(desk)
    state, result = desk.ended(made.id)
    assert state == "pr_opened"
    assert result.url in ground.repo.comments[thread.comments[1]].body
    assert not thread.resolved


async def test_wishes_are_the_same_after_a_crash_between_them_and_the_end(desk: Desk, ground: Ground) -> None:
    ground.repo.collaborators[ground.world.add_user("grace").id] = "write"
    made = await desk.admit(config=RepoConfig(labels=("bot",), reviewers=("grace",)))
    await desk.work(made)
    await desk.publish()
    await desk.settling.settle()
    desk.store.enter(made.id, "publishing")
    await finish(desk)
    kinds = [standing.intent.kind for standing in desk.intents.of(made.id)]
    assert kinds.count("dress_pr") == 1
    assert not [each for each in desk.intents.of(made.id) if isinstance(each.intent, AnswerThread)]
    assert desk.ended(made.id)[0] == "pr_opened"
