"""Base commits are fetched, checked and merged with real git before the work; failures are reported before it."""

from collections.abc import AsyncIterator
from errno import ENOSPC
from pathlib import Path

import pytest

from app.core.job import JobResult
from app.core.patch import Patch
from app.publish.effects import PushCommits
from app.repo.git_store import GitStore
from app.triggers.loops import TriggerLoops
from tests.support.event_harness import DEFAULTS, EventHarness, event_harness, mirrors
from tests.support.github.faults import Fault
from tests.support.github.world import Issue
from tests.support.repositories import git

BRANCH = "agent-fix/issue-77-rates"
FOUR_LINES = "one = 1\ntwo = 2\nthree = 3\nfour = 4\nfive = 5\nsix = 6\nseven = 7\n"


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[EventHarness]:
    async with event_harness(tmp_path, git=True) as made:
        yield made


def mirror(harness: EventHarness) -> GitStore:
    return mirrors(harness.directory)(harness.repo.id)


async def stocked(harness: EventHarness, rounds: int = 5) -> None:
    for _ in range(rounds):
        await harness.trigger_loops.fetch_base_commits()
        harness.world.tick(400)


async def test_the_base_commit_is_brought_and_the_job_is_ready(harness: EventHarness) -> None:
    await harness.labels()
    assert await harness.trigger_loops.fetch_base_commits() == 1
    assert harness.job.ready
    assert mirror(harness).keeps(harness.repo.branches["main"])
    assert mirror(harness).tree(harness.job.job.task.base).read("app/money.py") == b"half = 0.5\n"
    assert await harness.trigger_loops.fetch_base_commits() == 0


async def test_a_rate_limit_while_fetching_is_the_reason_why_the_job_waits(harness: EventHarness) -> None:
    await harness.labels()
    harness.fake_github.github.faults.append(Fault("GET /repos/ada/sample", 429, "{}", {"retry-after": "900"}))
    await harness.trigger_loops.fetch_base_commits()
    assert not harness.job.ready
    assert harness.job.row.reason == "The repository's files cannot be fetched at the moment; agent-fix will try again."
    harness.world.tick(901)
    await harness.trigger_loops.fetch_base_commits()
    assert harness.job.ready


def full_disk(repository: int) -> GitStore:
    raise OSError(ENOSPC, "No space left on device")


async def test_a_full_disk_while_fetching_is_a_reason_to_wait_too(harness: EventHarness) -> None:
    await harness.labels()
    await TriggerLoops(harness.app, harness.stores, full_disk, DEFAULTS).fetch_base_commits()
    assert not harness.job.ready
    assert harness.job.row.reason == "The repository's files cannot be fetched at the moment; agent-fix will try again."


async def test_history_is_used_to_find_relevant_files(harness: EventHarness) -> None:
    harness.world.push_as_human(harness.repo, "main", {"app/money.py": "half = 0.50\n"})
    await harness.labels()
    await harness.trigger_loops.fetch_base_commits()
    assert b"app/money.py" in mirror(harness).log(harness.job.job.task.base, 10)


async def test_no_token_stays_behind(harness: EventHarness) -> None:
    await harness.labels()
    await harness.trigger_loops.fetch_base_commits()
    assert harness.world.tokens
    files = [path.read_bytes() for path in (harness.directory / "mirrors").rglob("*") if path.is_file()]
    assert not [token for token in harness.world.tokens for content in files if token.encode() in content]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({".gitmodules": '[submodule "x"]\n\tpath = x\n\turl = https://example.invalid/x\n'}, "submodules"),
        (
            {
                ".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n",
                "a.bin": "version https://git-lfs.github.com/spec/v1\noid sha256:" + "a" * 64 + "\nsize 5\n",
            },
            "Git LFS",
        ),
    ],
)
async def test_submodules_and_lfs_pointers_do_not_stop_a_job(
    harness: EventHarness, files: dict[str, str], words: str
) -> None:
    harness.world.push_as_human(harness.repo, "main", files)
    await harness.labels()
    await harness.trigger_loops.fetch_base_commits()
    assert (harness.job.row.state, harness.job.ready) == ("queued", True), words


async def test_a_removed_installation_ends_the_job(harness: EventHarness) -> None:
    await harness.labels()
    harness.fake_github.installation.suspended = True
    await harness.trigger_loops.fetch_base_commits()
    assert harness.job.row.state == "no_access"


