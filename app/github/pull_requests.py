"""Reads a repository's pull requests: open ones, those linked to an issue, their commits and merge bases."""

from app.github import api_models
from app.github.calls import COMPARE_COMMITS, LINKED_PULL_REQUESTS, LIST_PULL_COMMITS, LIST_PULLS
from app.github.errors import NeedsHumanAction, NoAccess
from app.github.graphql import LinkedAnswer
from app.github.models import LinkedPullRequest, PullRequest, PullRequestCommit
from app.github.reader import pull_request_facts
from app.github.repository_api import RepositoryApi

MAX_PAGES = 5
"""Pages of a hundred open pull requests."""


class PullRequestsApi:
    """The pull requests of one repository."""

    def __init__(self, api: RepositoryApi) -> None:
        self._api = api

    async def open(self, *, base: str = "") -> tuple[PullRequest, ...]:
        """The open ones, or those against one base; newest change first, and only the newest if there are very many."""
        params = {"state": "open", "sort": "updated", "direction": "desc", **({"base": base} if base else {})}
        found = await self._api.pages(api_models.PullRequestResponse, LIST_PULLS, params=params, most=MAX_PAGES)
        return tuple(pull_request_facts(item) for item in found)

    async def linked(self, issue: int) -> tuple[LinkedPullRequest, ...]:
        """Open pull requests of this repository that will close this issue when merged.

        Leaves out those that GitHub does not show us; an older Enterprise Server shows none.
        """
        repository = self._api.repository
        variables = {"owner": repository.owner, "name": repository.name, "number": issue}
        try:
            answer = await self._api.graphql(LinkedAnswer, LINKED_PULL_REQUESTS, variables, partial=True)
        except (NeedsHumanAction, NoAccess):
            return ()
        return tuple(
            LinkedPullRequest(number=node.number, author=(node.author.database_id or 0) if node.author else 0)
            for node in answer.pull_requests or ()
            if node is not None and node.state == "OPEN" and node.repository == answer.repository
        )

    async def commits(self, number: int) -> tuple[PullRequestCommit, ...]:
        """The commits of a pull request, oldest first; GitHub lists at most 250."""
        found = await self._api.pages(api_models.CommitResponse, LIST_PULL_COMMITS, number)
        return tuple(
            PullRequestCommit(
                id=item.sha,
                author=(item.commit.author.name if item.commit.author else None) or "",
                message=item.commit.message,
            )
            for item in found
        )

    async def merge_base(self, base: str, head: str) -> str:
        """The merge base of two commits. Raises NeedsHumanAction or NoAccess if there is none."""
        found = await self._api.read(api_models.ComparisonResponse, COMPARE_COMMITS, f"{base}...{head}")
        return found.merge_base_commit.sha
