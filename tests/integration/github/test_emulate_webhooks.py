"""What people do on a GitHub emulator by a third party arrives at our receiver, signed, and is parsed correctly."""

import base64
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import httpx
import pytest

from app.jobs.inbox import Delivery, InboxHealth, StoreOutcome
from app.server.receiver import receiver
from app.triggers import events
from app.triggers.events import (
    ChecksFailed,
    IssueChanged,
    IssueCommented,
    LabelAdded,
    LabelRemoved,
    PullRequestChanged,
    Pushed,
    RepositoryEvent,
    ReviewCommented,
    ReviewSubmitted,
)
from tests.support.emulate.github import SECRET, EmulatedGitHub, Repository, emulated_github
from tests.support.emulate.memory import now
from tests.support.emulate.person import InlineComment, Person, Refused
from tests.support.loopback import listening, serving
from tests.support.repositories import ENVIRONMENT

pytestmark = pytest.mark.xdist_group("emulate")
MONEY = "half = 0.5\nthird = 0.3\n"
E = TypeVar("E", bound=RepositoryEvent)


@dataclass
class StoredDeliveries:
    """Keeps what the receiver stores, by id."""

    kept: dict[str, Delivery] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def store(self, arrived: Sequence[Delivery]) -> list[StoreOutcome]:
        with self.lock:
            told: list[StoreOutcome] = ["duplicate" if item.id in self.kept else "stored" for item in arrived]
            self.kept |= {item.id: item for item in arrived}
        return told

    def health(self) -> InboxHealth:
        return InboxHealth(undone=0, oldest=None, dead=0)


@dataclass
class WebhookHarness:
    """A repository, people, and what reached our receiver from there."""

    github: EmulatedGitHub
    repository: Repository
    stored: StoredDeliveries

    @property
    def ada(self) -> Person:
        return self.repository.as_user("ada")

    @property
    def grace(self) -> Person:
        return self.repository.as_user("grace")

    def heard(self, kind: type[E], does: Callable[[], object]) -> E:
        """The first event of this kind that comes of doing something."""
        seen = set(self.stored.kept)
        does()

        def look() -> E | None:
            for ident in [ident for ident in self.stored.kept if ident not in seen]:
                delivery = self.stored.kept[ident]
                event = events.read(delivery.event, events.decode(delivery.body))
                if isinstance(event, kind) and event.repository.id == self.repository.id:
                    return event
            return None

        return self.github.wait(look, kind.__name__)

    def draft(self) -> int:
        self.grace.push("topic", {"app/money.py": "half = 0.25\nthird = 0.3\n"})
        return self.grace.open_pull("topic", "Halves", draft=True)


@pytest.fixture(scope="module")
def stored() -> StoredDeliveries:
    return StoredDeliveries()


@pytest.fixture(scope="module")
def github(stored: StoredDeliveries) -> Iterator[EmulatedGitHub]:
    application = receiver((SECRET,), stored, now)
    with (
        listening() as listener,
        serving(application, listener) as address,
        emulated_github(f"{address}/webhook") as github,
    ):
        yield github


@pytest.fixture
def harness(github: EmulatedGitHub, stored: StoredDeliveries) -> WebhookHarness:
    return WebhookHarness(github, github.add_repository(files={"app/money.py": MONEY}), stored)


def test_a_label_is_the_act_of_who_put_it_there(harness: WebhookHarness) -> None:
    rob = harness.repository.as_user("rob")
    issue = rob.open_issue("It breaks", "Badly.")
    event = harness.heard(LabelAdded, lambda: harness.grace.label(issue, "agent-fix"))
    assert (event.installation, event.label) == (harness.github.installation_id, "agent-fix")
    assert event.repository.id == harness.repository.id
    assert f"{event.repository.owner}/{event.repository.name}" == harness.repository.full_name
    assert (event.actor.id, event.actor.kind) == (harness.grace.number, "User")
    assert (event.subject.number, event.subject.author, event.subject.body) == (issue, rob.number, "Badly.")
    assert not event.subject.is_pull_request
    assert harness.heard(LabelRemoved, lambda: harness.ada.unlabel(issue, "agent-fix")).label == "agent-fix"


def test_a_label_on_a_pull_request(harness: WebhookHarness) -> None:
    number = harness.draft()
    event = harness.heard(LabelAdded, lambda: harness.ada.label(number, "agent-fix"))
    assert (event.subject.number, event.subject.is_pull_request) == (number, True)
    assert event.subject.head is not None
    assert event.subject.head.sha == harness.repository.head_of("topic")


@pytest.mark.parametrize("on", ["issue", "pull request"])
def test_a_comment(harness: WebhookHarness, on: str) -> None:
    number = harness.draft() if on == "pull request" else harness.ada.open_issue("It breaks")
    event = harness.heard(IssueCommented, lambda: harness.ada.comment(number, "/agent fix"))
    assert (event.text, event.subject.number, event.actor.id) == ("/agent fix", number, harness.ada.number)
    assert event.subject.is_pull_request == (on == "pull request")
    assert event.app is None


def test_inline_comments_have_their_lines_and_their_hunk(harness: WebhookHarness) -> None:
    number = harness.draft()
    event = harness.heard(
        ReviewCommented, lambda: harness.ada.comment_inline(number, InlineComment("app/money.py", 2, "these", 1))
    )
    thread = event.thread
    assert (thread.comment, thread.path, thread.start, thread.end) == (
        event.id,
        "app/money.py",
        1,
        2,
    )
    assert thread.hunk.splitlines() == ["@@ -1,2 +1,2 @@", "-half = 0.5", "+half = 0.25", " third = 0.3"]
    answer = harness.heard(ReviewCommented, lambda: harness.grace.reply(number, event.id, "/agent yes"))
    assert (answer.thread.comment, answer.text) == (event.id, "/agent yes")


