"""Which pull requests are about an issue, by what people wrote."""

import pytest

from app.github.models import CrossReference, PullRequest
from app.triggers.handlers.verify import closed_issue
from app.triggers.neighbours import Mentions, Neighbour, neighbours_of, note_about

BOT, ADA = 7, 1
MENTIONS = Mentions(12, "octo/shop", "agent-fix/issue-12-")


def pull(
    title: str = "Round", body: str = "", branch: str = "topic", number: int = 40, author: int = ADA
) -> PullRequest:
    return PullRequest.model_validate(
        {
            "number": number,
            "html_url": f"https://github.example/octo/shop/pull/{number}",
            "title": title,
            "body": body,
            "user": {"id": author},
            "state": "open",
            "head": {"ref": branch, "sha": "a" * 40, "repo": {"id": 1}},
            "base": {"ref": "main", "sha": "b" * 40},
        }
    )


def found(one: PullRequest, *opened: int) -> Neighbour | None:
    return next(iter(neighbours_of(MENTIONS, [one], (), opened, BOT)), None)


@pytest.mark.parametrize(
    "one",
    [
        pull(title="Round up (#12)"),
        pull(title="GH-12: round up"),
        pull(branch="12-totals-are-wrong"),
        pull(branch="ada/issue-12"),
        pull(branch="fix/12-rounding"),
        pull(branch="gh12"),
        pull(body="Fixes #12, for the branch `next`."),
        pull(body="closes: octo/shop#12"),
        pull(body="Resolves https://github.com/Octo/Shop/issues/12"),
    ],
)
def test_a_pull_request_that_claims_an_issue(one: PullRequest) -> None:
    assert found(one) == Neighbour(number=40, claims=True)


@pytest.mark.parametrize(
    "body", ["Part of #12.", "See octo/shop#12", "Came from https://github.com/octo/shop/issues/12#x"]
)
def test_a_pull_request_that_mentions_an_issue(body: str) -> None:
    assert found(pull(body=body)) == Neighbour(number=40, claims=False)


@pytest.mark.parametrize(
    "one",
    [
        pull(),
        pull(title="Round up (#123)", body="Fixes #1 and #120, not other/shop#12 or my/octo/shop2#12"),
        pull(body="> Fixes #12"),
        pull(body="```\nFixes #12\n```\nand `#12`"),
        pull(body="<!-- Fixes #12 -->"),
        pull(branch="release-1.12"),
        pull(branch="release/12-x"),
        pull(branch="issue-123"),
        pull(branch="v12"),
        pull(body="See &#12; and /pull/12"),
    ],
)
def test_other_numbers_and_other_peoples_words_are_no_mention(one: PullRequest) -> None:
    assert found(one) is None


@pytest.mark.parametrize(
    ("one", "opened"),
    [
        (pull(title="Better", number=41, author=BOT), (41,)),
        (pull(title="Better", branch="agent-fix/issue-12-totals", author=BOT), ()),
        (pull(title="Better", body="Fixes #12", author=BOT), ()),
    ],
)
def test_our_own_draft_is_found_although_it_names_the_issue_no_more(one: PullRequest, opened: tuple[int, ...]) -> None:
    near = found(one, *opened)
    assert near is not None
    assert (near.number, near.ours) == (one.number, True)


@pytest.mark.parametrize("body", ["Beside #12.", ""])
def test_our_draft_for_another_issue_is_none_of_its_neighbours(body: str) -> None:
    one = pull(body=body, branch="agent-fix/issue-120-totals", author=BOT)
    assert found(one) is None
    reference = CrossReference.model_validate(referred(number=40, pull_request={}))
    assert neighbours_of(MENTIONS, [one], [reference], (), BOT) == ()


def referred(**changes: object) -> dict[str, object]:
    there = {"number": 14, "state": "open", "repository_url": "https://api.github.example/repos/Octo/Shop"}
    return {"event": "cross-referenced", "source": {"type": "issue", "issue": there | changes}}


def test_references_of_github_count_if_they_are_open_and_here() -> None:
    entries = [
        referred(),
        referred(number=15, pull_request={"url": "x"}),
        referred(number=16, state="closed"),
        referred(number=17, repository_url="https://api.github.example/repos/octo/other"),
        referred(number=12),
        {"event": "labeled", "source": None},
    ]
    references = [CrossReference.model_validate(each) for each in entries]
    near = neighbours_of(MENTIONS, [pull(body="Fixes #12", number=15)], references, (), BOT)
    assert [(each.number, each.is_pull_request, each.claims) for each in near] == [(15, True, True), (14, False, False)]
    assert note_about(near) == "Also open and about this: pull request #15, issue #14."


def test_very_many_are_counted() -> None:
    near = [Neighbour(number=number) for number in range(8)]
    assert note_about(near).endswith("pull request #4 and 3 more.")
    assert note_about([]) == ""


@pytest.mark.parametrize(
    ("body", "number"),
    [
        ('<!-- such as "Fixes #123" -->\nFixes #7', 7),
        ("```\nfix #9\n```\nResolves: #7", 7),
        ("> closes #4\n\nfixes #7", 7),
        ("See #7.", None),
    ],
)
def test_the_issue_that_a_pull_request_closes_is_what_people_read(body: str, number: int | None) -> None:
    assert closed_issue(body) == number
