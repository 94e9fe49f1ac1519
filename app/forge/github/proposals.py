"""What becomes of a pull request of ours after it was opened: its house's labels and reviewers, and its text."""

from collections.abc import Callable, Iterable, Sequence

from app.forge.errors import NeedsHuman
from app.forge.facts import PullRequestFacts
from app.forge.github import wire
from app.forge.github.calls import (
    ADD_LABELS,
    LIST_ISSUE_LABELS,
    LIST_REVIEWERS,
    LIST_REVIEWS,
    REQUEST_REVIEWERS,
    UPDATE_PULL,
)
from app.forge.github.door import Door
from app.forge.github.reads import Reader


class Proposals:
    """Pull requests whose author is the bot; anybody else's are not changed."""

    def __init__(self, door: Door, reads: Reader, login: str) -> None:
        self._door = door
        self._reads = reads
        self._login = login

    async def dress(self, branch: str, labels: Iterable[str], reviewers: Sequence[str]) -> str:
        """Add what is missing; labels and people that others put there stay. Returns the address."""
        there = await self._open(await self._reads.pull_request_of(branch))
        labelled = await self._door.pages(wire.Label, LIST_ISSUE_LABELS, there.number)
        found = {label.name.casefold() for label in labelled}
        if missing := [label for label in labels if label.casefold() not in found]:
            await self._door.change(list, ADD_LABELS, there.number, body={"labels": missing})
        if reviewers:
            await self._ask(there.number, reviewers)
        return there.url

    async def amend(self, number: int, amend: Callable[[str], str]) -> str:
        """Change the body of a pull request of ours; nothing is sent where it says so already."""
        there = await self._open(await self._reads.pull_request(number))
        body = amend(there.body)
        if body != there.body:
            await self._door.change(wire.PullRequest, UPDATE_PULL, number, body={"body": body})
        return there.url

    async def tell(self, branch: str, commit: str, amend: Callable[[str], str], *, close: bool) -> str:
        """Change the body of our open draft of that branch, if it is there; close it where it holds nothing else."""
        there = await self._reads.pull_request_of(branch)
        if there is None or not there.open or there.author_name != self._login:
            return ""
        wanted: dict[str, str] = {}
        if (body := amend(there.body)) != there.body:
            wanted["body"] = body
        if close and there.head == commit:
            wanted["state"] = "closed"
        if wanted:
            await self._door.change(wire.PullRequest, UPDATE_PULL, there.number, body=wanted)
        return there.url

    async def _open(self, there: PullRequestFacts | None) -> PullRequestFacts:
        if there is None:
            raise NeedsHuman("The pull request is not there any more.")
        if there.author_name != self._login:
            raise NeedsHuman(f"The pull request #{there.number} is somebody else's; its text is not changed.")
        if not there.open:
            raise NeedsHuman(f"The pull request #{there.number} was {'merged' if there.merged else 'closed'}.")
        return there

    async def _ask(self, number: int, reviewers: Sequence[str]) -> None:
        """Ask for reviews. Who was asked or has answered is not asked again; one who cannot be is told."""
        asked = await self._door.read(wire.RequestedReviewers, LIST_REVIEWERS, number)
        reviews = await self._door.pages(wire.Review, LIST_REVIEWS, number)
        there = {account.login.casefold() for account in asked.users}
        there |= {team.slug.casefold() for team in asked.teams}
        there |= {review.user.login.casefold() for review in reviews if review.user is not None}
        refused = []
        for reviewer in reviewers:
            _, _, team = reviewer.partition("/")
            if (team or reviewer).casefold() in there:
                continue
            body = {"team_reviewers": [team]} if team else {"reviewers": [reviewer]}
            try:
                await self._door.change(dict, REQUEST_REVIEWERS, number, body=body)
            except NeedsHuman:
                refused.append(reviewer)
        if refused:
            raise NeedsHuman(f"Not everybody could be asked for a review: {', '.join(refused)}.")
