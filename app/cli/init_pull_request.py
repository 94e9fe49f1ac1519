"""Opens what `agent-fix init` would write as a pull request on GitHub, without touching the work tree."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from app.config.settings import Settings
from app.config.workflow import github_token
from app.core.errors import AgentFixError, ExitCode
from app.core.issue_file import IssueAddress
from app.core.patch import FileChange, Patch
from app.github.base import GIVEN, NewPullRequest
from app.github.connection import GitHubHost, RepositoryId, TokenConnection
from app.github.effects import open_forge
from app.github.http_client import NotFoundOnGitHub
from app.github.reader import RepositoryReader
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
    host = GitHubHost(settings.github_api_url, settings.github_url, settings.proxy)
    async with TokenConnection(host, token) as connection:
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
