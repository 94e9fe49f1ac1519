"""Only people with write access, checked by number at that time, start anything; others get no answer."""

from itertools import product
from pathlib import Path

import pytest

from app.config.repository import parse_defaults
from app.config.roles import environment_for
from app.config.settings import settings_from
from app.server.publisher import defaults_of
from app.triggers.stores import ServerDefaults
from tests.support.event_harness import DEFAULTS, EventHarness, event_harness
from tests.support.github.views import issue_view
from tests.support.github.world import Issue, User

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


async def ask(harness: EventHarness, event: str, who: User, about: Issue, pull: Issue) -> None:
    match event:
        case "label":
            await harness.labels(about, by=who)
        case "label on a pull request":
            await harness.labels(pull, by=who)
        case "comment":
            await harness.says("/agent fix it", about, by=who)
        case "comment on a pull request":
            await harness.says("/agent fix it", pull, by=who)
        case "line of a diff":
            await harness.says_inline("/agent fix it", pull, by=who)
        case "review":
            await harness.reviews("/agent fix it", pull, who)
        case _:
            await harness.reviews("This is not it.", pull, who, "why 0.6?")


@pytest.mark.parametrize("event", EVENTS)
async def test_the_permission_table_decides_who_may_start_jobs(harness: EventHarness, event: str) -> None:
    """Nine roles, and each kind of account: a person with write access starts a job, and nobody else."""
    harness.configure("iterate: {max: 20}\n")
    pull = harness.our_pull() if event == "review that asks for changes" else harness.open_pull()
    started = set()
    for number, (role, kind) in enumerate(product(ROLES, KINDS)):
        login = f"u{number}[bot]" if kind == "Bot" else f"u{number}"
        who = harness.person(login, role, "User" if kind == "ghost" else kind)
        about = harness.world.open_issue(harness.repo, harness.owner, f"Issue {number}")
        if kind == "ghost":
            harness.hooks.held = True
            await ask(harness, event, who, about, pull)
            del harness.world.users[who.id]
            await harness.deliver()
        else:
            await ask(harness, event, who, about, pull)
        for job in harness.active_jobs():
            started.add((role, kind))
            harness.stores.queue.end(job.job.id, "stopped", "That was it.")
    assert started == {(role, "User") for role, may in ROLES.items() if may}
    assert harness.answers() == [], "strangers are not answered"


async def test_comments_of_strangers_cost_few_requests(harness: EventHarness) -> None:
    await harness.says("/agent status")
    stranger = harness.person("stranger", "read")
    before = len(harness.fake_github.github.calls)
    await harness.says("/agent fix my thing", by=stranger)
    paths = [call.path for call in harness.fake_github.github.calls[before:] if "access_tokens" not in call.path]
    assert paths == ["/repos/ada/sample", f"/user/{stranger.id}", "/repos/ada/sample/collaborators/stranger/permission"]


async def test_the_person_who_adds_the_label_counts_not_the_author(harness: EventHarness) -> None:
    """S4: a form may put labels on in a stranger's name."""
    stranger = harness.person("stranger", "triage")
    await harness.labels(by=stranger)
    assert (harness.jobs(), harness.answers()) == ([], [])
    assert harness.decided() == ["skip no_access: they have no write access"]


async def test_a_label_on_a_new_issue_is_not_a_trigger(harness: EventHarness) -> None:
    """S4: `issues.opened` brings its labels along; only who puts one on counts."""
    harness.issue.labels.append("agent-fix")
    content = {"issue": issue_view(harness.repo, harness.issue)}
    await harness.hooks.send(
        "issues", "opened", harness.repo, harness.fake_github.installation, harness.owner, **content
    )
    await harness.wait_until_handled()
    assert (harness.jobs(), harness.outcomes()) == ([], [])


async def test_a_label_added_again_counts_for_the_last_person(harness: EventHarness) -> None:
    harness.hooks.held = True
    await harness.labels()
    stranger = harness.person("stranger", "triage")
    harness.world.label(harness.issue, stranger, "agent-fix", off=True)
    await harness.labels(by=stranger)
    await harness.deliver()
    assert harness.jobs() == []


async def test_a_rename_between_writing_and_asking_takes_nobody_elses_rights(harness: EventHarness) -> None:
    """S2: the name that wrote is an admin's by now; the number that wrote is not."""
    stranger = harness.person("grace", "none")
    harness.hooks.held = True
    await harness.says("/agent fix it", by=stranger)
    stranger.login = "somebody-else"
    harness.person("grace", "admin")
    await harness.deliver()
    assert harness.jobs() == []


async def test_somebody_who_was_renamed_keeps_their_rights(harness: EventHarness) -> None:
    harness.hooks.held = True
    await harness.says("/agent fix it")
    harness.owner.login = "countess"
    harness.repo.owner.login = "countess"
    await harness.deliver()
    assert harness.job.job_context.login == "countess"
    assert harness.job.job.task.repository == "countess/sample"


async def test_the_permission_is_asked_each_time(harness: EventHarness) -> None:
    grace = harness.person("grace")
    await harness.says("/agent fix it", by=grace)
    harness.repo.collaborators[grace.id] = "read"
    await harness.says("/agent stop", by=grace)
    assert harness.job.row.state == "queued"


