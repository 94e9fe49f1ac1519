"""GitHub's rate limits are obeyed: a pause for as long as it says, and a second between two mutations."""

import itertools
import json
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from app.core.errors import AgentFixError
from app.github.base import RateLimited
from app.github.connection import MutationPacer
from app.github.effects import GitHubForge
from app.github.reader import RepositoryReader
from app.github.refusals import refusal_of
from tests.support.github.fake import FakeGitHubSetup
from tests.support.github.faults import Fault

COMMENT = "POST /repos/ada/sample/issues/1/comments"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


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
def test_every_form_of_rate_limit_is_recognised(response: httpx.Response, seconds: int) -> None:
    failure = refusal_of(response, NOW)
    assert isinstance(failure, RateLimited)
    assert failure.until == NOW + timedelta(seconds=seconds)
    assert not failure.final
    again = AgentFixError.from_json(json.loads(json.dumps(failure.to_json())))
    assert isinstance(again, RateLimited)
    assert again.until == failure.until


@pytest.mark.parametrize(
    "headers",
    [{"retry-after": "90"}, {"retry-after": "later"}, {}],
    ids=["a number", "not a number", "only words"],
)
async def test_no_request_is_sent_before_the_given_time(
    forge: GitHubForge, fake_github: FakeGitHubSetup, headers: dict[str, str]
) -> None:
    body = '{"message": "You have exceeded a secondary rate limit."}'
    fake_github.github.faults.append(Fault(COMMENT, 403, body=body, headers=headers))
    with pytest.raises(RateLimited) as caught:
        await forge.ensure_comment("j1", "hello")
    assert caught.value.until > fake_github.world.now
    sent = len(fake_github.github.calls)
    for attempt in (lambda: forge.ensure_comment("j1", "hello"), lambda: forge.reads.issue(1)):
        with pytest.raises(RateLimited):
            await attempt()
    assert len(fake_github.github.calls) == sent
    fake_github.world.now = caught.value.until
    await forge.ensure_comment("j1", "hello")
    assert len(fake_github.issue.comments) == 1


async def test_a_rate_limit_on_the_token_request_counts_too(fake_github: FakeGitHubSetup) -> None:
    fake_github.github.faults.append(Fault("POST /app/.*", 429, body="{}", headers={"retry-after": "30"}))
    with pytest.raises(RateLimited):
        await RepositoryReader(fake_github.api(fake_github.app())).issue(1)
    assert len(fake_github.github.calls) == 1


async def test_mutations_keep_a_second_between_them(forge: GitHubForge, fake_github: FakeGitHubSetup) -> None:
    for number in range(5):
        await forge.ensure_comment(f"j{number}", "hello")
        await forge.ensure_labels(add=[f"label-{number}"])
    at = [call.at for call in fake_github.github.mutations()]
    assert len(at) == 10
    assert all(later - earlier >= 1 for earlier, later in itertools.pairwise(at))


async def test_a_short_limit_is_waited_for_and_a_long_one_is_reported() -> None:
    now = [NOW]

    async def sleep(seconds: float) -> None:
        now[0] += timedelta(seconds=seconds)

    pace = MutationPacer(lambda: now[0], sleep)
    pace.pause_until(NOW + timedelta(seconds=2))
    async with pace.turn(mutation=False):
        assert now[0] == NOW + timedelta(seconds=2)
    pace.pause_until(NOW + timedelta(seconds=60))
    pace.pause_until(NOW + timedelta(seconds=10))
    with pytest.raises(RateLimited) as caught:
        async with pace.turn(mutation=True):
            raise AssertionError("it may not be entered")
    assert caught.value.until == NOW + timedelta(seconds=60)


async def test_a_few_mutations_may_come_at_once_and_many_may_not() -> None:
    now, began = [NOW], list[float]()

    async def sleep(seconds: float) -> None:
        now[0] += timedelta(seconds=seconds)

    pace = MutationPacer(lambda: now[0], sleep, at_once=3)
    for _ in range(6):
        async with pace.turn(mutation=True):
            began.append((now[0] - NOW).total_seconds())
    assert began == [0, 0, 0, 1, 2, 3]
    now[0] += timedelta(seconds=60)
    async with pace.turn(mutation=True):
        assert now[0] == NOW + timedelta(seconds=63)
