"""One server with all its processes, one emulated GitHub, and a repository for each story; stories run at once."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from app.jobs.store import JobWithContext
from tests.support.conversation_model import ConversationModel, ModelQuestion
from tests.support.github.authentication import APP_ID, app_key
from tests.support.github.fake import fake_github, served
from tests.support.github.running import SECRET, RunningWorld
from tests.support.github.webhooks import Hooks
from tests.support.github.world import Check, Comment, Delivery, Installation, Issue, Pull, Repo, Thread, User, World
from tests.support.openai_endpoint import ReceivedRequest, Reply, error
from tests.support.repositories import git
from tests.support.sample_project import ISSUE, PROJECT, TIMEOUT
from tests.support.server_process import Server, running_server

T = TypeVar("T")
AnswerModel = Callable[[ModelQuestion], Reply]
SIDE_BY_SIDE = 12


class E2EModels(ConversationModel):
    """One model endpoint that answers differently for each repository; the model's name tells them apart."""

    def __init__(self) -> None:
        super().__init__(self._by_name)
        self.answers: dict[str, AnswerModel] = {}
        self.asked: dict[str, list[ModelQuestion]] = {}

    def take(self, received: ReceivedRequest) -> Reply:
        self.asked.setdefault(received.body["model"], []).append(ModelQuestion(received.body))
        return super().take(received)

    def _by_name(self, asked: ModelQuestion) -> Reply:
        answer = self.answers.get(asked.body["model"])
        return answer(asked) if answer else error(404, "there is no such model")


@dataclass
class People:
    """The users of the emulated GitHub. `ada` owns every repository."""

    ada: User
    grace: User
    rita: User
    """May read."""
    sam: User
    """Has no access."""
    robot: User