async def test_github_errors_are_retried_with_growing_pauses(harness: EventHarness) -> None:
    await harness.labels()
    down = Fault("GET /repos/ada/sample", 502, times=10_000)
    harness.fake_github.github.faults.append(down)
    tried = 0
    for _ in range(40):
        tried += await harness.trigger_loops.fetch_base_commits()
        harness.world.tick(5)
    assert 3 <= tried <= 8
    assert "will try again" in harness.job.row.reason
    down.times = 0
    for _ in range(60):
        await harness.trigger_loops.fetch_base_commits()
        harness.world.tick(5)
    assert harness.job.ready


async def test_a_commit_that_never_comes_is_given_up_with_the_reason(harness: EventHarness) -> None:
    await harness.labels()
    harness.fake_github.github.faults.append(Fault("GET /repos/ada/sample", 502, times=10_000))
    for _ in range(100):
        await harness.trigger_loops.fetch_base_commits()
        harness.world.tick(300)
    assert harness.job.row.state == "error"
    assert "502" in harness.job.row.reason


async def test_the_head_of_a_fork_is_had_from_the_pull_request(harness: EventHarness) -> None:
    pull = harness.open_pull(fork=999)
    head = harness.repo.branches["topic"]
    git(harness.repo.path, "update-ref", f"refs/pull/{pull.number}/head", head)
    git(harness.repo.path, "update-ref", "-d", "refs/heads/topic")
    git(harness.repo.path, "config", "uploadpack.allowAnySHA1InWant", "false")
    harness.world.add_repo(harness.owner, "fork", {"a.txt": "a\n"})
    git(harness.repo.path, "update-ref", "refs/heads/topic", head)
    await harness.says("/agent fix it", pull)
    git(harness.repo.path, "update-ref", "-d", "refs/heads/topic")
    await harness.trigger_loops.fetch_base_commits()
    assert harness.job.ready
    assert mirror(harness).keeps(head)


# Merges and CI: commits that no model has a part in.


async def our_pull(harness: EventHarness, ours: str, theirs: str) -> Issue:
    """A pull request of ours, and a base that moved on since."""
    harness.world.push_as_human(harness.repo, "main", {"numbers.py": FOUR_LINES})
    harness.world.push_as_human(harness.repo, BRANCH, {"numbers.py": ours})
    harness.world.push_as_human(harness.repo, "main", {"numbers.py": theirs})
    return harness.our_pull(BRANCH)


def pushed(harness: EventHarness) -> PushCommits:
    (effect,) = [effect for _, effect in harness.effects() if isinstance(effect, PushCommits)]
    return effect


async def test_a_branch_without_conflicts_is_brought_up_without_a_model(harness: EventHarness) -> None:
    pull = await our_pull(harness, FOUR_LINES.replace("1", "10"), FOUR_LINES.replace("7", "70"))
    head, tip = harness.repo.branches[BRANCH], harness.repo.branches["main"]
    await harness.says("/agent rebase", pull)
    assert (harness.job.job_context.aim, harness.job.job_context.parents) == ("conflicts", (head, tip))
    await harness.trigger_loops.fetch_base_commits()
    effect, row = pushed(harness), harness.job.row
    assert (effect.branch, effect.expected, row.state) == (BRANCH, head, "publishing")
    assert effect.recipe.parents == (head, tip)
    assert effect.recipe.message == f"Merge branch 'main' into {BRANCH}\n\n[skip ci]\n"
    result = JobResult.model_validate(row.result)
    assert result.exit_status == "pr_updated"
    assert "No test or check was run" in result.summary
    store = mirror(harness)
    merged = FOUR_LINES.replace("1", "10").replace("7", "70").encode()
    assert store.tree(effect.commit).read("numbers.py") == merged
    assert git(store.path, "rev-list", "--parents", "-n1", effect.commit).split()[1:] == [head, tip]


async def test_the_commit_can_be_made_again_from_its_recipe(harness: EventHarness) -> None:
    pull = await our_pull(harness, FOUR_LINES.replace("1", "10"), FOUR_LINES.replace("7", "70"))
    await harness.says("/agent rebase", pull)
    await harness.trigger_loops.fetch_base_commits()
    effect, job = pushed(harness), harness.job.job
    patch = Patch.model_validate_json(harness.stores.blobs(job.id).get(effect.recipe.patch))
    assert (patch.base, patch.changes) == (job.task.base, ())
    assert effect.recipe.commit(mirror(harness), patch) == effect.commit


