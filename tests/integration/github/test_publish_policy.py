"""Only what was verified is published, if its requester still may, and where it still may go."""

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from app.config.repository import RepoConfig
from app.core.patch import Patch
from app.core.task import AllowedPath
from app.publish.effects import UpdateStatusComment
from app.publish.policy import PublishRefused
from app.publish.secret_scan import HELD_BACK
from tests.support.databases import statements_of_this_thread
from tests.support.github.fake import FakeGitHubSetup
from tests.support.publisher_harness import HALF, PublisherHarness, publisher_harness
from tests.support.repositories import git

SECRET = "hush-7Qk2vXw9LmRt4Zp8"


@pytest.fixture
async def harness(fake_github: FakeGitHubSetup, tmp_path: Path) -> AsyncIterator[PublisherHarness]:
    async with publisher_harness(fake_github, tmp_path, secrets=(SECRET,)) as harness:
        yield harness


async def refused(harness: PublisherHarness, key: str) -> PublishRefused:
    """It was refused for good, and nothing of it is on GitHub."""
    await harness.publish()
    standing = harness.effect_status(key)
    assert standing.state == "failed", standing
    assert sorted(harness.fake_github.repo.branches) == ["main"]
    assert harness.fake_github.repo.pulls == []
    assert harness.fake_github.repo.pushes == []
    assert isinstance(standing.error, PublishRefused), standing.error
    return standing.error


