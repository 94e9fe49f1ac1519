"""What the command line does on GitHub: reads an issue, and opens what `agent-fix init` would write as a pull request.

Both with the environment's token; an issue of a public repository can be read without one.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from app.config.settings import Settings
from app.config.workflow import github_token
from app.core.errors import AgentFixError, ExitCode
from app.core.issue_file import IssueAddress, issue_of, unreadable
from app.core.patch import FileChange, Patch
from app.core.task import Issue
from app.github.base import GIVEN, ForgeError, NewPullRequest, NoAccess
from app.github.connection import GitHubHost, RepositoryId, TokenConnection
from app.github.effects import open_forge
from app.github.reader import RepositoryReader
from app.github.refusals import NotFoundOnGitHub
from app.github.repository_api import RepositoryApi
from app.repo.git_store import GitStore

BRANCH = "agent-fix-init"
TITLE = "Add agent-fix"
BODY = """\
The workflow and the configuration of agent-fix, as `agent-fix init` made them: {files}.

Once this is merged, labelling an issue `agent-fix` opens a draft pull request for it.
Before that, run:

{steps}
"""


async def fetch_issue(settings: Settings, address: IssueAddress) -> Issue:
    """Title, body and labels. Raises IssueError with the reason."""
    async with _connection(settings, github_token(settings.environment)) as connection:
        return await read_issue_at(connection, address)


async def read_issue_at(connection: TokenConnection, address: IssueAddress) -> Issue:
    """The same over an open connection."""
    site = connection.host.server_url
    if not address.is_on(site):
        raise unreadable(
            f"{address} is on {address.server}, but agent-fix is configured for {site}",
            f"set AGENT_FIX_GITHUB_URL={address.server}, with a token of that server",
        )
    api = RepositoryApi(connection, GIVEN, RepositoryId(0, address.owner, address.name))
    try:
        found = await RepositoryReader(api).issue(address.number)
    except NoAccess as error:
        hint = "check that the token in GITHUB_TOKEN may read it"
        if not connection.token:
            hint = "a private repository needs a token: set GITHUB_TOKEN"
        raise unreadable(f"{address} cannot be read: {error.message}", hint) from error
    except ForgeError as error:
        raise unreadable(f"{address} cannot be read: {error.message}", error.hint) from error
    if found is None:
        raise unreadable(f"{address.owner}/{address.name} has no issue {address.number}")
    if found.pull_request:
        raise unreadable(f"{address} is a pull request", "use an issue, or comment `/agent …` on the pull request")
    issue = issue_of(found.title, found.body, number=found.number, labels=found.labels, milestone=found.milestone)
    page = f"{site}/{address.owner}/{address.name}/issues/{address.number}"
    return issue.model_copy(update={"url": page})


async def open_init_pull_request(
    settings: Settings,
    address: IssueAddress,
    store: GitStore,
    base: tuple[str, str],
    files: Mapping[str, str],
    *,
    steps: Sequence[str],
) -> str:
    """Push a branch with the files, and open a draft for it; returns its address.

    `base` is the branch and the commit to build on, which GitHub has to have there: other commits stay where they are.
    The token comes from the environment. Raises ForgeError.
    """
    token = github_token(settings.environment)
    if not token:
        hint = (
            "Set GITHUB_TOKEN to a token that may write contents, workflows and pull requests, for example the output "
            "of `gh auth token`."
        )
        raise AgentFixError("There is no token for GitHub.", hint=hint, code=ExitCode.USAGE)
    branch, commit = base
    async with _connection(settings, token) as connection:
        place = RepositoryId(0, address.owner, address.name)
        await _need_on_github(RepositoryApi(connection, GIVEN, place), branch, commit)
        forge = await open_forge(connection, GIVEN, place, store, 0)
        changes = tuple(
            FileChange(path=path, mode="100644", content=text.encode()) for path, text in sorted(files.items())
        )
        patch, author = Patch(base=commit, changes=changes), forge.bot.person
        made = store.commit(patch, message=f"{TITLE}\n", author=author, date=datetime.now(UTC))
        pushed = await forge.ensure_branch(BRANCH, made)
        listed = "\n".join(f"    {step}" for step in steps)
        body = BODY.format(files=" and ".join(f"`{path}`" for path in sorted(files)), steps=listed)
        return await forge.ensure_pull_request(NewPullRequest(branch=pushed, base=branch, title=TITLE, body=body))


async def _need_on_github(api: RepositoryApi, branch: str, commit: str) -> None:
    tip = await RepositoryReader(api).head(branch)
    with suppress(NotFoundOnGitHub):  # no such commit
        if tip and (tip == commit or await RepositoryReader(api).merge_base(tip, commit) == commit):
            return
    hint = f"Push `{branch}` first, or check out a commit that GitHub has."
    raise AgentFixError(f"The branch `{branch}` on GitHub does not have the commit {commit[:12]}.", hint=hint)


def _connection(settings: Settings, token: str) -> TokenConnection:
    return TokenConnection(GitHubHost.of(settings), token)
