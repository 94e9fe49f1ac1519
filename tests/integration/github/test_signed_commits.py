"""Signed commits: by GitHub for the App or by the operator's key, with the verified files. git checks signatures."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from app.config.repository import parse_config
from app.config.settings import SettingsError
from app.config.signing import SigningKey
from app.core.patch import FileChange, Patch
from app.publish.effects import CommitRecipe, OpenDraftPullRequest
from app.publish.publisher import Publisher
from app.repo.git_command import Git
from tests.support.github.fake import FakeGitHubSetup, make_fake_github
from tests.support.github.world import ssh_key
from tests.support.publisher_harness import PublisherHarness
from tests.support.repositories import git

SIGNED = parse_config(b"sign: true\n")
FILES = {"old.sh": "echo\n", "gone.txt": "x\n", "app/money.py": "half = 0.2\n"}


@pytest.fixture
def fake_github(tmp_path: Path) -> FakeGitHubSetup:
    fake_github = make_fake_github(tmp_path)
    fake_github.world.push_as_human(fake_github.repo, "main", FILES)
    fake_github.repo.demand_signatures()
    return fake_github


async def finish(harness: PublisherHarness) -> None:
    for _ in range(5):
        await harness.everything()
        harness.fake_github.world.tick(31)


def tree(fake_github: FakeGitHubSetup, commit: str) -> str:
    return git(fake_github.repo.path, "rev-parse", f"{commit}^{{tree}}")


def changed(base: str) -> Patch:
    """A change of every sort that a gate lets through."""
    return Patch(
        base=base,
        changes=(
            FileChange(path="app/money.py", mode="100644", content="half = 0.25  # ½\n".encode()),
            FileChange(path="gone.txt", mode="100644", content=None),
            FileChange(path="link", mode="120000", content=b"app/money.py"),
            FileChange(path="naïve/ü.txt", mode="100644", content=b"\r\nno line end"),
            FileChange(path="new.sh", mode="100755", content=b"#!/bin/sh\n"),
            FileChange(path="old.sh", mode="100755", content=b"echo\n"),
            FileChange(path="picture.bin", mode="100644", content=bytes(range(256))),
        ),
    )


async def test_every_sort_of_change_has_the_same_tree_when_github_signs(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made = await harness.admit(config=SIGNED)
    forge = await harness.open(harness.place())
    patch, store = changed(made.task.base), forge.branches.store
    verified = store.commit(patch, message="Fix: ü\n\nBody.\n", author=harness.bot.person, date=harness.now())
    signed = await forge.branches.signed(verified, None)
    assert signed != verified
    assert git(fake_github.repo.path, "verify-commit", signed) == ""
    assert tree(fake_github, signed) == store.parts(verified).tree
    assert git(fake_github.repo.path, "show", "-s", "--format=%P|%B", signed) == f"{made.task.base}|Fix: ü\n\nBody.\n"
    assert await forge.branches.signed(verified, None) == signed, "a signature made again would be another commit"
    assert await forge.ensure_branch("agent-fix/x", signed) == "agent-fix/x"


async def test_draft_check_and_texts_name_the_signed_commit(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made = await harness.admit(config=SIGNED)
    await harness.work(made)
    verified = harness.job_with_context(made.id).row.result
    assert verified is not None
    await finish(harness)
    state, result = harness.ended(made.id)
    assert state == "pr_opened", result.reason
    head = fake_github.repo.branches[result.branch]
    assert result.commit == head != verified["commit"]
    (pull,) = fake_github.repo.pulls
    assert head[:10] in pull.body
    assert verified["commit"][:10] not in pull.body
    assert {check.head_sha for check in fake_github.repo.checks} == {head}
    assert any(verified["commit"] in note and head in note for note in result.notes)


async def test_early_draft_and_its_replacement_are_signed(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    fake_github.world.noreply = harness.bot.person.email.partition("@")[2]
    made = await harness.admit(config=parse_config(b"sign: true\npull_request: early\n"))
    where = harness.job_with_context(made.id)
    harness.store.enter(made.id, "working")
    await finish(harness)
    assert where.job.branch in fake_github.repo.branches, harness.outbox.of(made.id)
    await harness.work(made)
    await finish(harness)
    state, result = harness.ended(made.id)
    assert state == "pr_opened", result.reason
    assert list(fake_github.repo.branches) == [made.branch, "main"]
    assert fake_github.repo.branches[made.branch] == result.commit


async def test_merge_of_a_moved_base_is_signed_with_all_that_is_below(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    ci = ".github/workflows/ci.yml"
    fake_github.world.push_as_human(fake_github.repo, "main", {ci: "on: push\n"})
    made = await harness.admit(config=SIGNED)
    newest = fake_github.world.push_as_human(fake_github.repo, "main", {ci: "on: push # 2\n"})
    await harness.work(made)
    await finish(harness)
    state, result = harness.ended(made.id)
    assert state == "pr_opened", result.reason
    head = fake_github.repo.branches[result.branch]
    assert git(fake_github.repo.path, "show", "-s", "--format=%P", head).split() == [result.commit, newest]


async def test_operators_key_signs_everything(
    harness: PublisherHarness, fake_github: FakeGitHubSetup, tmp_path: Path
) -> None:
    fake_github.repo.trust(ssh_key(tmp_path / "operator"))
    key = SigningKey.of({"AGENT_FIX_SIGNING_KEY": str(tmp_path / "operator")})
    policy = replace(harness.policy, signing_key=key)
    harness.publisher = Publisher(harness.outbox, harness.open, policy.check, "p1")
    made = await harness.admit()
    await harness.work(made)
    await finish(harness)
    state, result = harness.ended(made.id)
    assert state == "pr_opened", result.reason
    head = fake_github.repo.branches[result.branch]
    assert git(fake_github.repo.path, "verify-commit", head) == ""
    assert harness.bot.person.email in git(fake_github.repo.path, "show", "-s", "--format=%ae %ce", head)


async def test_commit_that_github_does_not_sign_is_not_pushed(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    fake_github.repo.signs = False
    made = await harness.admit(config=SIGNED)
    await harness.work(made)
    await finish(harness)
    state, result = harness.ended(made.id)
    assert state == "error"
    assert "GitHub did not sign the commit (unsigned)" in result.reason
    assert list(fake_github.repo.branches) == ["main"]


async def test_name_that_is_not_utf8_needs_a_key(harness: PublisherHarness) -> None:
    made = await harness.admit(config=SIGNED)
    forge = await harness.open(harness.place())
    patch = Patch(base=made.task.base, changes=(FileChange(path="caf\udce9", mode="100644", content=b"x"),))
    verified = forge.branches.store.commit(patch, message="x\n", author=harness.bot.person, date=harness.now())
    with pytest.raises(Exception, match=r"caf\\udce9 is not UTF-8"):
        await forge.branches.signed(verified, None)


async def test_gpg_key_signs_too(harness: PublisherHarness, tmp_path: Path) -> None:
    home = tmp_path / "gnupg"
    home.mkdir(mode=0o700)
    environment = {"PATH": "/usr/bin:/bin", "GNUPGHOME": str(home)}
    made = [
        "gpg",
        "--batch",
        "--quiet",
        "--passphrase",
        "",
        "--quick-generate-key",
        "bot@example.org",
        "ed25519",
        "sign",
    ]
    try:
        subprocess.run(made, env=environment, check=True, capture_output=True)  # noqa: ASYNC221  # a second
        key = SigningKey.of({"AGENT_FIX_SIGNING_KEY": "gpg:bot@example.org", "GNUPGHOME": str(home)})
        assert key is not None
        job = await harness.admit()
        store = harness.mirror(harness.place().repository)
        verified = store.commit(changed(job.task.base), message="x\n", author=harness.bot.person, date=harness.now())
        signed = store.sign(verified, key)
        Git(f"--git-dir={store.path}")("verify-commit", signed, env=key.variables)
        assert (store.sign(verified, key), store.parts(signed).tree) == (signed, store.parts(verified).tree)
    finally:
        subprocess.run(["gpgconf", "--kill", "all"], env=environment, check=True)  # noqa: ASYNC221


def test_key_that_is_not_there_is_told_at_the_start() -> None:
    assert SigningKey.of({}) is None
    with pytest.raises(SettingsError, match=r"1 setting"):
        SigningKey.of({"AGENT_FIX_SIGNING_KEY": "/nowhere/key"})


def test_effects_of_older_versions_have_no_signature() -> None:
    recipe = CommitRecipe(patch="", message="x", author={"name": "a", "email": "b"}, date="2026-01-01T00:00:00Z")  # type: ignore[arg-type]
    effect = OpenDraftPullRequest(branch="b", commit="c", recipe=recipe, base="main", title="t", body="b")
    old = effect.model_dump(exclude={"signed"})
    assert OpenDraftPullRequest.model_validate(old).signed == ""
