"""What is published is what was verified, for somebody who still may, where it still may be."""

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from app.config import RepoConfig
from app.patch import Patch
from app.publish.intent import StatusComment
from app.publish.quarantine import HELD_BACK
from app.publish.rules import Refused
from tests.fakes.github.ground import Ground, make_ground
from tests.publishing import HALF, Desk, desk_at
from tests.repositories import git

SECRET = "hush-7Qk2vXw9LmRt4Zp8"


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return make_ground(tmp_path)


@pytest.fixture
async def desk(ground: Ground, tmp_path: Path) -> AsyncIterator[Desk]:
    async with desk_at(ground, tmp_path, secrets=(SECRET,)) as desk:
        yield desk


async def refused(desk: Desk, key: str) -> Refused:
    """It was refused for good, and nothing of it is on GitHub."""
    await desk.publish()
    standing = desk.standing(key)
    assert standing.state == "failed", standing
    assert sorted(desk.ground.repo.branches) == ["main"]
    assert desk.ground.repo.pulls == []
    assert desk.ground.repo.pushes == []
    assert isinstance(standing.error, Refused), standing.error
    return standing.error


async def test_a_verified_change_becomes_a_draft(desk: Desk, ground: Ground) -> None:
    made = await desk.admit()
    key = await desk.work(made)
    assert await desk.publish() == 1
    standing = desk.standing(key)
    assert standing.state == "done", standing
    commit = ground.repo.branches[made.branch]
    assert git(ground.repo.path, "show", f"{commit}:app/money.py") == "half = 0.25"
    (pull,) = ground.repo.pulls
    assert pull.pull is not None
    assert (pull.pull.draft, pull.title) == (True, "Fix: Totals are a cent too low")
    message = git(ground.repo.path, "show", "-s", "--format=%B", commit)
    assert "[skip ci]" in message, "CI waits until a person asks for it"


async def test_the_commit_is_made_again_where_the_mirror_lost_it(desk: Desk, ground: Ground) -> None:
    made = await desk.admit()
    key = await desk.work(made)
    result = desk.commissioned(made.id).row.result or {}
    mirror = desk.mirror(ground.repo.id).path
    mirror.rename(mirror.with_suffix(".gone"))
    await desk.publish()
    assert desk.standing(key).state == "done"
    assert ground.repo.branches[made.branch] == result["commit"]


@pytest.mark.parametrize("what", ["commit", "message", "blob", "patch"])
async def test_only_what_was_verified_is_pushed(desk: Desk, what: str) -> None:
    made = await desk.admit()
    base = made.task.base
    other = Patch(base=base).model_dump_json().encode()
    changes: dict[str, dict[str, Any]] = {
        "commit": {"commit": base},
        "message": {"recipe": {"message": "Other\n\n[skip ci]\n"}, "commit": "f" * 40},
        "blob": {"recipe": {}},
        "patch": {"recipe": {}},
    }
    key = await desk.work(made, **changes[what])
    if what == "blob":
        with desk.engine.begin() as db:
            db.exec_driver_sql("UPDATE blobs SET digest = 'gone' || substr(digest, 5)")
    if what == "patch":
        with desk.engine.begin() as db:
            db.exec_driver_sql("UPDATE blobs SET content = ?", (other,))
    error = await refused(desk, key)
    words = {"blob": "not there any more", "patch": "The change is empty"}
    assert words.get(what, "not what was verified") in error.message


def demote(ground: Ground) -> None:
    ground.repo.collaborators[ground.owner.id] = "read"


def leave(ground: Ground) -> None:
    del ground.world.users[ground.owner.id]


def close(ground: Ground) -> None:
    ground.issue.state = "closed"


def lock(ground: Ground) -> None:
    ground.issue.locked = True


def archive(ground: Ground) -> None:
    ground.repo.archived = True


def other_installation(ground: Ground) -> None:
    """The same repository in another installation: the first one lost it."""
    again = ground.world.install(ground.repo)
    ground.world.installations = {again.id: again, **ground.world.installations}


@pytest.mark.parametrize(
    ("happens", "state", "words"),
    [
        (demote, "no_access", "ada has no write access any more"),
        (leave, "no_access", "no account any more"),
        (close, "stopped", "The issue was closed"),
        (lock, "stopped", "locked"),
        (archive, "no_access", "archived"),
        (other_installation, "no_access", "not installed"),
    ],
)
async def test_what_changed_since_admission_counts(
    desk: Desk, ground: Ground, happens: Callable[[Ground], None], state: str, words: str
) -> None:
    key = await desk.work(await desk.admit())
    happens(ground)
    error = await refused(desk, key)
    assert error.state == state
    assert words in error.message


@pytest.mark.parametrize("role", ["none", "read", "triage"])
async def test_less_than_write_access_publishes_nothing(desk: Desk, ground: Ground, role: str) -> None:
    key = await desk.work(await desk.admit())
    ground.repo.collaborators[ground.owner.id] = role
    assert (await refused(desk, key)).state == "no_access"


