"""Only those who may write start anything, asked by number at this moment; whoever else asks is not even answered."""

from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path

import pytest

from app.reception.books import Defaults
from tests.fakes.github.views import issue_view
from tests.fakes.github.world import Issue, User
from tests.front_desk import DEFAULTS, FrontDesk, front_desk

ROLES = {
    "admin": True,
    "maintain": True,
    "write": True,
    "triage": False,
    "read": False,
    "none": False,
    "": False,
    "Write": False,
    "their own role": False,
}
EVENTS = (
    "label",
    "label on a pull request",
    "comment",
    "comment on a pull request",
    "line of a diff",
    "review",
    "review that asks for changes",
)
KINDS = ("User", "Bot", "Organization", "ghost")


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[FrontDesk]:
    async with front_desk(tmp_path) as made:
        yield made


async def ask(desk: FrontDesk, event: str, who: User, about: Issue, pull: Issue) -> None:
    match event:
        case "label":
            await desk.labels(about, by=who)
        case "label on a pull request":
            await desk.labels(pull, by=who)
        case "comment":
            await desk.says("/agent fix it", about, by=who)
        case "comment on a pull request":
            await desk.says("/agent fix it", pull, by=who)
        case "line of a diff":
            await desk.says_inline("/agent fix it", pull, by=who)
        case "review":
            await desk.reviews("/agent fix it", pull, who)
        case _:
            await desk.reviews("This is not it.", pull, who, "why 0.6?")


@pytest.mark.parametrize("event", EVENTS)
async def test_who_may_ask_is_one_table(desk: FrontDesk, event: str) -> None:
    """Nine roles, and each kind of account: a person with write access starts a job, and nobody else."""
    desk.configure("iterate: {max: 20}\n")
    pull = desk.our_pull() if event == "review that asks for changes" else desk.open_pull()
    started = set()
    for number, (role, kind) in enumerate(product(ROLES, KINDS)):
        login = f"u{number}[bot]" if kind == "Bot" else f"u{number}"
        who = desk.person(login, role, "User" if kind == "ghost" else kind)
        about = desk.world.open_issue(desk.repo, desk.owner, f"Issue {number}")
        if kind == "ghost":
            desk.hooks.held = True
            await ask(desk, event, who, about, pull)
            del desk.world.users[who.id]
            await desk.deliver()
        else:
            await ask(desk, event, who, about, pull)
        for job in desk.living():
            started.add((role, kind))
            desk.books.queue.end(job.job.id, "stopped", "That was it.")
    assert started == {(role, "User") for role, may in ROLES.items() if may}
    assert desk.answers() == [], "strangers are not answered"


async def test_what_strangers_write_costs_few_requests(desk: FrontDesk) -> None:
    await desk.says("/agent status")
    stranger = desk.person("stranger", "read")
    before = len(desk.ground.github.calls)
    await desk.says("/agent fix my thing", by=stranger)
    paths = [call.path for call in desk.ground.github.calls[before:] if "access_tokens" not in call.path]
    assert paths == ["/repos/ada/sample", f"/user/{stranger.id}", "/repos/ada/sample/collaborators/stranger/permission"]


async def test_the_label_counts_by_who_put_it_on_and_not_by_who_wrote_the_issue(desk: FrontDesk) -> None:
    """S4: a form may put labels on in a stranger's name."""
    stranger = desk.person("stranger", "triage")
    await desk.labels(by=stranger)
    assert (desk.jobs(), desk.answers()) == ([], [])
    assert desk.decided() == ["skip no_access: they have no write access"]


async def test_a_label_on_a_new_issue_is_no_trigger(desk: FrontDesk) -> None:
    """S4: `issues.opened` brings its labels along; only who puts one on counts."""
    desk.issue.labels.append("agent-fix")
    content = {"issue": issue_view(desk.repo, desk.issue)}
    await desk.hooks.send("issues", "opened", desk.repo, desk.ground.installation, desk.owner, **content)
    await desk.settle()
    assert (desk.jobs(), desk.outcomes()) == ([], [])


async def test_a_label_that_somebody_else_put_on_again_counts_as_theirs(desk: FrontDesk) -> None:
    desk.hooks.held = True
    await desk.labels()
    stranger = desk.person("stranger", "triage")
    desk.world.label(desk.issue, stranger, "agent-fix", off=True)
    await desk.labels(by=stranger)
    await desk.deliver()
    assert desk.jobs() == []


