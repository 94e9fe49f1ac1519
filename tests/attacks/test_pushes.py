"""Pushes where they must not go (S18, S19): stale leases, races, names that are no branch's. Real git over HTTP."""

import random
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app.core.patch import FileChange, Patch
from app.core.task import Person
from app.github.base import NeedsHumanAction
from app.github.effects import GitHubForge
from app.repo.git_store import GitError, GitStore
from app.repo.remote import PushResult, Remote, fetch, push
from tests.support.github.fake import FakeGitHubSetup, make_fake_github, served
from tests.support.github.publishing import BRANCH, forge_at
from tests.support.github.publishing import commit as commit_of
from tests.support.repositories import git

BOT = Person(name="bot", email="bot@users.noreply.example")


@dataclass
class Racing:
    """The fake GitHub on a port, and a store whose commits race for one branch."""

    fake_github: FakeGitHubSetup
    remote: Remote
    store: GitStore
    base: str
    made: int = field(default=0)

    def commit(self, parent: str = "") -> str:
        self.made += 1
        change = FileChange(path="app/money.py", mode="100644", content=f"{self.made}\n".encode())
        patch = Patch(base=parent or self.base, changes=(change,))
        return self.store.commit(patch, message="Fix\n", author=BOT, date=self.fake_github.world.now)

    def push(self, commit: str, expected: str | None) -> PushResult:
        return push(self.store, self.remote, BRANCH, commit, expected=expected)

    @property
    def tip(self) -> str | None:
        return self.fake_github.repo.branches.get(BRANCH)

    def human(self) -> str:
        return self.fake_github.world.push_as_human(
            self.fake_github.repo, BRANCH, {f"mine{self.made}.txt": f"{self.made}\n"}
        )


@pytest.fixture
def fake_github(tmp_path: Path) -> FakeGitHubSetup:
    return make_fake_github(tmp_path)


@pytest.fixture
def racing(fake_github: FakeGitHubSetup, tmp_path: Path) -> Iterator[Racing]:
    store = GitStore(tmp_path / "store.git")
    store.ensure()
    token, _ = fake_github.github.gate.mint(fake_github.installation, {"permissions": {"contents": "write"}})
    base = fake_github.repo.branches["main"]
    with served(fake_github.github) as address:
        remote = Remote(f"{address}/ada/sample.git", token)
        fetch(store, remote, base)
        yield Racing(fake_github, remote, store, base)


def test_a_stale_lease_is_refused_and_the_same_commit_again_is_nothing(racing: Racing) -> None:
    first = racing.commit()
    assert racing.push(first, None) == PushResult()
    assert racing.push(first, None) == PushResult(), "said again, with the lease of before"
    assert len(racing.fake_github.repo.pushes) == 1
    theirs = racing.human()
    for expected in (first, None, racing.base):
        late = racing.push(racing.commit(first), expected)
        assert late.stale
        assert late.refused
        assert racing.tip == theirs
    assert len(racing.fake_github.repo.pushes) == 1, "the server's hook was not even asked"


def test_a_lease_on_a_branch_that_was_deleted_is_stale(racing: Racing) -> None:
    first = racing.commit()
    racing.push(first, None)
    git(racing.fake_github.repo.path, "update-ref", "-d", f"refs/heads/{BRANCH}")
    assert racing.push(racing.commit(first), first).stale
    assert racing.tip is None


