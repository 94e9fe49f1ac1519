"""Faults on request: what GitHub and networks may do wrong, for a number of matching requests."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

HTML = "<!DOCTYPE html><html><body><h1>Unicorn!</h1></body></html>"


@dataclass
class Fault:
    """Answers a matching `METHOD path` in GitHub's place, `times` times.

    `after` does what was asked first and loses the answer; `cut` sends half of the true answer; `drop` sends nothing.
    """

    match: str
    status: int = 502
    body: str = HTML
    headers: Mapping[str, str] = field(default_factory=dict)
    times: int = 1
    after: bool = False
    cut: bool = False
    drop: bool = False

    def hits(self, method: str, path: str) -> bool:
        if self.times > 0 and re.fullmatch(self.match, f"{method} {path}"):
            self.times -= 1
            return True
        return False


PULLS = "POST /repos/[^/]+/[^/]+/pulls"
BRANCH_UNSEEN = (
    [{"resource": "PullRequest", "field": "head", "code": "invalid"}],
    [{"message": "Head sha can't be blank, Base sha can't be blank, Head ref must be a branch"}],
    [{"message": "No commits between main and agent-fix/issue-1-totals"}],
    [{"message": "not all refs are readable"}],
)
"""What `POST /pulls` says while its side has not seen the push yet: cli/cli#2691, reenhanced/gitreflow#226 and
nix-community/nixpkgs-update#363 (`head`, `invalid`), podman-container-tools/container-libs#347 (the others)."""
NODE_UNSEEN = [
    {
        "resource": "PullRequest",
        "field": "data",
        "code": "unprocessable",
        "message": "Could not resolve to a node with the global id of 'PR_kwDOA1'.",
    }
]
"""Right after a pull request or an issue was made: peter-evans/create-pull-request#4322 and
trstringer/manual-approval#208."""
TEAM_UNSEEN = "Could not resolve to a node with the global id of 'T_kwDOA1'."
"""Of a team that the token may not see, for good: actions/github-script#572."""
TOO_QUICK = [{"resource": "PullRequest", "code": "custom", "message": "was submitted too quickly"}]
"""When an account makes many pull requests, issues or comments; it passes after minutes: cli/cli#4801."""


def invalid(match: str, errors: object, *, times: int = 1) -> Fault:
    """A 422 in the shape in which GitHub explains itself; it was not carried out."""
    return Fault(match, 422, json.dumps({"message": "Validation Failed", "errors": errors}), times=times)