async def test_only_those_that_the_repository_names(harness: EventHarness) -> None:
    harness.configure("allowed_actors: [grace]\n")
    await harness.labels()
    assert harness.jobs() == []
    await harness.says("/agent fix it", by=harness.person("Grace"))
    assert harness.job.job_context.login == "Grace"


@pytest.mark.parametrize(("allowed", "jobs"), [(frozenset({77}), 1), (frozenset({78}), 0), (frozenset(), 0)])
async def test_other_apps_are_allowed_by_id_only(tmp_path: Path, allowed: frozenset[int], jobs: int) -> None:
    defaults = ServerDefaults(model=DEFAULTS.model, allowed_apps=allowed)
    async with event_harness(tmp_path, defaults=defaults) as harness:
        bot = harness.person("triager[bot]", "write", "Bot")
        harness.world.apps["triager"] = 77
        await harness.labels(by=bot)
        assert [job.job_context.app for job in harness.jobs()] == [77] * jobs


async def test_job_names_the_publishers_sandbox_for_a_worker_of_an_older_version(tmp_path: Path) -> None:
    environment = {"HOME": "/h", "AGENT_FIX_MODEL": DEFAULTS.model, "AGENT_FIX_SANDBOX": "docker"}
    defaults = defaults_of(settings_from(environment_for("publisher", environment, {})))
    async with event_harness(tmp_path, defaults=defaults) as harness:
        await harness.says("/agent fix")
        assert harness.job.job.sandbox == "docker"


async def test_an_operators_lock_binds_repositories_and_commands(tmp_path: Path) -> None:
    operator = parse_defaults("model: openai/house\nbudget: {usd: 2}\nlock: [model, budget.usd]\n")
    defaults = ServerDefaults(model=DEFAULTS.model, operator=operator)
    async with event_harness(tmp_path, defaults=defaults) as harness:
        harness.configure("model: openai/own\nbudget: {usd: 50, steps: 7}\n")
        await harness.says("/agent fix --model openai/other")
        assert harness.jobs() == []
        assert harness.answer == (
            "Nothing was started: the server's operator has locked `model`; remove that option.\n"
        )
        await harness.says("/agent fix")
        job = harness.job
        assert (job.job.model, job.job.budget.usd, job.job.budget.steps) == ("openai/house", 2_000_000, 7)
        assert (
            "The operator of this server decides model, budget.usd; the repository's file has no say."
            in job.job_context.notes
        )


async def test_an_installation_of_another_repository_is_rejected(harness: EventHarness) -> None:
    """S29: installation A's number with repository B: the token is made for the pair, so it is not made."""
    elsewhere = harness.world.install(harness.world.add_repo(harness.owner, "other", {"a.txt": "a\n"}))
    harness.world.tick()
    comment = harness.world.comment(harness.repo, harness.issue, harness.owner, "/agent fix it")
    await harness.hooks.commented(harness.repo, elsewhere, harness.owner, harness.issue, comment)
    await harness.wait_until_handled()
    assert harness.jobs() == []
    assert harness.outcomes()[0].startswith("skip foreign_installation")
    await harness.hooks.commented(harness.repo, harness.fake_github.installation, harness.owner, harness.issue, comment)
    await harness.wait_until_handled()
    assert len(harness.jobs()) == 1, "who does not serve the repository decides nothing for who does"


async def test_every_token_opens_the_one_repository(harness: EventHarness) -> None:
    harness.world.add_repo(harness.owner, "other", {"a.txt": "a\n"})
    await harness.says("/agent fix it", harness.open_pull())
    tokens = [call.token for call in harness.fake_github.github.calls if call.token is not None]
    assert tokens
    assert {token.repositories for token in tokens} == {frozenset({harness.repo.id})}
    assert {access for token in tokens for access in token.permissions.values()} == {"read"}


async def test_a_renamed_repository_is_found_by_its_number(harness: EventHarness) -> None:
    harness.hooks.held = True
    await harness.labels()
    harness.repo.rename("renamed")
    await harness.deliver()
    place = harness.job.job_context.issue_ref
    assert (place.name, harness.job.job.task.repository) == ("renamed", "ada/renamed")


async def test_a_new_repository_under_an_old_name_is_not_confused(harness: EventHarness) -> None:
    harness.hooks.held = True
    await harness.labels()
    harness.repo.rename("renamed")
    other = harness.world.add_repo(harness.owner, "sample2", {"a.txt": "a\n"})
    other.name = "sample"
    harness.fake_github.installation.repositories.add(other.id)
    await harness.deliver()
    assert (harness.job.job_context.issue_ref.repository, harness.job.job_context.issue_ref.name) == (
        harness.repo.id,
        "renamed",
    )


async def test_a_flood_is_answered_once_and_costs_nothing(harness: EventHarness) -> None:
    for number in range(30):
        await harness.says(f"/agent fix {number}")
    assert harness.answers() == []
    for number in range(5):
        await harness.says(f"/agent and {number}")
    assert "please try again later" in harness.answer
    before = len(harness.fake_github.github.calls)
    await harness.says("/agent fix once more")
    assert len(harness.fake_github.github.calls) == before
    await harness.says("/agent stop")
    assert harness.job.row.state == "stopped", "a stop is always heard"