@pytest.mark.parametrize("there", [False, True], ids=["new", "known"])
def test_one_of_eight_concurrent_pushes_with_the_same_lease_succeeds(racing: Racing, there: bool) -> None:
    expected = None
    if there:
        expected = racing.commit()
        racing.push(expected, None)
    before = len(racing.fake_github.repo.pushes)
    commits = [racing.commit() for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        ends = list(pool.map(lambda commit: racing.push(commit, expected), commits))
    won = [commit for commit, end in zip(commits, ends, strict=True) if not end.refused]
    assert won == [racing.tip]
    accepted = [line for line in racing.fake_github.repo.pushes[before:] if won[0] in str(line)]
    assert len(accepted) == 1


@pytest.mark.parametrize("seed", range(3))
def test_whatever_the_order_no_persons_commit_is_lost(racing: Racing, seed: int) -> None:
    """Two publishers that look at different times, and a person between them: what the person pushed stays."""
    rng = random.Random(seed)
    looked: list[str | None] = [None, None]
    people: list[str] = []
    for _ in range(14):
        who = rng.randrange(3)
        match rng.choice(["look", "push", "push"]):
            case _ if who == 2:
                people.append(racing.human())
            case "look":
                looked[who] = racing.tip
                if tip := racing.tip:
                    fetch(racing.store, racing.remote, tip)
            case _:
                racing.push(racing.commit(looked[who] or ""), looked[who])
        for commit in people:
            git(racing.fake_github.repo.path, "merge-base", "--is-ancestor", commit, BRANCH)


NAMES = r"""-x --force --delete -D @ @{ @{-1} @{u} a..b .. . ./a a/./b a/../b ../main ../../HEAD a. a.lock a/.lock
    x.lock/y .a a/.b a//b /a a/ a~1 a^ a^{} a:b :main a?b a*b a[b a\b HEAD refs/heads/main refs/heads/a
    refs/tags/v1 refs/x"""
ODD = ["", " ", "a b", "a\nb", "a\tb", "a\rb", "a\0b", "a\x7fb", "a\x1b[31m", "main\n", "\u202emain", "ma\u200bin",
       "\u2066a\u2069", "a\ufeff", "a\u2028b", "a\udcff", "0123456789abcdef0123456789abcdef01234567"]  # fmt: skip
EVERY = [*NAMES.split(), *ODD]


def test_the_corpus_has_at_least_forty_branch_names() -> None:
    assert len(set(EVERY)) >= 40


def test_an_invalid_branch_name_is_not_pushed(racing: Racing) -> None:
    refs, asked = git(racing.fake_github.repo.path, "for-each-ref"), len(racing.fake_github.github.calls)
    for name in EVERY:
        for expected in (None, racing.base):
            with pytest.raises(GitError, match=r"not a valid branch name|check-ref-format"):
                push(racing.store, racing.remote, name, racing.base, expected=expected)
    assert git(racing.fake_github.repo.path, "for-each-ref") == refs
    assert len(racing.fake_github.github.calls) == asked
    assert not racing.fake_github.repo.pushes


def test_a_valid_branch_name_is_pushed_to_that_branch_only(racing: Racing) -> None:
    refs = {f"refs/heads/main {racing.base}"}
    for name in ("agent-fix/issue-7-totals", "a", "ünïcode", "修复", "a-b_c.d/e", "it's", "a@b", "a{b}", "#7", "+main"):
        commit = racing.commit()
        assert push(racing.store, racing.remote, name, commit, expected=None) == PushResult()
        refs.add(f"refs/heads/{name} {commit}")
        there = git(racing.fake_github.repo.path, "for-each-ref", "--format=%(refname) %(objectname)")
        assert set(there.splitlines()) == refs


def test_only_a_commits_full_id_is_pushed(racing: Racing) -> None:
    for commit in ("HEAD", "main", "", "-x", ":", "0" * 39, "G" * 40):
        with pytest.raises(ValueError, match="full commit id"):
            racing.push(commit, None)
    assert racing.tip is None


@pytest.fixture
async def forge(fake_github: FakeGitHubSetup, tmp_path: Path) -> AsyncIterator[GitHubForge]:
    async with forge_at(fake_github, tmp_path) as forge:
        yield forge


async def test_pull_request_approval_is_left_to_people(forge: GitHubForge, fake_github: FakeGitHubSetup) -> None:
    head = fake_github.repo.branches["main"]
    for name in EVERY:
        for effect in (forge.ensure_branch(name, head), forge.advance_branch(name, head, head)):
            with pytest.raises(NeedsHumanAction) as caught:
                await effect
            assert "configuration" in caught.value.hint, name
    assert fake_github.repo.branches == {"main": head}
    assert not fake_github.repo.pushes


async def test_a_lease_never_covers_another_branch_than_ours(forge: GitHubForge, fake_github: FakeGitHubSetup) -> None:
    """A name that begins like a person's branch, and is none of it."""
    theirs = fake_github.world.push_as_human(fake_github.repo, "agent-fix/issue", {"mine.txt": "mine\n"})
    ours = await commit_of(forge, fake_github, "half = 0.25\n")
    assert await forge.ensure_branch("agent-fix/issue/1", ours) == "agent-fix-issue-1"
    assert fake_github.repo.branches["agent-fix/issue"] == theirs