def test_a_review_and_its_inline_comments_arrive_each(harness: WebhookHarness) -> None:
    number = harness.draft()
    comments = [InlineComment("app/money.py", 1, "why?")]
    seen = len(harness.github.deliveries)
    event = harness.heard(
        ReviewSubmitted, lambda: harness.ada.review(number, "/agent please", "REQUEST_CHANGES", comments)
    )
    assert (event.verdict, event.text) == ("changes_requested", "/agent please")
    inline = harness.github.delivered("pull_request_review_comment", "created", since=seen)
    assert inline.payload["comment"]["pull_request_review_id"] == event.id


def test_a_push_moves_the_pull_request(harness: WebhookHarness) -> None:
    number, before = harness.draft(), harness.repository.head_of("topic")
    seen = len(harness.github.deliveries)
    event = harness.heard(PullRequestChanged, lambda: harness.grace.push("topic", {"b.txt": "b\n"}))
    after = harness.repository.head_of("topic")
    assert (event.change, event.subject.number, event.merged) == ("synchronize", number, False)
    assert event.subject.head is not None
    assert event.subject.head.sha == after
    pushed = harness.github.delivered("push", since=seen).payload
    assert (pushed["ref"], pushed["before"], pushed["after"]) == ("refs/heads/topic", before, after)
    new = harness.heard(Pushed, lambda: harness.grace.push("other", {"c.txt": "c\n"}))
    assert (new.branch, new.after) == ("other", harness.repository.head_of("other"))
    gone = harness.heard(Pushed, lambda: harness.grace.delete_branch("other"))
    assert (gone.branch, gone.after) == ("other", "0" * 40)


def test_turns_of_an_issue(harness: WebhookHarness) -> None:
    issue = harness.ada.open_issue("It breaks", "Badly.")
    assert harness.heard(IssueChanged, lambda: harness.ada.edit_issue(issue, body="Very badly.")).change == "edited"
    assert harness.heard(IssueChanged, lambda: harness.ada.close(issue)).change == "closed"
    assert harness.heard(IssueChanged, lambda: harness.ada.reopen(issue)).change == "reopened"


def test_the_end_of_a_pull_request(harness: WebhookHarness) -> None:
    number = harness.draft()
    closed = harness.heard(PullRequestChanged, lambda: harness.ada.close(number))
    assert (closed.change, closed.merged) == ("closed", False)
    assert harness.heard(PullRequestChanged, lambda: harness.ada.reopen(number)).change == "reopened"
    with pytest.raises(Refused, match="draft"):
        harness.ada.merge(number)
    harness.ada.make_ready(number)
    merged = harness.heard(PullRequestChanged, lambda: harness.ada.merge(number))
    assert (merged.change, merged.merged) == ("closed", True)
    assert harness.repository.site.file("app/money.py") == b"half = 0.25\nthird = 0.3\n"


def test_a_pull_request_ends_with_its_branch(harness: WebhookHarness) -> None:
    number = harness.draft()
    event = harness.heard(PullRequestChanged, lambda: harness.grace.delete_branch("topic"))
    assert (event.change, event.subject.number) == ("closed", number)


def test_a_check_that_failed_names_its_pull_request(harness: WebhookHarness) -> None:
    number, head = harness.draft(), harness.repository.head_of("topic")
    event = harness.heard(ChecksFailed, lambda: harness.repository.add_check(head, "tests", "failure"))
    assert (event.source, event.name, event.head_sha, event.head_ref) == ("check_run", "tests", head, "topic")
    assert (event.pull_requests, event.app) == ((number,), 15_368)


def test_deliveries_have_ids_of_their_own_and_lost_ones_are_recorded(harness: WebhookHarness) -> None:
    issue = harness.ada.open_issue("It breaks")
    for number in range(10):
        harness.ada.comment(issue, f"comment {number}")
    harness.heard(LabelAdded, lambda: harness.ada.label(issue, "bug"))
    assert len({item.guid for item in harness.github.deliveries}) == len(harness.github.deliveries)
    assert {item.status for item in harness.github.deliveries} == {202}
    seen = len(harness.github.deliveries)
    with harness.github.losing_webhooks():
        harness.ada.comment(issue, "unheard")
        assert not harness.github.delivered("issue_comment", since=seen).ok


@pytest.mark.parametrize("token", ["", "ghp_unknown", "ghs_" + "x" * 36])
def test_an_unknown_token_opens_nothing(harness: WebhookHarness, token: str) -> None:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(base_url=harness.github.api_url, headers=headers) as client:
        for path in (
            f"/repos/{harness.repository.full_name}",
            "/user",
            f"/repos/{harness.repository.full_name}/issues",
        ):
            assert client.get(path).status_code == 401


@pytest.mark.parametrize(
    ("login", "status"), [("grace", "200"), ("rob", "403"), ("mallory", "403"), ("unknown", "401"), ("", "401")]
)
def test_pushing_needs_write_access(harness: WebhookHarness, login: str, status: str) -> None:
    address = f"{harness.github.server_url}/{harness.repository.full_name}.git/info/refs?service=git-receive-pack"
    credentials = base64.b64encode(f"x-access-token:ghp_{login}".encode()).decode()
    headers = {"authorization": f"Basic {credentials}"} if login else {}
    assert str(httpx.get(address, headers=headers).status_code) == status


def test_cloning_needs_a_token(harness: WebhookHarness) -> None:
    address = f"{harness.github.server_url}/{harness.repository.full_name}.git"
    done = subprocess.run(["git", "ls-remote", address], capture_output=True, env={**ENVIRONMENT, "GIT_TERMINAL_PROMPT": "0"}, check=False)  # fmt: skip # noqa: E501
    assert done.returncode != 0
