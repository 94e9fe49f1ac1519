"""A hostile model controls every word and byte of a job; what reaches GitHub obeys policy and has no secret."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.config.repository import RepoConfig
from app.core.patch import FileChange, Patch
from app.core.redaction import Redactor
from app.core.task import Person
from app.github.models import ActorPermission, GitHubIssue, Repository
from app.jobs.store import JobRow, JobWithContext
from app.publish.effects import EFFECT_ADAPTER, CommitRecipe, OpenDraftPullRequest, PushCommits, UpdateStatusComment
from app.publish.policy import LiveState, PublishRequest, change_refusal, live_refusal, request_refusal
from app.publish.secret_scan import HELD_BACK, SecretFound, SecretScan
from app.verify.gates.candidate import CandidatePatch
from tests.attacks.test_patch_policy import BASE, FORBIDDEN
from tests.support.github.authentication import app_key
from tests.support.github.fake import FakeGitHubSetup, make_fake_github
from tests.support.memory_tree import MemoryTree
from tests.support.publisher_harness import PublisherHarness, publisher_harness
from tests.support.repositories import git
from tests.support.secret_canaries import canary, find_canary, forms
from tests.support.server_jobs import BOT, START, issue_ref, job, job_context
from tests.unit.publish.test_markdown import CASES, JOINED
from tests.unit.publish.test_pull_request_text import assert_nothing_active
from tests.unit.publish.test_pull_request_text import hostile as hostile_facts
from tests.unit.publish.test_status_text import assert_no_more_than_ours

OURS = re.compile(r"http://127\.0\.0\.1:\d+\S*|https?://github\.example/\S*|\[job j\d+\]\(\S+\)")
CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")


@pytest.fixture
def fake_github(tmp_path: Path) -> FakeGitHubSetup:
    return make_fake_github(tmp_path / "ground")


@pytest.fixture
async def harness(fake_github: FakeGitHubSetup, tmp_path: Path) -> AsyncIterator[PublisherHarness]:
    async with publisher_harness(fake_github, tmp_path / "server") as harness:
        yield harness


@pytest.fixture(autouse=True)
def folders(tmp_path: Path) -> None:
    for name in ("ground", "server"):
        (tmp_path / name).mkdir(exist_ok=True)


@pytest.mark.parametrize("case", [JOINED, *CASES[::16]])
async def test_the_corpus_reaches_github_as_text_only(
    harness: PublisherHarness, fake_github: FakeGitHubSetup, case: str
) -> None:
    """S23 to S25, all the way: title, plan, summary, verification, log, notes, reason."""
    made = await harness.admit(notes=(case,), login=case)
    issue = made.task.issue.model_copy(update={"title": case})
    made = made.model_copy(update={"task": made.task.model_copy(update={"issue": issue})})
    facts = hostile_facts(case)
    harness.store.replace(made)
    for kind in ("plan", "command", "note", "verification", "warning"):
        harness.store.add_progress(made.id, kind, case)
    await harness.everything()
    result = {"plan": facts.result.plan, "verification": facts.verification, "summary": case, "notes": (case,)}
    await harness.work(made, result=result)
    fake_github.world.tick(11)
    await harness.everything()
    fake_github.world.tick(11)
    await harness.everything()
    (pull,) = fake_github.repo.pulls
    (check,) = fake_github.repo.checks
    (status,) = harness.comments()
    assert_nothing_active(OURS.sub("", pull.body).replace("Fixes ", "Issue ", 1).replace("Issue #1:", "Issue:", 1))
    assert_no_more_than_ours(_without_mark(OURS.sub("", status)))
    assert_nothing_active(check.summary or "")
    message = git(fake_github.repo.path, "show", "-s", "--format=%B", fake_github.repo.branches[made.branch])
    for text in (pull.title, pull.body, status, check.summary or "", check.title or "", message):
        assert not CONTROL.search(text.encode())
        assert "\u202e" not in text
    subject_and_body = message.partition("Co-authored-by:")[0].replace("[skip ci]", "")
    assert not re.search(r"(?i)@\w|#\d|gh-\d|://|\[skip", subject_and_body + pull.title)


def _without_mark(text: str) -> str:
    return re.sub(r"\n\n<!-- agent-fix:job:j\d+ \{[^<>]+\} -->$", "", text)


def wish(patch: Patch, **changes: Any) -> PublishRequest:
    made = job("j1", **changes.pop("job", {}))
    row = JobRow(made, "publishing", "", None, False, False, None, 1, START)
    where = JobWithContext(row, job_context(**changes), ready=True, crashes=0, handed_over=True)
    recipe = CommitRecipe(patch="p", message="m\n\n[skip ci]\n", author=BOT, date=START)
    effect = OpenDraftPullRequest(branch=made.branch, commit="c" * 40, recipe=recipe, base="main", title="t", body="b")
    return PublishRequest(where, issue_ref(), effect, patch)


@pytest.mark.parametrize("path", FORBIDDEN)
def test_the_publisher_refuses_forbidden_paths_too(path: str) -> None:
    """S12, S13: whatever a worker was made to believe."""
    changes: tuple[dict[str, Any], ...] = (
        {"content": b"x"},
        {"content": None},
        {"content": b"../src/app.py", "mode": "120000"},
        {"content": b"x", "mode": "100755"},
    )
    for change in changes:
        values = {"path": path, "mode": "100644"} | change
        patch = Patch(base="a" * 40, changes=(FileChange.model_validate(values),))
        base = MemoryTree({**BASE, path: b"old"})
        assert change_refusal(wish(patch), CandidatePatch(base, patch), RepoConfig()), (path, change)


def test_conflict_markers_are_not_published() -> None:
    marked = b"<<<<<<< ours\na\n=======\nb\n>>>>>>> theirs\n"
    empty = Patch(base="a" * 40)
    tree = MemoryTree({"a.py": marked, "b.py": b"fine\n"})
    resolving = wish(empty, job={"conflicts": ("a.py", "b.py", "gone.py")})
    refused = change_refusal(resolving, CandidatePatch(tree, empty), RepoConfig())
    assert refused is not None
    assert "a.py:1: contains a conflict marker" in refused.message
    mended = Patch(base="a" * 40, changes=(FileChange(path="a.py", mode="100644", content=b"both\n"),))
    resolved = wish(mended, job={"conflicts": ("a.py",)})
    assert change_refusal(resolved, CandidatePatch(tree, mended), RepoConfig()) is None


BRANCHES = (
    "main", "agent-fix", "agent-fix/", "/agent-fix/x", "-x/y", "--upload-pack=x/y", "agent-fix/../main",
    "agent-fix/a..b", "agent-fix/a b", "agent-fix/a\nb", "agent-fix/a\tb", "agent-fix/a~1", "agent-fix/a^",
    "agent-fix/a:b", "agent-fix/a?", "agent-fix/a*", "agent-fix/a[b", "agent-fix/a\\b", "agent-fix/@{",
    "agent-fix/@{u}", "refs/heads/main", "refs/heads/agent-fix/x", "heads/main", "HEAD", "HEAD/x", "@",
    "origin/main", "agent-fix\u200b/x", "agent-fix/\u202ex", "Agent-Fix/x", "agent-fix/x\0y", "agent-fix/ä",
    "feature/x", "release/1", "agent-fix//x", "gh-pages", "$(id)/x", "agent-fix/$(id)", "agent-fix/`id`",
    "agent-fix/x;y",
)  # fmt: skip


def now(**changes: Any) -> LiveState:
    values: dict[str, Any] = {
        "installation": 1,
        "repository": Repository(
            id=2, owner="ada", name="sample", default_branch="main", private=False, archived=False
        ),
        "requester": requester("write"),
        "issue": GitHubIssue(
            number=3, title="t", body="b", author=7, open=True, locked=False, labels=(), assignees=(),
            pull_request=False, updated_at=START,
        ),
        "pull": None,
        "config": RepoConfig(),
    }  # fmt: skip
    return LiveState(**(values | changes))


def requester(permission: str, kind: str = "User") -> ActorPermission:
    person = Person(name="Ada", email="7+ada@users.noreply.forge.example")
    return ActorPermission(id=7, login="ada", kind=kind, permission=permission, person=person)


def test_foreign_branch_names_are_refused() -> None:
    """S19."""
    assert len(set(BRANCHES)) == 40
    ours = wish(Patch(base="a" * 40))
    assert live_refusal(ours, now()) is None
    for name in BRANCHES:
        named = PublishRequest(ours.where, ours.issue_ref, ours.effect.model_copy(update={"branch": name}), ours.patch)
        refused = live_refusal(named, now())
        assert refused is not None, name
    default = now(repository=now().repository.model_copy(update={"default_branch": ours.effect.branch}))
    assert live_refusal(ours, default) is not None, "also where it is the repository's own by name"


@pytest.mark.parametrize("kind", ["User", "Bot", "Organization", "Mannequin"])
@pytest.mark.parametrize("permission", ["admin", "write", "read", "none"])
def test_only_requesters_with_write_access_or_allowed_apps_may_publish(permission: str, kind: str) -> None:
    """S2, S3: people with write access, and bots only while the operator still lets their App ask."""
    ours = wish(Patch(base="a" * 40))
    refused = live_refusal(ours, now(requester=requester(permission, kind)))
    person = kind == "User" and permission in {"admin", "write"}
    assert (refused is None) == person
    for apps, may in ((frozenset({5}), True), (frozenset({6}), False)):
        by_bot = wish(Patch(base="a" * 40), app=5)
        let_in = live_refusal(by_bot, now(requester=requester(permission, kind), allowed_apps=apps))
        assert (let_in is None) == (person or (kind == "Bot" and may))
    others = now(requester=requester(permission, kind), config=RepoConfig(allowed_actors=("grace",)))
    assert live_refusal(ours, others) is not None


@pytest.mark.parametrize("name", ["text", "path", "content", "message"])
def test_no_encoding_of_a_secret_leaves(name: str) -> None:
    """S11: every encoding of a thief, in text, names, bytes and messages."""
    secret = canary()
    quarantine = SecretScan(Redactor([secret]))
    ours = wish(Patch(base="a" * 40)).effect
    for form in forms(secret):
        hidden = b"before " + form + b" after"
        text = hidden.decode("utf-8", "replace")
        if name == "text":
            held = quarantine.checked("j1", UpdateStatusComment(body=text))
            assert isinstance(held, UpdateStatusComment)
            assert held.body == HELD_BACK
            continue
        recipe = CommitRecipe(patch="p", message=text, author=BOT, date=START)
        path, content = (text, b"x") if name == "path" else ("a", hidden)
        change = FileChange(path=path, mode="100644", content=content)
        leave: Callable[[], object] = partial(quarantine.refuse_patch, "j1", Patch(base="a" * 40, changes=(change,)))
        if name == "message":
            leave = partial(quarantine.checked, "j1", ours.model_copy(update={"recipe": recipe}))
        with pytest.raises(SecretFound) as caught:
            leave()
        assert secret not in caught.value.message


def test_oversized_or_unknown_effects_are_refused() -> None:
    """S10, S30: effects reject unknown fields and long texts."""
    for bad in (
        {"kind": "status_comment", "body": "x" * 60_001},  # it shows the diff of an attempt that was not published
        {"kind": "thread_reply", "comment": 1, "body": "x" * 8_001},
        {"kind": "follow_up", "section": "x" * 60_001},
        {"kind": "status_comment", "body": "x", "number": 4},
        {"kind": "labels_and_review", "branch": "x", "repository": "other/one"},
        {"kind": "approve"},
    ):
        with pytest.raises(ValueError):
            EFFECT_ADAPTER.validate_python(bad)


async def test_no_token_and_no_key_is_left_in_any_file(
    tmp_path: Path, fake_github: FakeGitHubSetup, caplog: Any
) -> None:
    """S37: database, write-ahead log, mirrors, and what was logged."""
    fake_github.world.long_tokens = True
    async with publisher_harness(fake_github, tmp_path / "server") as harness:
        await harness.work(await harness.admit())
        fake_github.github.faults.clear()
        await harness.everything()
        tokens = {f"token {number}": value for number, value in enumerate(fake_github.world.tokens)}
        assert len(tokens) > 5
        key = app_key()[0].splitlines()[5]
        found = await asyncio.to_thread(find_canary, {**tokens, "key": key}, tmp_path / "server")
    assert found == []
    assert not [name for name, value in tokens.items() if value in caplog.text]


def test_a_push_has_to_follow_the_branchs_last_commit() -> None:
    """S18: what is on the branch stays below ours, and an empty new branch is none."""
    patch = Patch(base="a" * 40, changes=(FileChange(path="a", mode="100644", content=b"x"),))
    opening = wish(patch)
    assert request_refusal(opening) is None
    assert request_refusal(wish(Patch(base="a" * 40))) is not None
    parents = {"publish_target": "same_branch", "expected": "e" * 40}
    recipe = opening.effect.recipe
    push = PushCommits(branch=opening.effect.branch, commit="c" * 40, recipe=recipe, expected="e" * 40)
    beside = wish(patch, **parents)
    refused = request_refusal(PublishRequest(beside.where, beside.issue_ref, push, patch))
    assert refused is not None
    assert refused.message == "The commit is not based on the branch's newest commit."
    merging = wish(patch, **parents, parents=("e" * 40, "b" * 40))
    merged = push.model_copy(update={"recipe": recipe.model_copy(update={"parents": ("e" * 40, "b" * 40)})})
    assert request_refusal(PublishRequest(merging.where, merging.issue_ref, merged, patch)) is None