async def test_a_rename_between_writing_and_asking_takes_nobody_elses_rights(desk: FrontDesk) -> None:
    """S2: the name that wrote is an admin's by now; the number that wrote is not."""
    stranger = desk.person("grace", "none")
    desk.hooks.held = True
    await desk.says("/agent fix it", by=stranger)
    stranger.login = "somebody-else"
    desk.person("grace", "admin")
    await desk.deliver()
    assert desk.jobs() == []


async def test_somebody_who_was_renamed_keeps_their_rights(desk: FrontDesk) -> None:
    desk.hooks.held = True
    await desk.says("/agent fix it")
    desk.owner.login = "countess"
    desk.repo.owner.login = "countess"
    await desk.deliver()
    assert desk.job.commission.login == "countess"
    assert desk.job.job.task.repository == "countess/sample"


async def test_the_permission_is_asked_each_time(desk: FrontDesk) -> None:
    grace = desk.person("grace")
    await desk.says("/agent fix it", by=grace)
    desk.repo.collaborators[grace.id] = "read"
    await desk.says("/agent stop", by=grace)
    assert desk.job.row.state == "queued"


async def test_only_those_that_the_repository_names(desk: FrontDesk) -> None:
    desk.configure("allowed_actors: [grace]\n")
    await desk.labels()
    assert desk.jobs() == []
    await desk.says("/agent fix it", by=desk.person("Grace"))
    assert desk.job.commission.login == "Grace"


@pytest.mark.parametrize(("allowed", "jobs"), [(frozenset({77}), 1), (frozenset({78}), 0), (frozenset(), 0)])
async def test_other_apps_ask_only_by_the_number_that_the_operator_named(
    tmp_path: Path, allowed: frozenset[int], jobs: int
) -> None:
    defaults = Defaults(model=DEFAULTS.model, allowed_apps=allowed)
    async with front_desk(tmp_path, defaults=defaults) as desk:
        bot = desk.person("triager[bot]", "write", "Bot")
        desk.world.apps["triager"] = 77
        await desk.labels(by=bot)
        assert len(desk.jobs()) == jobs


async def test_another_repositorys_installation_opens_nothing(desk: FrontDesk) -> None:
    """S29: installation A's number with repository B: the token is made for the pair, so it is not made."""
    elsewhere = desk.world.install(desk.world.add_repo(desk.owner, "other", {"a.txt": "a\n"}))
    desk.world.tick()
    comment = desk.world.comment(desk.repo, desk.issue, desk.owner, "/agent fix it")
    await desk.hooks.commented(desk.repo, elsewhere, desk.owner, desk.issue, comment)
    await desk.settle()
    assert desk.jobs() == []
    assert desk.outcomes()[0].startswith("skip foreign_installation")
    await desk.hooks.commented(desk.repo, desk.ground.installation, desk.owner, desk.issue, comment)
    await desk.settle()
    assert len(desk.jobs()) == 1, "who does not serve the repository decides nothing for who does"


async def test_every_token_opens_the_one_repository(desk: FrontDesk) -> None:
    desk.world.add_repo(desk.owner, "other", {"a.txt": "a\n"})
    await desk.says("/agent fix it", desk.open_pull())
    tokens = [call.token for call in desk.ground.github.calls if call.token is not None]
    assert tokens
    assert {token.repositories for token in tokens} == {frozenset({desk.repo.id})}
    assert {access for token in tokens for access in token.permissions.values()} == {"read"}


async def test_a_renamed_repository_is_found_by_its_number(desk: FrontDesk) -> None:
    desk.hooks.held = True
    await desk.labels()
    desk.repo.name = "renamed"
    await desk.deliver()
    place = desk.job.commission.place
    assert (place.name, desk.job.job.task.repository) == ("renamed", "ada/renamed")


async def test_a_new_repository_under_the_old_name_is_another_one(desk: FrontDesk) -> None:
    desk.hooks.held = True
    await desk.labels()
    desk.repo.name = "renamed"
    other = desk.world.add_repo(desk.owner, "sample2", {"a.txt": "a\n"})
    other.name = "sample"
    desk.ground.installation.repositories.add(other.id)
    await desk.deliver()
    assert (desk.job.commission.place.repository, desk.job.commission.place.name) == (desk.repo.id, "renamed")


async def test_a_flood_is_answered_once_and_costs_nothing(desk: FrontDesk) -> None:
    for number in range(30):
        await desk.says(f"/agent fix {number}")
    assert desk.answers() == []
    for number in range(5):
        await desk.says(f"/agent and {number}")
    assert "please try again later" in desk.answer
    before = len(desk.ground.github.calls)
    await desk.says("/agent fix once more")
    assert len(desk.ground.github.calls) == before
    await desk.says("/agent stop")
    assert desk.job.row.state == "stopped", "a stop is always heard"