@dataclass
class E2ERepository:
    """One repository with an issue, in an installation of its own, and with a model of its own."""

    e2e_server: "E2EServer"
    repo: Repo
    issue: Issue
    installation: Installation
    model: str
    lost: bool = False
    """Whether the webhooks of this repository are lost."""

    @property
    def world(self) -> World:
        return self.e2e_server.world

    @property
    def people(self) -> People:
        return self.e2e_server.people

    # What the model does.

    def model_answers(self, answer: AnswerModel, model: str = "") -> None:
        self.e2e_server.models.answers[model or self.model] = answer

    @property
    def asked(self) -> list[ModelQuestion]:
        """The requests to this repository's model."""
        return self.e2e_server.models.asked.get(self.model, [])

    # What people do; GitHub sends a webhook for each.

    def configure(self, text: str = "") -> None:
        self.commit("main", {".github/agent-fix.yml": f"model: openai/{self.model}\n{text}"})

    def commit(self, branch: str, files: Mapping[str, str | bytes]) -> str:
        """A person's commit, for which no webhook has been sent yet."""
        return self.world.push_as_human(self.repo, branch, files)

    def pushes(self, branch: str, files: Mapping[str, str | bytes], pull: Issue | None = None) -> str:
        commit = self.commit(branch, files)
        self._tell(lambda hooks: hooks.pushed(self.repo, self.installation, self.people.grace, branch))
        if pull is not None:
            self._tell(lambda hooks: hooks.synchronized(self.repo, self.installation, self.people.grace, pull))
        return commit

    def labels(
        self,
        issue: Issue | None = None,
        by: User | None = None,
        label: str = "agent-fix",
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        """`meanwhile` happens between the webhook's signature and its arrival."""
        who, about = by or self.people.ada, issue or self.issue
        self._tell(lambda hooks: hooks.labeled(self.repo, self.installation, who, about, label), meanwhile)

    def unlabels(self, label: str) -> None:
        self._tell(lambda hooks: hooks.unlabeled(self.repo, self.installation, self.people.ada, self.issue, label))

    def closes(self, issue: Issue) -> None:
        self._tell(lambda hooks: hooks.turned(self.repo, self.installation, self.people.ada, issue, "closed"))

    def says(self, text: str, issue: Issue | None = None, by: User | None = None) -> Comment:
        about, who = issue or self.issue, by or self.people.ada
        comment = self.world.comment(self.repo, about, who, text)
        self._tell(lambda hooks: hooks.commented(self.repo, self.installation, who, about, comment))
        return comment

    def starts_thread(self, pull: Issue, text: str, *, path: str = "money.py", line: int = 5) -> Thread:
        return self.world.start_thread(self.repo, pull, self.people.grace, path=path, line=line, body=text)

    def reviews(self, pull: Issue, text: str, *threads: Thread) -> None:
        review = self.world.review(pull, self.people.grace, text)
        for thread in threads:
            self.repo.comments[thread.comments[0]].review = review.id
        self._tell(lambda hooks: hooks.reviewed(self.repo, self.installation, pull, review))

    def checks_end(self, check: Check) -> None:
        self._tell(lambda hooks: hooks.check_ended(self.repo, self.installation, check))

    def sends_lost_again(self) -> int:
        """Redeliver this repository's failed webhooks under their old ids; returns how many."""
        mine = [each for each in self.world.deliveries if each.status == 502 and self._is_mine(each)]
        for delivery in mine:
            self._with_hooks(lambda hooks, delivery=delivery: hooks.attempt(delivery))  # type: ignore[misc]
        return len(mine)

    def opens_pull(self, branch: str, files: Mapping[str, str | bytes], *, by: User, fork: int = 0) -> Issue:
        """A person's pull request, from a fork if `fork` is set."""
        head = self.commit(branch, files)
        pull = Pull(branch, "main", draft=False, mergeable=True, fork=fork)
        opened = self.world.open_issue(self.repo, by, "Round better", "It rounds.", pull=pull)
        git(self.repo.path, "update-ref", f"refs/pull/{opened.number}/head", head)
        return opened

    # What can be seen on GitHub and in the server.

    def ours(self, issue: Issue | None = None) -> list[Comment]:
        """Our comments on an issue."""
        there = [self.repo.comments[number] for number in (issue or self.issue).comments]
        return [each for each in there if each.user.id == self.world.bot.id]

    def told(self, *words: str, issue: Issue | None = None) -> str:
        """The body of the first comment of ours that holds all of these words, once there is one."""

        def found() -> str | None:
            bodies = (each.body for each in self.ours(issue))
            return next((body for body in bodies if all(word in body for word in words)), None)

        return self.until(found, f"a comment with {words}")

    @property
    def pulls(self) -> list[Issue]:
        """Pull requests of ours."""
        return [pull for pull in self.repo.pulls if pull.user.id == self.world.bot.id]

    def pull(self, number: int = 1) -> Issue:
        """The first of our pull requests, or a later one, once it is there."""
        return self.until(lambda: self.pulls[number - 1] if len(self.pulls) >= number else None, "the pull request")

    def file(self, path: str, branch: str) -> str:
        return git(self.repo.path, "show", f"{branch}:{path}") + "\n"

    def reactions(self, thing: Issue | Comment) -> set[str]:
        kind, number = ("issues", thing.number) if isinstance(thing, Issue) else ("issue comments", thing.id)
        return {found[3] for found in self.repo.reactions if found[:2] == (kind, number)}

    def job(self, issue: Issue | None = None) -> JobWithContext | None:
        """The newest job of an issue, without questions."""
        return self.e2e_server.server.server_context.job_queries.newest(self.repo.id, (issue or self.issue).number)

    def comes_to(self, *states: str, issue: Issue | None = None, not_before: str = "") -> JobWithContext:
        """The newest job, once it is in one of these states and another than the one `not_before`."""

        def found() -> JobWithContext | None:
            job = self.job(issue)
            return job if job and job.row.state in states and job.job.id != not_before else None

        return self.until(found, f"a job that is {' or '.join(states)}", issue=issue)

    def has(self, label: str, issue: Issue | None = None) -> None:
        self.until(lambda: label in (issue or self.issue).labels, f"the label {label}")

    def until(
        self, found: Callable[[], T | None], what: str, *, issue: Issue | None = None, timeout: float = TIMEOUT
    ) -> T:
        def state() -> str:
            job = self.job(issue)
            return f"{self.model}: {what} ({job.row.state}, {job.row.reason} {job.row.result})" if job else what

        try:
            return self.e2e_server.server.wait(found, what, timeout=timeout)
        except AssertionError as error:
            raise AssertionError(f"{state()}\n{[each.body for each in self.ours()]}\n{error}") from None

    def decided(self, comment: Comment, kind: str = "comment") -> str:
        """The outcome of a comment, once it is decided."""
        key = f"r{self.repo.id}/{kind}:{comment.id}"
        found = self.until(
            lambda: self.e2e_server.server.server_context.triggers.decided(key), f"a decision on {comment.body}"
        )
        return found.outcome

    def _tell(self, event: Callable[[Hooks], Awaitable[Delivery]], meanwhile: Callable[[], None] | None = None) -> None:
        """Send a webhook and wait for its answer, as GitHub does."""

        async def send(hooks: Hooks) -> None:
            if self.lost:
                with hooks.down():
                    await event(hooks)
                return
            hooks.held = True
            delivery = await event(hooks)
            if meanwhile is not None:
                meanwhile()
            await hooks.attempt(delivery)

        self._with_hooks(send)

    def _with_hooks(self, do: Callable[[Hooks], Coroutine[Any, Any, None]]) -> None:
        async def done() -> None:
            async with httpx.AsyncClient(base_url=self.e2e_server.server.url, timeout=30.0) as client:
                await do(Hooks(self.world, client, SECRET))

        asyncio.run(done())

    def _is_mine(self, delivery: Delivery) -> bool:
        return bool(delivery.payload["repository"]["id"] == self.repo.id)


class E2EServer:
    """The server, the emulated GitHub and the models."""

    def __init__(self, world: World, server: Server, models: E2EModels, people: People) -> None:
        self.world = world
        self.server = server
        self.models = models
        self.people = people

    def add_place(self, name: str, files: Mapping[str, str | bytes] = PROJECT) -> E2ERepository:
        world, people = self.world, self.people
        repo = world.add_repo(people.ada, name, files)
        repo.collaborators |= {people.grace.id: "write", people.rita.id: "read"}
        issue = world.open_issue(repo, people.ada, "half loses a cent", ISSUE)
        place = E2ERepository(self, repo, issue, world.install(repo), name)
        place.configure()
        return place


Story = Callable[[E2ERepository], None]


@contextmanager
def running_e2e_server(directory: Path, **environment: str) -> Iterator[E2EServer]:
    world = RunningWorld(directory)
    people = People(
        ada=world.add_user("ada", name="Ada Lovelace"),
        grace=world.add_user("grace", name="Grace Hopper"),
        rita=world.add_user("rita"),
        sam=world.add_user("sam"),
        robot=world.add_user("robot[bot]", kind="Bot"),
    )
    with served(fake_github(world)) as address, E2EModels() as models:
        world.logs = f"{address}/logs"
        values = {
            "AGENT_FIX_APP_ID": str(APP_ID),
            "AGENT_FIX_PRIVATE_KEY": app_key()[0],
            "AGENT_FIX_WEBHOOK_SECRET": SECRET,
            "AGENT_FIX_GITHUB_API_URL": address,
            "AGENT_FIX_GITHUB_URL": address,
            "AGENT_FIX_MODEL": "openai/nobody",
            "AGENT_FIX_JOBS": "3",
            "OPENAI_API_BASE": models.url,
            "OPENAI_API_KEY": "sk-e2e-canary",
        }
        with running_server(directory, {**values, **environment}) as server:
            yield E2EServer(world, server, models, people)


@contextmanager
def run_stories(e2e_server: E2EServer, stories: list[Story]) -> Iterator[dict[str, "Future[None]"]]:
    """Start all stories at once, each in a repository of its own, because they mostly wait."""
    places = {story.__name__: e2e_server.add_place(story.__name__.replace("_", "-")) for story in stories}
    e2e_server.server.start_all()
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        futures = {story.__name__: pool.submit(story, places[story.__name__]) for story in stories}
        try:
            yield futures
        finally:
            for future in futures.values():
                future.cancel()


def chosen(request: pytest.FixtureRequest, stories: tuple[Story, ...]) -> list[Story]:
    """The stories that this test session selected."""
    wanted: set[Any] = set()
    for item in request.session.items:
        callspec = getattr(item, "callspec", None)
        if callspec is not None and item.path == request.path:
            wanted |= set(callspec.params.values())
    return [story for story in stories if story in wanted]
