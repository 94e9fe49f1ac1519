"""What GitHub asks of its guests is kept: silence for as long as it says, and a second between two mutations."""

import itertools
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from app.errors import AgentFixError
from app.forge.errors import WaitUntil
from app.forge.github.failures import refusal_of
from app.forge.github.forge import GitHubForge, open_forge
from app.forge.github.reads import Reader
from app.forge.pace import Pace
from app.gitstore import GitStore
from tests.fakes.github.faults import Fault
from tests.fakes.github.ground import Ground, make_ground

COMMENT = "POST /repos/ada/sample/issues/1/comments"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return make_ground(tmp_path)


@pytest.fixture
async def forge(ground: Ground, tmp_path: Path) -> GitHubForge:
    return await open_forge(
        ground.app(), ground.installation.id, ground.repository, GitStore(tmp_path / "store.git"), ground.issue.number
    )


def limited(**headers: str) -> httpx.Response:
    text = json.dumps({"message": headers.pop("message", "Forbidden")})
    status = int(headers.pop("status", "403"))
    return httpx.Response(status, headers={k.replace("_", "-"): v for k, v in headers.items()}, text=text)


RESET = str(int((NOW + timedelta(minutes=20)).timestamp()))


@pytest.mark.parametrize(
    ("response", "seconds"),
    [
        (limited(retry_after="37"), 37),
        (limited(status="429", retry_after="37"), 37),
        (limited(status="503", retry_after="120"), 120),
        (limited(retry_after="Sat, 21 Nov 2026 12:00:00 GMT"), 60),
        (limited(x_ratelimit_remaining="0", x_ratelimit_reset=RESET), 1_200),
        (limited(retry_after="5", x_ratelimit_remaining="0", x_ratelimit_reset=RESET), 5),
        (limited(message="You have exceeded a secondary rate limit."), 60),
        (limited(message="You have triggered an abuse detection mechanism."), 60),
        (limited(status="429"), 60),
        (limited(status="429", x_ratelimit_remaining="0", x_ratelimit_reset="soon"), 60),
    ],
)
def test_every_way_of_asking_for_silence_is_understood(response: httpx.Response, seconds: int) -> None:
    failure = refusal_of(response, NOW)
    assert isinstance(failure, WaitUntil)
    assert failure.until == NOW + timedelta(seconds=seconds)
    assert not failure.final
    again = AgentFixError.from_json(json.loads(json.dumps(failure.to_json())))
    assert isinstance(again, WaitUntil)
    assert again.until == failure.until


@pytest.mark.parametrize(
    "headers",
    [{"retry-after": "90"}, {"retry-after": "later"}, {}],
    ids=["a number", "not a number", "only words"],
)
async def test_no_request_is_sent_before_the_given_time(
    forge: GitHubForge, ground: Ground, headers: dict[str, str]
) -> None:
    body = '{"message": "You have exceeded a secondary rate limit."}'
    ground.github.faults.append(Fault(COMMENT, 403, body=body, headers=headers))
    with pytest.raises(WaitUntil) as caught:
        await forge.ensure_comment("j1", "hello")
    assert caught.value.until > ground.world.now
    sent = len(ground.github.calls)
    for attempt in (lambda: forge.ensure_comment("j1", "hello"), lambda: forge.reads.issue(1)):
        with pytest.raises(WaitUntil):
            await attempt()
    assert len(ground.github.calls) == sent
    ground.world.now = caught.value.until
    await forge.ensure_comment("j1", "hello")
    assert len(ground.issue.comments) == 1


async def test_a_limit_met_while_a_token_is_asked_for_counts_too(ground: Ground) -> None:
    ground.github.faults.append(Fault("POST /app/.*", 429, body="{}", headers={"retry-after": "30"}))
    with pytest.raises(WaitUntil):
        await Reader(ground.door(ground.app())).issue(1)
    assert len(ground.github.calls) == 1


async def test_mutations_keep_a_second_between_them(forge: GitHubForge, ground: Ground) -> None:
    for number in range(5):
        await forge.ensure_comment(f"j{number}", "hello")
        await forge.ensure_labels(add=[f"label-{number}"])
    at = [call.at for call in ground.github.mutations()]
    assert len(at) == 10
    assert all(later - earlier >= 1 for earlier, later in itertools.pairwise(at))


async def test_a_short_silence_is_waited_out_and_a_long_one_told() -> None:
    now = [NOW]

    async def sleep(seconds: float) -> None:
        now[0] += timedelta(seconds=seconds)

    pace = Pace(lambda: now[0], sleep)
    pace.be_silent(NOW + timedelta(seconds=2))
    async with pace.turn(mutation=False):
        assert now[0] == NOW + timedelta(seconds=2)
    pace.be_silent(NOW + timedelta(seconds=60))
    pace.be_silent(NOW + timedelta(seconds=10))
    with pytest.raises(WaitUntil) as caught:
        async with pace.turn(mutation=True):
            raise AssertionError("it may not be entered")
    assert caught.value.until == NOW + timedelta(seconds=60)


async def test_a_few_mutations_may_come_at_once_and_many_may_not() -> None:
    now, began = [NOW], list[float]()

    async def sleep(seconds: float) -> None:
        now[0] += timedelta(seconds=seconds)

    pace = Pace(lambda: now[0], sleep, at_once=3)
    for _ in range(6):
        async with pace.turn(mutation=True):
            began.append((now[0] - NOW).total_seconds())
    assert began == [0, 0, 0, 1, 2, 3]
    now[0] += timedelta(seconds=60)
    async with pace.turn(mutation=True):
        assert now[0] == NOW + timedelta(seconds=63)
