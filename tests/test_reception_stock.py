"""Base commits are brought, looked at and merged over real git before anybody works; what cannot be is told in time."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.gitstore import GitStore
from app.patch import Patch
from app.publish.intent import PushCommits
from app.result import Result
from tests.fakes.github.faults import Fault
from tests.fakes.github.world import Issue
from tests.front_desk import FrontDesk, front_desk, mirrors
from tests.repositories import git

BRANCH = "agent-fix/issue-1-totals"
FOUR_LINES = "one = 1\ntwo = 2\nthree = 3\nfour = 4\nfive = 5\nsix = 6\nseven = 7\n"


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[FrontDesk]:
    async with front_desk(tmp_path, git=True) as made:
        yield made


def mirror(desk: FrontDesk) -> GitStore:
    return mirrors(desk.directory)(desk.repo.id)


async def stocked(desk: FrontDesk, rounds: int = 5) -> None:
    for _ in range(rounds):
        await desk.reception.stock()
        desk.world.tick(400)


async def test_the_base_commit_is_brought_and_the_job_is_ready(desk: FrontDesk) -> None:
    await desk.labels()
    assert await desk.reception.stock() == 1
    assert desk.job.ready
    assert mirror(desk).keeps(desk.repo.branches["main"])
    assert mirror(desk).tree(desk.job.job.task.base).read("app/money.py") == b"half = 0.5\n"
    assert await desk.reception.stock() == 0


async def test_what_the_history_tells_is_there_for_finding_places(desk: FrontDesk) -> None:
    desk.world.push_as_human(desk.repo, "main", {"app/money.py": "half = 0.50\n"})
    await desk.labels()
    await desk.reception.stock()
    assert b"app/money.py" in mirror(desk).log(desk.job.job.task.base, 10)


async def test_no_token_stays_behind(desk: FrontDesk) -> None:
    await desk.labels()
    await desk.reception.stock()
    assert desk.world.tokens
    files = [path.read_bytes() for path in (desk.directory / "mirrors").rglob("*") if path.is_file()]
    assert not [token for token in desk.world.tokens for content in files if token.encode() in content]


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
async def test_what_no_work_can_be_done_on_is_refused_before_money_is_spent(
    desk: FrontDesk, files: dict[str, str], words: str
) -> None:
    desk.world.push_as_human(desk.repo, "main", files)
    await desk.labels()
    await desk.reception.stock()
    assert desk.job.row.state == "error"
    assert words in desk.job.row.reason
    assert "ada/sample" in desk.job.row.reason
    assert not desk.job.ready


async def test_a_door_that_closed_ends_the_job(desk: FrontDesk) -> None:
    await desk.labels()
    desk.ground.installation.suspended = True
    await desk.reception.stock()
    assert desk.job.row.state == "no_access"


async def test_a_github_that_stumbles_is_asked_again_ever_more_rarely(desk: FrontDesk) -> None:
    await desk.labels()
    down = Fault("GET /repos/ada/sample", 502, times=10_000)
    desk.ground.github.faults.append(down)
    tried = 0
    for _ in range(40):
        tried += await desk.reception.stock()
        desk.world.tick(5)
    assert 3 <= tried <= 8
    assert "tried again" in desk.job.row.reason
    down.times = 0
    for _ in range(60):
        await desk.reception.stock()
        desk.world.tick(5)
    assert desk.job.ready


async def test_a_commit_that_never_comes_is_given_up_with_the_reason(desk: FrontDesk) -> None:
    await desk.labels()
    desk.ground.github.faults.append(Fault("GET /repos/ada/sample", 502, times=10_000))
    for _ in range(100):
        await desk.reception.stock()
        desk.world.tick(300)
    assert desk.job.row.state == "error"
    assert "502" in desk.job.row.reason


async def test_the_head_of_a_fork_is_had_from_the_pull_request(desk: FrontDesk) -> None:
    pull = desk.open_pull(fork=999)
    head = desk.repo.branches["topic"]
    git(desk.repo.path, "update-ref", f"refs/pull/{pull.number}/head", head)
    git(desk.repo.path, "update-ref", "-d", "refs/heads/topic")
    git(desk.repo.path, "config", "uploadpack.allowAnySHA1InWant", "false")
    desk.world.add_repo(desk.owner, "fork", {"a.txt": "a\n"})
    git(desk.repo.path, "update-ref", "refs/heads/topic", head)
    await desk.says("/agent fix it", pull)
    git(desk.repo.path, "update-ref", "-d", "refs/heads/topic")
    await desk.reception.stock()
    assert desk.job.ready
    assert mirror(desk).keeps(head)


# Merges and CI: commits that no model has a part in.


async def our_pull(desk: FrontDesk, ours: str, theirs: str) -> Issue:
    """A pull request of ours, and a base that moved on since."""
    desk.world.push_as_human(desk.repo, "main", {"numbers.py": FOUR_LINES})
    desk.world.push_as_human(desk.repo, BRANCH, {"numbers.py": ours})
    desk.world.push_as_human(desk.repo, "main", {"numbers.py": theirs})
    return desk.our_pull(BRANCH)


def pushed(desk: FrontDesk) -> PushCommits:
    (wish,) = [wish for _, wish in desk.wishes() if isinstance(wish, PushCommits)]
    return wish


async def test_a_branch_without_conflicts_is_brought_up_without_a_model(desk: FrontDesk) -> None:
    pull = await our_pull(desk, FOUR_LINES.replace("1", "10"), FOUR_LINES.replace("7", "70"))
    head, tip = desk.repo.branches[BRANCH], desk.repo.branches["main"]
    await desk.says("/agent rebase", pull)
    assert (desk.job.commission.aim, desk.job.commission.parents) == ("conflicts", (head, tip))
    await desk.reception.stock()
    wish, row = pushed(desk), desk.job.row
    assert (wish.branch, wish.expected, row.state) == (BRANCH, head, "publishing")
    assert wish.recipe.parents == (head, tip)
    assert wish.recipe.message == f"Merge branch 'main' into {BRANCH}\n\n[skip ci]\n"
    result = Result.model_validate(row.result)
    assert result.exit_status == "pr_updated"
    assert "Nothing was executed" in result.summary
    store = mirror(desk)
    merged = FOUR_LINES.replace("1", "10").replace("7", "70").encode()
    assert store.tree(wish.commit).read("numbers.py") == merged
    assert git(store.path, "rev-list", "--parents", "-n1", wish.commit).split()[1:] == [head, tip]


async def test_the_commit_can_be_made_again_from_its_recipe(desk: FrontDesk) -> None:
    pull = await our_pull(desk, FOUR_LINES.replace("1", "10"), FOUR_LINES.replace("7", "70"))
    await desk.says("/agent rebase", pull)
    await desk.reception.stock()
    wish, job = pushed(desk), desk.job.job
    patch = Patch.model_validate_json(desk.books.blobs(job.id).get(wish.recipe.patch))
    assert (patch.base, patch.changes) == (job.task.base, ())
    how = {"message": wish.recipe.message, "author": wish.recipe.author, "date": wish.recipe.date}
    assert mirror(desk).commit(patch, parents=wish.recipe.parents, **how) == wish.commit  # type: ignore[arg-type]


async def test_conflicts_are_work_for_a_model(desk: FrontDesk) -> None:
    pull = await our_pull(desk, FOUR_LINES.replace("1", "10"), FOUR_LINES.replace("1", "100"))
    head, tip = desk.repo.branches[BRANCH], desk.repo.branches["main"]
    await desk.says("/agent rebase and keep the larger one", pull)
    await desk.reception.stock()
    job, commission = desk.job.job, desk.job.commission
    assert (desk.job.ready, desk.job.row.state) == (True, "queued")
    assert (job.conflicts, commission.parents, commission.expected) == (("numbers.py",), (head, tip), head)
    assert b"<<<<<<<" in mirror(desk).tree(job.task.base).read("numbers.py")
    assert job.task.request.endswith("and keep the larger one")


async def test_made_twice_it_is_the_same_once(desk: FrontDesk) -> None:
    """Stock dies after the wish and before the handing over: the next one wishes for the very same."""
    pull = await our_pull(desk, FOUR_LINES.replace("1", "10"), FOUR_LINES.replace("7", "70"))
    await desk.says("/agent rebase", pull)
    await desk.reception.stock()
    first = pushed(desk)
    desk.put("queued")
    await desk.reception.stock()
    assert pushed(desk) == first


async def test_a_branch_that_is_up_to_date_is_left_alone(desk: FrontDesk) -> None:
    pull = desk.our_pull(BRANCH)
    await desk.says("/agent rebase", pull)
    assert desk.jobs() == []
    assert "has everything of `main` already" in desk.answer


async def test_ci_gets_its_empty_commit(desk: FrontDesk) -> None:
    pull = desk.our_pull(BRANCH)
    head = desk.repo.branches[BRANCH]
    await desk.says("/agent ci", pull)
    await desk.reception.stock()
    wish = pushed(desk)
    assert (wish.expected, wish.recipe.parents, desk.job.row.state) == (head, (), "publishing")
    assert "[skip ci]" not in wish.recipe.message
    store = mirror(desk)
    assert git(store.path, "rev-parse", f"{wish.commit}^{{tree}}") == git(store.path, "rev-parse", f"{head}^{{tree}}")


async def test_a_push_to_the_base_begins_to_resolve_what_conflicts_by_then(desk: FrontDesk) -> None:
    pull = await our_pull(desk, FOUR_LINES.replace("1", "10"), FOUR_LINES.replace("1", "100"))
    assert pull.pull is not None
    await desk.says("/agent status", pull)
    await desk.labels()
    desk.books.queue.end(desk.job.job.id, "stopped", "")
    for mergeable, jobs in ((True, 1), (False, 2)):
        pull.pull.mergeable = mergeable
        desk.world.push_as_human(desk.repo, "main", {"other.py": f"{mergeable}\n"})
        await desk.hooks.pushed(desk.repo, desk.ground.installation, desk.owner, "main")
        await desk.settle()
        assert len(desk.jobs()) == jobs
    (job,) = [each for each in desk.jobs() if each.commission.pull == pull.number]
    assert (job.commission.aim, job.commission.login) == ("conflicts", "")
    assert desk.books.roster.rounds(desk.repo.id, pull.number) == 1
    desk.books.queue.end(job.job.id, "error", "")
    await desk.hooks.pushed(desk.repo, desk.ground.installation, desk.person("grace"), "main")
    await desk.settle()
    assert len(desk.jobs()) == 2, "the same two commits are not tried a second time"


async def test_whether_it_can_be_merged_is_waited_for(desk: FrontDesk) -> None:
    pull = await our_pull(desk, FOUR_LINES.replace("1", "10"), FOUR_LINES.replace("1", "100"))
    assert pull.pull is not None
    await desk.labels()
    await desk.hooks.pushed(desk.repo, desk.ground.installation, desk.owner, "main")
    for _ in range(3):
        await desk.reception.next()
        desk.world.tick(5)
    assert len(desk.jobs()) == 1
    pull.pull.mergeable = False
    await desk.settle()
    assert len(desk.jobs()) == 2


async def test_conflicts_are_left_to_people_where_they_want_that(desk: FrontDesk) -> None:
    pull = await our_pull(desk, FOUR_LINES.replace("1", "10"), FOUR_LINES.replace("1", "100"))
    assert pull.pull is not None
    pull.pull.mergeable = False
    desk.configure("iterate: {conflicts: false}\n")
    await desk.labels()
    await desk.hooks.pushed(desk.repo, desk.ground.installation, desk.owner, "main")
    await desk.settle()
    assert len(desk.jobs()) == 1
