"""Which open issues and pull requests touch an issue: by our own jobs, by what people wrote, by GitHub's references."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from app.core.record import Record
from app.core.text import visible, without_quotes
from app.github.models import CrossReference, PullRequest

MOST_NAMED = 5
_CODE = re.compile(r"(?s)```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]+`")
_CLOSES = r"\b(?:clos(?:e[sd]?|ing)|fix(?:e[sd]|ing)?|resolv(?:e[sd]?|ing)):?\s+"
_WORK = r"(?:issues?|gh|bug|bugfix|fix|fixes|hotfix|feat|feature)"


class Neighbour(Record):
    """An open issue or pull request. `ours`: our own job opened it for this issue. `claims`: it says that it is the
    change for this issue, in its title, its branch or with a closing word."""

    number: int
    is_pull_request: bool = True
    ours: bool = False
    claims: bool = False


@dataclass(frozen=True)
class Mentions:
    """Finds one issue in texts. `repository` is OWNER/NAME, `branch` how our own branches for it begin."""

    number: int
    repository: str
    branch: str

    def neighbour(self, pull: PullRequest, opened: Collection[int], bot: int) -> Neighbour | None:
        """None if nothing in the pull request names the issue. `opened` are those of our own jobs."""
        body = without_code(pull.body)
        claims = self._in(pull.title) or self._in_branch(pull.head_branch) or self._in(body, _CLOSES)
        if pull.author == bot:
            ours = pull.number in opened or pull.head_branch.startswith(self.branch) or claims
            return Neighbour(number=pull.number, ours=True, claims=True) if ours else None
        return Neighbour(number=pull.number, claims=claims) if claims or self._in(body) else None

    def _in(self, text: str, before: str = "") -> bool:
        name = re.escape(self.repository)
        page = rf"(?:https?://[^\s/]+/|\b){name}[/]issues"
        reference = rf"(?:(?<![\w/#&])(?:#|GH-)|(?<![\w/]){name}#|{page}/){self.number}(?!\w)"
        return re.search(before + reference, text, re.IGNORECASE) is not None

    def _in_branch(self, branch: str) -> bool:
        """Also `12-title`, as GitHub names branches."""
        pattern = rf"(?:^|[/_-]){_WORK}[/_-]?{self.number}(?![0-9])|^{self.number}[_-]"
        return re.search(pattern, branch, re.IGNORECASE) is not None


def without_code(text: str) -> str:
    """What people say: no code, no quotes of others, and nothing that a reader does not see."""
    return _CODE.sub(" ", without_quotes(visible(text).text))


def neighbours_of(
    mentions: Mentions,
    pulls: Iterable[PullRequest],
    references: Iterable[CrossReference],
    opened: Collection[int],
    bot: int,
) -> tuple[Neighbour, ...]:
    """All of them, ours first, then those that claim to solve the issue."""
    pulls = tuple(pulls)
    found = {near.number: near for pull in pulls if (near := mentions.neighbour(pull, opened, bot))}
    seen = {mentions.number, *(pull.number for pull in pulls if pull.author == bot)}
    for each in references:
        if each.open and each.number not in seen and each.is_in(mentions.repository):
            found.setdefault(each.number, Neighbour(number=each.number, is_pull_request=each.pull_request))
    return tuple(sorted(found.values(), key=lambda near: (not near.ours, not near.claims, near.number)))


def note_about(near: Collection[Neighbour]) -> str:
    """One line for people; empty if there are none."""
    named = [f"{'pull request' if each.is_pull_request else 'issue'} #{each.number}" for each in near]
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return f"Also open and about this: {', '.join(named[:MOST_NAMED])}{more}." if named else ""