@pytest.mark.parametrize("role", ["write", "maintain", "admin"])
async def test_write_access_is_enough(desk: Desk, ground: Ground, role: str) -> None:
    key = await desk.work(await desk.admit())
    ground.repo.collaborators[ground.owner.id] = role
    await desk.publish()
    assert desk.standing(key).state == "done"


async def test_a_login_that_changed_hands_is_nobodys_right(desk: Desk, ground: Ground) -> None:
    key = await desk.work(await desk.admit())
    ground.owner.login = "ada-old"
    heir = ground.world.add_user("ada")
    ground.repo.collaborators = {heir.id: "admin"}
    ground.repo.owner = heir
    assert (await refused(desk, key)).state == "no_access"


async def test_a_transferred_repository_is_not_followed_by_name(desk: Desk, ground: Ground) -> None:
    key = await desk.work(await desk.admit())
    ground.repo.name = "moved"
    await desk.publish()
    standing = desk.standing(key)
    assert standing.state == "failed"
    assert ground.repo.pushes == []


async def test_another_repository_of_this_name_is_not_taken_for_it(desk: Desk, ground: Ground) -> None:
    key = await desk.work(await desk.admit())
    ground.repo.name = "elsewhere"
    other = ground.world.add_repo(ground.owner, "sample-two", HALF)
    other.name = "sample"
    ground.installation.repositories.add(other.id)
    await desk.publish()
    assert desk.standing(key).state == "failed"
    assert other.pushes == ground.repo.pushes == []


@pytest.mark.parametrize(
    ("commissioned", "job"),
    [
        ({"goal": "nowhere"}, {}),
        ({"aim": "ask", "goal": "nowhere"}, {"aim": "ask"}),
        ({}, {"aim": "ask"}),
        ({}, {"plan_mode": "only"}),
        ({"aim": "plan"}, {}),
    ],
)
async def test_questions_and_plans_never_publish(
    desk: Desk, commissioned: Mapping[str, Any], job: Mapping[str, Any]
) -> None:
    key = await desk.work(await desk.admit(job_changes=job, **commissioned))
    assert "publishes nothing" in (await refused(desk, key)).message


async def test_a_push_is_no_new_branch(desk: Desk, ground: Ground) -> None:
    made = await desk.admit()
    key = await desk.work(made)
    with desk.engine.begin() as db:  # its job is a follow-up, and it wishes for a new branch
        db.exec_driver_sql("UPDATE commissions SET commission = json_set(commission, '$.goal', 'same_branch')")
    assert "not of the kind" in (await refused(desk, key)).message


@pytest.mark.parametrize(
    "change",
    [
        {"branch": "main"},
        {"branch": "agent-fix/other"},
        {"base": "release"},
    ],
)
async def test_names_come_from_the_job(desk: Desk, change: Mapping[str, Any]) -> None:
    key = await desk.work(await desk.admit(), **change)
    assert "not what the job was admitted with" in (await refused(desk, key)).message


@pytest.mark.parametrize(
    "branch", ["main", "feature/totals", "agent-fix/../main", "agent-fix", "agent-fix/a b", "-x/y"]
)
async def test_no_branch_but_ours_is_pushed(desk: Desk, branch: str) -> None:
    key = await desk.work(await desk.admit(job_changes={"branch": branch}))
    await refused(desk, key)


async def test_the_houses_own_pattern_is_a_prefix_too(desk: Desk, ground: Ground) -> None:
    config = RepoConfig(branch="bots/{slug}")
    made = await desk.admit(config=config, job_changes={"branch": "bots/totals"})
    await desk.work(made)
    await desk.publish()
    assert "bots/totals" in ground.repo.branches


PROTECTED = {
    ".github/workflows/x.yml": "on: push\n",
    ".GitHub/Workflows/x.yml": "on: push\n",
    "CODEOWNERS": "* @eve\n",
    ".gitmodules": "[submodule]\n",
    "infra/main.tf": "x\n",
    "deploy/run.sh": "x\n",
}


@pytest.mark.parametrize("path", PROTECTED)
async def test_protected_paths_are_looked_at_again(desk: Desk, ground: Ground, path: str) -> None:
    """`infra/` by the configuration of admission, `deploy/` by what the default branch says by now."""
    config = RepoConfig(protected_paths=("infra/",))
    ground.world.push_as_human(ground.repo, "main", {".github/agent-fix.yml": "protected_paths: [deploy/]\n"})
    key = await desk.work(await desk.admit(config=config), {path: PROTECTED[path]})
    error = await refused(desk, key)
    assert "may not be published" in error.message


async def test_a_broken_configuration_does_not_open_anything(desk: Desk, ground: Ground) -> None:
    ground.world.push_as_human(ground.repo, "main", {".github/agent-fix.yml": "protected_paths: {\n"})
    config = RepoConfig(protected_paths=("infra/",))
    key = await desk.work(await desk.admit(config=config), {"infra/x": "x"})
    assert "infra/x" in (await refused(desk, key)).message