async def test_conflicts_are_work_for_a_model(harness: EventHarness) -> None:
    pull = await our_pull(harness, FOUR_LINES.replace("1", "10"), FOUR_LINES.replace("1", "100"))
    head, tip = harness.repo.branches[BRANCH], harness.repo.branches["main"]
    await harness.says("/agent rebase and keep the larger one", pull)
    await harness.trigger_loops.fetch_base_commits()
    job, job_context = harness.job.job, harness.job.job_context
    assert (harness.job.ready, harness.job.row.state) == (True, "queued")
    assert (job.conflicts, job_context.parents, job_context.expected) == (("numbers.py",), (head, tip), head)
    assert b"<<<<<<<" in mirror(harness).tree(job.task.base).read("numbers.py")
    assert job.task.request.endswith("and keep the larger one")


async def test_made_twice_it_is_the_same_once(harness: EventHarness) -> None:
    """The publisher dies after it stored the effect and before the hand-over: the next one stores the same effect."""
    pull = await our_pull(harness, FOUR_LINES.replace("1", "10"), FOUR_LINES.replace("7", "70"))
    await harness.says("/agent rebase", pull)
    await harness.trigger_loops.fetch_base_commits()
    first = pushed(harness)
    harness.put("queued")
    await harness.trigger_loops.fetch_base_commits()
    assert pushed(harness) == first


async def test_a_branch_that_is_up_to_date_is_left_alone(harness: EventHarness) -> None:
    pull = harness.our_pull(BRANCH)
    await harness.says("/agent rebase", pull)
    assert harness.jobs() == []
    assert "already contains everything in `main`" in harness.answer


async def test_ci_gets_its_empty_commit(harness: EventHarness) -> None:
    pull = harness.our_pull(BRANCH)
    head = harness.repo.branches[BRANCH]
    await harness.says("/agent ci", pull)
    await harness.trigger_loops.fetch_base_commits()
    effect = pushed(harness)
    assert (effect.expected, effect.recipe.parents, harness.job.row.state) == (head, (), "publishing")
    assert "[skip ci]" not in effect.recipe.message
    store = mirror(harness)
    assert git(store.path, "rev-parse", f"{effect.commit}^{{tree}}") == git(store.path, "rev-parse", f"{head}^{{tree}}")


async def test_a_push_to_the_base_starts_resolving_conflicts(harness: EventHarness) -> None:
    pull = await our_pull(harness, FOUR_LINES.replace("1", "10"), FOUR_LINES.replace("1", "100"))
    assert pull.pull is not None
    await harness.says("/agent status", pull)
    await harness.labels()
    harness.stores.queue.end(harness.job.job.id, "stopped", "")
    for mergeable, jobs in ((True, 1), (False, 2)):
        pull.pull.mergeable = mergeable
        harness.world.push_as_human(harness.repo, "main", {"other.py": f"{mergeable}\n"})
        await harness.hooks.pushed(harness.repo, harness.fake_github.installation, harness.owner, "main")
        await harness.wait_until_handled()
        assert len(harness.jobs()) == jobs
    (job,) = [each for each in harness.jobs() if each.job_context.pull == pull.number]
    assert (job.job_context.aim, job.job_context.login) == ("conflicts", "")
    assert harness.stores.job_queries.follow_up_count(harness.repo.id, pull.number) == 1
    harness.stores.queue.end(job.job.id, "error", "")
    await harness.hooks.pushed(harness.repo, harness.fake_github.installation, harness.person("grace"), "main")
    await harness.wait_until_handled()
    assert len(harness.jobs()) == 2, "the same two commits are not tried a second time"


async def test_mergeability_is_awaited(harness: EventHarness) -> None:
    pull = await our_pull(harness, FOUR_LINES.replace("1", "10"), FOUR_LINES.replace("1", "100"))
    assert pull.pull is not None
    await harness.labels()
    await harness.hooks.pushed(harness.repo, harness.fake_github.installation, harness.owner, "main")
    for _ in range(3):
        await harness.trigger_loops.next_delivery()
        harness.world.tick(5)
    assert len(harness.jobs()) == 1
    pull.pull.mergeable = False
    await harness.wait_until_handled()
    assert len(harness.jobs()) == 2


async def test_conflicts_are_left_to_people_where_they_want_that(harness: EventHarness) -> None:
    pull = await our_pull(harness, FOUR_LINES.replace("1", "10"), FOUR_LINES.replace("1", "100"))
    assert pull.pull is not None
    pull.pull.mergeable = False
    harness.configure("iterate: {conflicts: false}\n")
    await harness.labels()
    await harness.hooks.pushed(harness.repo, harness.fake_github.installation, harness.owner, "main")
    await harness.wait_until_handled()
    assert len(harness.jobs()) == 1
