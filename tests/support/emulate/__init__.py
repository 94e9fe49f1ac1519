"""A GitHub for integration tests: emulate, by a third party, with real git over HTTP beside it, at one address.

`EmulatedGitHub` (github.py) starts it. Whatever asks, our product or a person of a test, asks the front (front.py),
and the front asks emulate. This is who does what:

Emulate's: the App's signature, installation tokens with their permissions and repositories, accounts and roles, issues,
labels, comments, contents, comparisons, git objects and references (with git's own ids), pull requests and drafts,
inline comments, reviews, check runs with annotations, the webhooks of all these and their signature.

Ours, because emulate has nothing of the kind (kept in memory.py, answered beside this file):
- git over HTTP on bare repositories; what is pushed is replayed into emulate through its git data API (gitside.py),
  with `refs/pull/N/head`, the `push` of a new or deleted branch and a pull request's `synchronize`;
- tokens are live, known, not over and not revoked, or the answer is 401 (emulate takes an unknown one for its first
  user); revoking them; an account by its number (accounts.py);
- GraphQL: edits, review threads, resolving (threads.py); reactions and commit statuses (talk.py, checks.py);
- the App's deliveries and sending one again; each has an id of its own (relay.py: emulate's is the millisecond).

Emulate's, and put right here, because GitHub does otherwise:
- times have no milliseconds, a token's answer no abbreviated repositories; a permission is told in GitHub's words,
  and for everybody, not for collaborators alone (accounts.py);
- a pull request is an issue too: read, listed, edited, and marked so in webhooks; its labels are `pull_request` events;
- its head moves with its branch, its files are those of the comparison, there is one for a branch and none without
  commits, and a merge merges what is there now and closes what it fixes (pulls.py, dressing.py);
- inline comments have their hunk, ends and age; a review's inline comments have lines and webhooks; replies have their
  own path (pulls.py, dressing.py);
- check runs have the App that made them and pull requests; annotations are a list; logs of jobs (checks.py).

Not there at all: forks, organisations, installation events, rate limits, refusing to write where it is locked.
"""