async def test_a_verified_change_becomes_a_draft(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    made = await harness.admit()
    key = await harness.work(made)
    assert await harness.publish() == 1
    standing = harness.effect_status(key)
    assert standing.state == "done", standing
    commit = fake_github.repo.branches[made.branch]
    assert git(fake_github.repo.path, "show", f"{commit}:app/money.py") == "half = 0.25"
    (pull,) = fake_github.repo.pulls
    assert pull.pull is not None
    assert (pull.pull.draft, pull.title) == (True, "Fix: Totals are a cent too low")
    message = git(fake_github.repo.path, "show", "-s", "--format=%B", commit)
    assert "[skip ci]" in message, "CI waits until a person asks for it"


async def test_publishing_asks_the_database_in_threads(harness: PublisherHarness) -> None:
    key = await harness.work(await harness.admit())
    with statements_of_this_thread(harness.engine) as found:
        await harness.publish()
    assert harness.effect_status(key).state == "done"
    assert found == []


async def test_the_commit_is_made_again_where_the_mirror_lost_it(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made = await harness.admit()
    key = await harness.work(made)
    result = harness.job_with_context(made.id).row.result or {}
    mirror = harness.mirror(fake_github.repo.id).path
    mirror.rename(mirror.with_suffix(".gone"))
    await harness.publish()
    assert harness.effect_status(key).state == "done"
    assert fake_github.repo.branches[made.branch] == result["commit"]


@pytest.mark.parametrize("what", ["commit", "message", "blob", "patch"])
async def test_only_what_was_verified_is_pushed(harness: PublisherHarness, what: str) -> None:
    made = await harness.admit()
    base = made.task.base
    other = Patch(base=base).model_dump_json().encode()
    changes: dict[str, dict[str, Any]] = {
        "commit": {"commit": base},
        "message": {"recipe": {"message": "Other\n\n[skip ci]\n"}, "commit": "f" * 40},
        "blob": {"recipe": {}},
        "patch": {"recipe": {}},
    }
    key = await harness.work(made, **changes[what])
    if what == "blob":
        with harness.engine.begin() as db:
            db.exec_driver_sql("UPDATE blobs SET digest = 'gone' || substr(digest, 5)")
    if what == "patch":
        with harness.engine.begin() as db:
            db.exec_driver_sql("UPDATE blobs SET content = ?", (other,))
    error = await refused(harness, key)
    words = {"blob": "no longer exist", "patch": "The change is empty"}
    assert words.get(what, "not the verified one") in error.message


def demote(fake_github: FakeGitHubSetup) -> None:
    fake_github.repo.collaborators[fake_github.owner.id] = "read"


def leave(fake_github: FakeGitHubSetup) -> None:
    del fake_github.world.users[fake_github.owner.id]


def close(fake_github: FakeGitHubSetup) -> None:
    fake_github.issue.state = "closed"


def lock(fake_github: FakeGitHubSetup) -> None:
    fake_github.issue.locked = True


def archive(fake_github: FakeGitHubSetup) -> None:
    fake_github.repo.archived = True


def other_installation(fake_github: FakeGitHubSetup) -> None:
    """The same repository in another installation: the first one lost it."""
    again = fake_github.world.install(fake_github.repo)
    fake_github.world.installations = {again.id: again, **fake_github.world.installations}


@pytest.mark.parametrize(
    ("happens", "state", "words"),
    [
        (demote, "no_access", "for ada: they have no write access"),
        (leave, "no_access", "no longer exists"),
        (close, "stopped", "The issue has been closed"),
        (lock, "stopped", "locked"),
        (archive, "no_access", "archived"),
        (other_installation, "no_access", "no longer installed"),
    ],
)
async def test_changes_since_admission_are_checked_before_publishing(
    harness: PublisherHarness,
    fake_github: FakeGitHubSetup,
    happens: Callable[[FakeGitHubSetup], None],
    state: str,
    words: str,
) -> None:
    key = await harness.work(await harness.admit())
    happens(fake_github)
    error = await refused(harness, key)
    assert error.state == state
    assert words in error.message


@pytest.mark.parametrize("role", ["none", "read", "triage"])
async def test_less_than_write_access_publishes_nothing(
    harness: PublisherHarness, fake_github: FakeGitHubSetup, role: str
) -> None:
    key = await harness.work(await harness.admit())
    fake_github.repo.collaborators[fake_github.owner.id] = role
    assert (await refused(harness, key)).state == "no_access"


@pytest.mark.parametrize("role", ["write", "maintain", "admin"])
async def test_write_access_is_enough(harness: PublisherHarness, fake_github: FakeGitHubSetup, role: str) -> None:
    key = await harness.work(await harness.admit())
    fake_github.repo.collaborators[fake_github.owner.id] = role
    await harness.publish()
    assert harness.effect_status(key).state == "done"


async def test_a_reassigned_login_gives_no_permission(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    key = await harness.work(await harness.admit())
    fake_github.owner.login = "ada-old"
    heir = fake_github.world.add_user("ada")
    fake_github.repo.collaborators = {heir.id: "admin"}
    fake_github.repo.owner = heir
    assert (await refused(harness, key)).state == "no_access"


async def test_a_renamed_repository_is_published_to_under_its_new_name(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    key = await harness.work(await harness.admit())
    fake_github.repo.rename("renamed")
    await harness.publish()
    receipt = harness.effect_status(key).receipt
    assert receipt is not None
    assert "/ada/renamed/pull/" in receipt.url


async def test_another_repository_of_this_name_is_not_taken_for_it(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    key = await harness.work(await harness.admit())
    fake_github.repo.rename("elsewhere")
    other = fake_github.world.add_repo(fake_github.owner, "sample-two", HALF)
    other.name = "sample"
    fake_github.installation.repositories.add(other.id)
    await harness.publish()
    assert harness.effect_status(key).state == "done"
    assert (other.pushes, other.pulls) == ([], [])
    assert len(fake_github.repo.pulls) == 1


@pytest.mark.parametrize(
    ("admission", "job"),
    [
        ({"publish_target": "nowhere"}, {}),
        ({"aim": "ask", "publish_target": "nowhere"}, {"aim": "ask"}),
        ({}, {"aim": "ask"}),
        ({}, {"plan_mode": "only"}),
        ({"aim": "plan"}, {}),
    ],
)
async def test_questions_and_plans_never_publish(
    harness: PublisherHarness, admission: Mapping[str, Any], job: Mapping[str, Any]
) -> None:
    key = await harness.work(await harness.admit(job_changes=job, **admission))
    assert "publish nothing" in (await refused(harness, key)).message


async def test_a_follow_up_that_makes_a_new_branch_is_refused(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made = await harness.admit()
    key = await harness.work(made)
    with harness.engine.begin() as db:  # its job is a follow-up, and it wishes for a new branch
        db.exec_driver_sql("UPDATE job_contexts SET context = json_set(context, '$.publish_target', 'same_branch')")
    assert "not of the kind" in (await refused(harness, key)).message


@pytest.mark.parametrize(
    "change",
    [
        {"branch": "main"},
        {"branch": "agent-fix/other"},
        {"base": "release"},
    ],
)
async def test_names_come_from_the_job(harness: PublisherHarness, change: Mapping[str, Any]) -> None:
    key = await harness.work(await harness.admit(), **change)
    assert "differs from the job's" in (await refused(harness, key)).message


@pytest.mark.parametrize(
    "branch", ["main", "feature/totals", "agent-fix/../main", "agent-fix", "agent-fix/a b", "-x/y"]
)
async def test_no_branch_but_ours_is_pushed(harness: PublisherHarness, branch: str) -> None:
    key = await harness.work(await harness.admit(job_changes={"branch": branch}))
    await refused(harness, key)


async def test_a_configured_branch_pattern_is_allowed(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    config = RepoConfig(branch="bots/{slug}")
    made = await harness.admit(config=config, job_changes={"branch": "bots/totals"})
    await harness.work(made)
    await harness.publish()
    assert "bots/totals" in fake_github.repo.branches


PROTECTED = {
    ".github/workflows/x.yml": "on: push\n",
    ".GitHub/Workflows/x.yml": "on: push\n",
    "CODEOWNERS": "* @eve\n",
    ".gitmodules": "[submodule]\n",
    "infra/main.tf": "x\n",
    "deploy/run.sh": "x\n",
}


@pytest.mark.parametrize("path", PROTECTED)
async def test_protected_paths_are_looked_at_again(
    harness: PublisherHarness, fake_github: FakeGitHubSetup, path: str
) -> None:
    """`infra/` by the configuration of admission, `deploy/` by what the default branch says by now."""
    config = RepoConfig(protected_paths=("infra/",))
    fake_github.world.push_as_human(fake_github.repo, "main", {".github/agent-fix.yml": "protected_paths: [deploy/]\n"})
    key = await harness.work(await harness.admit(config=config), {path: PROTECTED[path]})
    error = await refused(harness, key)
    assert "may not be published" in error.message


INFRA = RepoConfig(protected_paths=("infra/",))
PERMIT = (AllowedPath(path="infra/main.tf", by="octocat"),)


async def test_a_person_lets_a_job_change_a_protected_path(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    await harness.work(await harness.admit(config=INFRA, allowed=PERMIT), {"infra/main.tf": "x\n"})
    await harness.publish()
    assert [pull.title for pull in fake_github.repo.pulls] == ["Fix: Totals are a cent too low"]


async def test_a_permission_covers_one_path_only(harness: PublisherHarness) -> None:
    key = await harness.work(await harness.admit(config=INFRA, allowed=PERMIT), {"infra/other.tf": "x\n"})
    assert "infra/other.tf" in (await refused(harness, key)).message


async def test_a_broken_configuration_does_not_open_anything(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    fake_github.world.push_as_human(fake_github.repo, "main", {".github/agent-fix.yml": "protected_paths: {\n"})
    config = RepoConfig(protected_paths=("infra/",))
    key = await harness.work(await harness.admit(config=config), {"infra/x": "x"})
    assert "infra/x" in (await refused(harness, key)).message


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
async def test_the_bytes_are_looked_at_again(harness: PublisherHarness, files: Mapping[str, str | bytes]) -> None:
    key = await harness.work(await harness.admit(), files)
    error = await refused(harness, key)
    assert "may not be published" in error.message
    assert "AKIAQ3EGRJ7KXN2PVWLD" not in error.message


@pytest.mark.parametrize("place", ["content", "path", "message", "title", "body"])
async def test_our_own_secret_in_a_change_is_quarantined(
    harness: PublisherHarness, caplog: pytest.LogCaptureFixture, place: str
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
            changes[place] = f"Fix {SECRET.encode().hex()}"
    key = await harness.work(await harness.admit(), files, **changes)
    await harness.publish()
    standing = harness.effect_status(key)
    assert standing.state == "failed"
    assert SECRET not in standing.reason
    assert harness.fake_github.repo.pushes == []
    assert ["security" in record.getMessage() for record in caplog.records] == [True]
    assert SECRET not in caplog.text


async def test_a_text_with_a_secret_is_replaced_whole(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    made = await harness.admit()
    harness.outbox.add(made.id, 0, harness.place(), UpdateStatusComment(body=f"done, see {SECRET}"))
    await harness.publish()
    (number,) = fake_github.issue.comments
    assert fake_github.repo.comments[number].body.startswith(HELD_BACK)
    assert SECRET not in fake_github.repo.comments[number].body


async def test_without_the_skip_mark_nothing_starts_ci(harness: PublisherHarness) -> None:
    key = await harness.work(await harness.admit(), recipe={"message": "Fix\n"})
    assert "[skip ci]" in (await refused(harness, key)).message


async def test_with_automatic_ci_commits_carry_no_skip_mark(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made = await harness.admit(config=RepoConfig(ci="auto"))
    await harness.work(made)
    await harness.publish()
    message = git(fake_github.repo.path, "show", "-s", "--format=%B", fake_github.repo.branches[made.branch])
    assert "skip ci" not in message


async def test_a_workflow_that_skip_ci_does_not_hold_back_is_reported(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    files = {".github/workflows/greet.yml": "on: pull_request_target\n", ".github/workflows/ci.yml": "on: push\n"}
    fake_github.world.push_as_human(fake_github.repo, "main", files)
    await harness.work(await harness.admit())
    await harness.publish()
    (pull,) = fake_github.repo.pulls
    assert "`pull_request_target` start anyway: `.github/workflows/greet.yml` may" in pull.body


async def test_a_stop_before_the_push_is_a_stop(harness: PublisherHarness) -> None:
    made = await harness.admit()
    key = await harness.work(made)
    assert harness.queue.stop(made.id, "because") is False, "it is the publisher's by now"
    error = await refused(harness, key)
    assert error.state == "stopped"


async def test_a_job_that_has_ended_publishes_nothing(harness: PublisherHarness) -> None:
    made = await harness.admit()
    key = await harness.work(made)
    harness.store.enter(made.id, "error", "It was given up.")
    error = await refused(harness, key)
    assert "has already ended" in error.message


async def test_nothing_is_pushed_before_the_work_is_handed_over(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made = await harness.admit()
    key = await harness.work(made)
    with harness.engine.begin() as db:
        db.exec_driver_sql("UPDATE job_contexts SET handed_over = 0")
    await harness.publish()
    assert harness.effect_status(key).state == "wanted"
    assert fake_github.repo.pushes == []
    with harness.engine.begin() as db:
        db.exec_driver_sql("UPDATE job_contexts SET handed_over = 1")
    fake_github.world.tick(3)
    await harness.publish()
    assert harness.effect_status(key).state == "done"


async def test_no_request_is_about_another_repository(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    other = fake_github.world.add_repo(fake_github.owner, "other", HALF)
    fake_github.installation.repositories.add(other.id)
    await harness.work(await harness.admit())
    await harness.publish()
    tokens = [call.token for call in fake_github.github.calls if call.token is not None]
    assert tokens
    assert all(token.repositories == {fake_github.repo.id} for token in tokens)
    assert not [call for call in fake_github.github.calls if "/other" in call.path]
