"""What programs ask for through the API, from the stored request to the job, with the fake GitHub."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.config.repository import parse_defaults
from app.core.job import new_job_id
from app.core.plan import Plan
from app.core.task import AllowedPath
from app.jobs.inbox import MAX_ATTEMPTS
from app.jobs.job_actions import JobActions, ProgramRequest
from app.jobs.queue import DayCaps, QueueLimits
from app.jobs.store import JobRow
from app.jobs.tables import jobs
from app.triggers.rules import PER_HOUR
from tests.support.databases import DIALECTS
from tests.support.event_harness import DEFAULTS, EventHarness, event_harness
from tests.support.github.faults import Fault
from tests.support.github.world import User


async def ask(harness: EventHarness, **changes: Any) -> str:
    """Store a request as the API does, and let the publisher handle it."""
    request = requested(harness, **changes)
    harness.stores.requests.add(request)
    harness.stores.requests.add(request)
    await harness.wait_until_handled()
    return request.job


def requested(harness: EventHarness, **changes: Any) -> ProgramRequest:
    values = {"job": new_job_id(), "by": "ci", "repository": f"{harness.repo.owner.login}/{harness.repo.name}"}
    return ProgramRequest.model_validate({**values, "at": harness.world.now, **changes})


def row(harness: EventHarness, job: str) -> JobRow:
    found = harness.stores.job_store().get(job)
    assert found is not None
    return found


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_issue_becomes_the_promised_job(tmp_path: Path, dialect: str) -> None:
    async with event_harness(tmp_path, dialect=dialect) as harness:
        job = await ask(harness, number=harness.issue.number, model="scripted/two", instructions="Mind the tests.")
        found = harness.job
        assert (found.job.id, found.row.state, found.job.model) == (job, "queued", "scripted/two")
        assert found.job.task.request == "Mind the tests."
        assert (found.job_context.trigger, found.job_context.login) == ("api:ci", "")
        assert found.job_context.publish_target == "new_branch"
        assert harness.reactions() == [("issue", harness.issue.number, "eyes")]
        harness.stores.job_queries.mark_ready(job)
        claim = harness.stores.queue.claim("w1", QueueLimits(jobs=4, per_repository=2))
        assert claim is not None
        assert claim.job == job


async def test_a_label_a_command_and_a_program_make_a_job_urgent(harness: EventHarness) -> None:
    plain = await ask(harness, number=harness.issue.number)
    issues = [harness.world.open_issue(harness.repo, harness.owner, f"Bug {number}", "It is.") for number in range(3)]
    issues[0].labels.append("Priority: High")
    await harness.labels(issues[0])
    await harness.says("/agent fix --urgent", issues[1])
    program = await ask(harness, number=issues[2].number, urgent=True)
    for each in harness.jobs():
        harness.stores.job_queries.mark_ready(each.job.id)
    places = {each.job.id: harness.stores.queue.place(each.job.id) for each in harness.jobs()}
    assert [place.urgent for job, place in places.items() if place and job != plain] == [True] * 3
    last = places[plain]
    assert last is not None
    assert (last.place, last.urgent) == (4, False)
    assert program in places


async def test_a_text_becomes_an_issue_once_and_then_a_job(harness: EventHarness) -> None:
    before = len(harness.repo.issues)
    harness.fake_github.github.faults.append(Fault("GET /repos/[^/]+/[^/]+/contents/.*", times=6))
    job = await ask(harness, text="# Halves are lost\n\nRound half up, @ada.")
    assert len(harness.repo.issues) == before + 1
    issue = harness.repo.issues[before + 1]
    assert (issue.title, issue.user.id) == ("Halves are lost", harness.world.bot.id)
    assert issue.body.startswith("Round half up")
    assert (harness.job.job.id, harness.job.job.task.issue.number) == (job, issue.number)
    assert harness.job.job.task.issue.body == "Round half up, @ada."


async def test_a_search_becomes_a_job_for_each_issue(harness: EventHarness) -> None:
    others = [harness.world.open_issue(harness.repo, harness.owner, f"Bug {number}", "It is.") for number in range(3)]
    batch = await ask(harness, search="is:open", most=3)
    ended = row(harness, batch)
    assert (ended.state, ended.reason.startswith("Requested 3 jobs: #")) == ("answered", True)
    assert len(harness.jobs()) == 3
    assert {each.job.id for each in harness.jobs()} <= {f"{batch}n{number}" for number in harness.repo.issues}
    assert len(others) == 3


@pytest.mark.parametrize(
    ("changes", "state", "words"),
    [
        ({"repository": "ada/unknown"}, "no_access", "not installed in ada/unknown"),
        ({"number": 4711}, "no_access", "no issue #4711"),
        ({"runner": "nobody"}, "stopped", "nobody"),
    ],
)
async def test_an_impossible_command_is_answered(
    harness: EventHarness, changes: dict[str, Any], state: str, words: str
) -> None:
    job = await ask(harness, **{"number": harness.issue.number, **changes})
    assert row(harness, job).state == state
    assert words in row(harness, job).reason
    assert (harness.jobs(), harness.answers(), harness.effects()) == ([], [], []), "nothing is posted"


async def test_a_refused_label_ends_the_job_with_the_reason(harness: EventHarness) -> None:
    harness.issue.state = "closed"
    job = await ask(harness, number=harness.issue.number)
    assert (row(harness, job).state, "closed" in row(harness, job).reason) == ("stopped", True)
    harness.issue.state = "open"
    first = await ask(harness, number=harness.issue.number)
    second = await ask(harness, number=harness.issue.number)
    assert (row(harness, first).state, row(harness, second).state) == ("queued", "stopped")
    assert "already working" in row(harness, second).reason
    harness.configure("nonsense: true\n")
    third = await ask(harness, number=harness.world.open_issue(harness.repo, harness.owner, "Other").number)
    assert "nonsense" in row(harness, third).reason
    assert harness.answers() == []


async def test_a_request_cancelled_meanwhile_does_not_start(harness: EventHarness) -> None:
    request = requested(harness, number=harness.issue.number)
    job = request.job
    harness.stores.requests.add(request)
    assert harness.stores.requests.end(job, "stopped", "Stopped through the API.")
    await harness.wait_until_handled()
    assert row(harness, job).reason == "Stopped through the API."
    assert harness.jobs() == []


async def test_retry_stops_the_job_and_begins_again(harness: EventHarness) -> None:
    first = await ask(harness, number=harness.issue.number)
    second = await ask(harness, number=harness.issue.number, verb="retry")
    assert row(harness, first).state == "stopped"
    assert [each.job.id for each in harness.active_jobs()] == [second]


async def test_a_plan_alone_is_approved_by_a_new_job(harness: EventHarness) -> None:
    await ask(harness, number=harness.issue.number, verb="plan")
    assert harness.job.job.plan_mode == "only"
    harness.ends("answered", plan=Plan(summary="Round half up.").model_dump(mode="json"))
    second = await ask(harness, number=harness.issue.number, verb="approve")
    (begun,) = harness.active_jobs()
    assert (begun.job.id, "Round half up." in begun.job.plan_file) == (second, True)


async def test_a_request_that_fails_too_often_is_given_up_visibly(harness: EventHarness) -> None:
    request = requested(harness, number=harness.issue.number)
    job = request.job
    harness.stores.requests.add(request)
    inbox = harness.stores.inbox
    for _ in range(MAX_ATTEMPTS):
        (claimed,) = inbox.claim("w1")
        inbox.put_back(claimed, "it broke", harness.world.now - harness.world.now)
    assert row(harness, job).state == "queued"
    await harness.trigger_loops.reconcile_when_due()
    assert row(harness, job).state == "error"
    assert "given up" in row(harness, job).reason


async def test_an_edit_through_the_api_is_what_a_comment_approves(harness: EventHarness) -> None:
    job = await ask(harness, number=harness.issue.number)
    harness.put("awaiting_approval")
    plans = harness.stores.plans
    plans.record(job, Plan(summary="Half even."))
    plans.edit(job, 1, Plan(summary="Half up."), "ci")
    await harness.says("/agent approve")
    (message,) = harness.said()
    assert "Half up." in message.text


async def test_a_name_that_another_repository_has_by_now_starts_nothing_there(harness: EventHarness) -> None:
    await harness.labels()
    place = harness.job.job_context.issue_ref
    harness.ends("error")
    harness.repo.rename(f"{place.name}-old")
    other = harness.world.add_repo(harness.owner, "other", {"secret.py": "x = 1\n"})
    other.name = place.name
    harness.world.open_issue(other, harness.owner, "A secret issue", "Private.")
    harness.fake_github.installation.repositories.add(other.id)
    actions = JobActions(harness.engine, harness.stores.clock, harness.stores.queue)
    actions.retry(harness.job.job.id, id="again00001", who="ada", user=0)
    await harness.wait_until_handled()
    ended = row(harness, "again00001")
    assert (ended.state, "another repository now" in ended.reason) == ("no_access", True)
    assert len(harness.jobs()) == 1


async def test_a_retry_through_the_api_is_no_round_of_the_bot(harness: EventHarness) -> None:
    pull = harness.our_pull()
    harness.world.push_as_human(harness.repo, "main", {"other.py": "one = 1\n"})
    await harness.says("/agent rebase", pull)
    harness.ends("error")
    await ask(harness, number=pull.number, verb="retry")
    again = harness.active_jobs()[0].job_context
    assert (again.aim, again.is_round, again.has_requester) == ("conflicts", False, False)


def on_dashboard(person: User, **changes: Any) -> dict[str, Any]:
    return {"by": person.login, "user": person.id, "verb": "retry", **changes}


async def test_a_job_from_the_dashboard_is_the_persons(harness: EventHarness) -> None:
    writer = harness.person("w")
    job = await ask(harness, number=harness.issue.number, **on_dashboard(writer))
    found = harness.job
    assert (found.job.id, found.job_context.trigger, found.job_context.login) == (job, "dashboard", "w")
    assert (found.job_context.has_requester, found.job.task.origin and found.job.task.origin.actor) == (True, writer.id)
    assert DayCaps(actor=1_000_000).budgets(found.job_context, writer.id, lambda: 0.0), "the person's cap counts"
    assert harness.reactions() == [("issue", harness.issue.number, "eyes")]


async def test_todays_rules_for_people_count_on_the_dashboard(harness: EventHarness) -> None:
    writer, triager = harness.person("w"), harness.person("t", "triage")
    harness.configure("allowed_actors: [boss]\n")
    first = await ask(harness, number=harness.issue.number, **on_dashboard(writer))
    assert "allowed_actors" in row(harness, first).reason
    harness.configure("{}\n")
    second = await ask(harness, number=harness.issue.number, **on_dashboard(triager))
    assert "no write access" in row(harness, second).reason
    assert harness.jobs() == []
    reasons = [
        row(harness, await ask(harness, number=harness.issue.number, **on_dashboard(writer))).reason
        for _ in range(PER_HOUR)
    ]
    assert f"more than {PER_HOUR} commands" in reasons[-1]
    key = await ask(harness, number=harness.issue.number, verb="retry")
    assert row(harness, key).state == "queued", "a key has no such limit"


async def test_allowances_from_before_an_operators_lock_are_not_repeated(tmp_path: Path) -> None:
    for lock, allowed in (("", 1), ("lock: [protected_paths]\n", 0)):
        operator = parse_defaults(f"protected_paths: ['deploy/**']\n{lock}")
        place = tmp_path / str(allowed)
        place.mkdir()
        async with event_harness(place, defaults=replace(DEFAULTS, operator=operator)) as harness:
            await harness.says("/agent fix")
            job = harness.job.job
            task = job.task.model_copy(update={"allowed_paths": (AllowedPath(path="deploy/prod.yml", by="w"),)})
            harness.ends("verification_failed")
            with harness.engine.begin() as db:
                earlier = job.model_copy(update={"task": task}).model_dump(mode="json")
                db.execute(jobs.update().where(jobs.c.id == job.id).values(job=earlier))
            await harness.says("/agent retry")
            assert len(harness.active_jobs()[0].job.task.allowed_paths) == allowed
