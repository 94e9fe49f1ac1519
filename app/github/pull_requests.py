"""Pull requests of a repository: the open ones, those that will close an issue, their commits, where two part."""

from app.github import api_models
from app.github.calls import COMPARE_COMMITS, LINKED_PULL_REQUESTS, LIST_PULL_COMMITS, LIST_PULLS
from app.github.errors import NeedsHumanAction, NoAccess
from app.github.graphql import LinkedAnswer
from app.github.models import LinkedPullRequest, PullRequest, PullRequestCommit
from app.github.reader import pull_request_facts
from app.github.repository_api import RepositoryApi

MAX_PAGES = 5
"""Of a hundred open pull requests each."""


class PullRequestsApi:
    """The pull requests of one repository."""

    def __init__(self, api: RepositoryApi) -> None:
        self._api = api

    async def open(self, *, base: str = "") -> tuple[PullRequest, ...]:
        """The open ones, the newest change first, or those against one branch; of very many the newest."""
        params = {"state": "open", "sort": "updated", "direction": "desc", **({"base": base} if base else {})}
        found = await self._api.pages(api_models.PullRequestResponse, LIST_PULLS, params=params, most=MAX_PAGES)
        return tuple(pull_request_facts(item) for item in found)

    async def linked(self, issue: int) -> tuple[LinkedPullRequest, ...]:
        """Open pull requests of this repository that will close this issue when they are merged.

        Those that GitHub does not show us, and on an Enterprise Server whose schema is older all, are left out.
        """
        repository = self._api.repository
        variables = {"owner": repository.owner, "name": repository.name, "number": issue}
        try:
            answer = await self._api.graphql(LinkedAnswer, LINKED_PULL_REQUESTS, variables, partial=True)
        except (NeedsHumanAction, NoAccess):
            return ()
        here = answer.repository
        if here is None or here.issue is None or here.issue.closed_by_pull_requests_references is None:
            return ()
        nodes = here.issue.closed_by_pull_requests_references.nodes or ()
        return tuple(
            LinkedPullRequest(number=node.number, author=(node.author.database_id or 0) if node.author else 0)
            for node in nodes
            if node is not None and node.state == "OPEN" and node.repository.id == here.id
        )

    async def commits(self, number: int) -> tuple[PullRequestCommit, ...]:
        """The commits of a pull request, the oldest first; GitHub tells at most 250."""
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
        """The commit that two commits have in common; NeedsHuman or Missing where they have none."""
        found = await self._api.read(api_models.ComparisonResponse, COMPARE_COMMITS, f"{base}...{head}")
        return found.merge_base_commit.sha