@pytest.mark.parametrize(
    "files",
    [
        {"config.py": "key = 'AKIAQ3EGRJ7KXN2PVWLD'\n"},
        {".env": "A=1\n"},
        {"a.py": "x = 1 \u202e# hidden\n"},
        {f"f{number}": "x\n" for number in range(101)},
        {"large.txt": "x" * (5 * 1024 * 1024)},
        {"tool": b"\x7fELF" + b"\0" * 100},
    ],
    ids=["key", "env", "bidi", "many", "large", "binary"],
)
async def test_the_bytes_are_looked_at_again(desk: Desk, files: Mapping[str, str | bytes]) -> None:
    key = await desk.work(await desk.admit(), files)
    error = await refused(desk, key)
    assert "may not be published" in error.message
    assert "AKIAQ3EGRJ7KXN2PVWLD" not in error.message


@pytest.mark.parametrize("place", ["content", "path", "message", "title", "body"])
async def test_our_own_secret_in_a_change_is_quarantined(
    desk: Desk, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    files, changes = dict[str, str](HALF), dict[str, Any]()
    match place:
        case "content":
            files["notes.txt"] = f"x {SECRET.encode().hex()} y\n"
        case "path":
            files[f"{SECRET}.txt"] = "x\n"
        case "message":
            changes["recipe"] = {"message": f"Fix {SECRET}\n\n[skip ci]\n"}
        case _:
            changes[place] = f"Fix {SECRET[::-1]}"
    key = await desk.work(await desk.admit(), files, **changes)
    await desk.publish()
    standing = desk.standing(key)
    assert standing.state == "failed"
    assert SECRET not in standing.reason
    assert desk.ground.repo.pushes == []
    assert ["security" in record.getMessage() for record in caplog.records] == [True]
    assert SECRET not in caplog.text


async def test_a_text_with_a_secret_is_replaced_whole(desk: Desk, ground: Ground) -> None:
    made = await desk.admit()
    desk.intents.want(made.id, 0, desk.place(), StatusComment(body=f"done, see {SECRET}"))
    await desk.publish()
    (number,) = ground.issue.comments
    assert ground.repo.comments[number].body.startswith(HELD_BACK)
    assert SECRET not in ground.repo.comments[number].body


async def test_without_the_skip_mark_nothing_starts_ci(desk: Desk) -> None:
    key = await desk.work(await desk.admit(), recipe={"message": "Fix\n"})
    assert "[skip ci]" in (await refused(desk, key)).message


async def test_where_ci_is_automatic_no_mark_is_needed(desk: Desk, ground: Ground) -> None:
    made = await desk.admit(config=RepoConfig(ci="auto"))
    await desk.work(made)
    await desk.publish()
    message = git(ground.repo.path, "show", "-s", "--format=%B", ground.repo.branches[made.branch])
    assert "skip ci" not in message


async def test_a_workflow_that_no_mark_holds_back_is_told(desk: Desk, ground: Ground) -> None:
    files = {".github/workflows/greet.yml": "on: pull_request_target\n", ".github/workflows/ci.yml": "on: push\n"}
    ground.world.push_as_human(ground.repo, "main", files)
    await desk.work(await desk.admit())
    await desk.publish()
    (pull,) = ground.repo.pulls
    assert "`pull_request_target` starts in spite of that: `.github/workflows/greet.yml` may" in pull.body


async def test_a_stop_before_the_push_is_a_stop(desk: Desk) -> None:
    made = await desk.admit()
    key = await desk.work(made)
    assert desk.queue.stop(made.id, "because") is False, "it is the publisher's by now"
    error = await refused(desk, key)
    assert error.state == "stopped"


async def test_a_job_that_has_ended_publishes_nothing(desk: Desk) -> None:
    made = await desk.admit()
    key = await desk.work(made)
    desk.store.enter(made.id, "error", "It was given up.")
    error = await refused(desk, key)
    assert "has ended already" in error.message


async def test_nothing_is_pushed_before_the_work_is_handed_over(desk: Desk, ground: Ground) -> None:
    made = await desk.admit()
    key = await desk.work(made)
    with desk.engine.begin() as db:
        db.exec_driver_sql("UPDATE commissions SET handed_over = 0")
    await desk.publish()
    assert desk.standing(key).state == "wanted"
    assert ground.repo.pushes == []
    with desk.engine.begin() as db:
        db.exec_driver_sql("UPDATE commissions SET handed_over = 1")
    ground.world.tick(3)
    await desk.publish()
    assert desk.standing(key).state == "done"


async def test_no_request_is_about_another_repository(desk: Desk, ground: Ground) -> None:
    other = ground.world.add_repo(ground.owner, "other", HALF)
    ground.installation.repositories.add(other.id)
    await desk.work(await desk.admit())
    await desk.publish()
    tokens = [call.token for call in ground.github.calls if call.token is not None]
    assert tokens
    assert all(token.repositories == {ground.repo.id} for token in tokens)
    assert not [call for call in ground.github.calls if "/other" in call.path]
