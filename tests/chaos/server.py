"""A whole server: a GitHub in this process, the three roles in theirs, and each can be killed at a chosen point.

A job is small (a plan, an edit, a submission; recorded answers), but nothing in it is faked: sandbox, suite, git, HTTP.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import sqlalchemy as sa

from app.config.roles import ROLES, Role
from app.core.errors import ExitCode
from app.core.record import Record
from app.jobs.store import JobWithContext
from app.jobs.tables import deliveries, effects, job_contexts, jobs
from app.llm.base import ModelAnswer, ToolCall, Usage
from app.llm.replay import RecordingHeader, RecordingLine
from tests.support.databases import fresh_postgres
from tests.support.github.running import RunningGitHub, running_github
from tests.support.github.webhooks import Hooks
from tests.support.github.world import Delivery, Installation, Issue, Repo
from tests.support.sample_project import CHECK, EXAMPLES, ODD
from tests.support.server_process import Server, running_server
from tests.support.written_examples import example

MONEY = "def half(cents):\n    return cents // 2\n"
MENDED = "def half(cents):\n    return (cents + 1) // 2\n"
PROJECT = {"money.py": MONEY, "test_money.py": CHECK}
TITLE = "half loses a cent"
BODY = "`half(5)` is 2 and should be 3, so that two halves are never less than the whole."
COUNTER = example(
    "half(10**20 + 1)", "50000000000000000001", "Half of a large amount is exact.", BODY, "from money import half"
)
"""The reviewer's."""
PRICE = 1_000
"""Of an answer, in micro-dollars."""
CALLS = ("plan.1", "turn.1", "turn.2", "review.1")
TIMEOUT = 180.0


def record(path: Path) -> Path:
    """What the model says to this project, for any number of jobs."""
    plan = {"summary": "Integer division rounds down.", "steps": ["Round half up"]}
    edit = {"path": "money.py", "old_text": "cents // 2", "new_text": "(cents + 1) // 2"}
    test = {"path": "test_money.py", "content": CHECK + ODD}
    submission = {
        "summary": "Half a cent is rounded up now.",
        "reproduction": "python -m unittest test_money.Halves.test_odd",
    }
    said = {
        "plan.1": _answer(("plan", {"examples": EXAMPLES, **plan})),
        "turn.1": _answer(("edit", edit), ("write", test)),
        "turn.2": _answer(("submit", submission)),
        "review.1": _answer(("counter", {"examples": [COUNTER]})),
    }
    lines: list[Record] = [
        RecordingHeader(model="scripted/small"),
        *(RecordingLine(key=key, answer=said[key]) for key in CALLS),
    ]
    path.write_text("".join(f"{line.model_dump_json()}\n" for line in lines))
    return path


def _answer(*calls: tuple[str, Mapping[str, object]], content: str = "") -> ModelAnswer:
    made = tuple(ToolCall(id=f"c{n}", name=name, arguments=json.dumps(given)) for n, (name, given) in enumerate(calls))
    usage = Usage(prompt_tokens=100, completion_tokens=10, cost=PRICE)
    return ModelAnswer(content=content, tool_calls=made, finish_reason="tool_calls" if calls else "stop", usage=usage)


@dataclass(frozen=True)
class IssueUnderTest:
    """An issue, and where it is."""

    repo: Repo
    installation: Installation
    issue: Issue


class ChaosServer:
    """The server, its GitHub, and issues on which something may be asked. Roles that die are started again."""

    def __init__(self, place: Path, github: RunningGitHub, server: Server) -> None:
        self.place = place
        self.github = github
        self.server = server
        first = github.fake_github
        self.spots = [IssueUnderTest(first.repo, first.installation, first.issue)]
        self.deaths: list[Role] = []
        self.database_falls = False
        """A role that starts while there is no database may end; the supervisor starts it again, too."""
        self._armed: dict[Role, str] = {}
        self.on_restart: Callable[[], None] = lambda: None

    # What people do.

    def add_issues(self, number: int, *, repositories: bool = False) -> None:
        """Add more issues, on request each in a repository of its own."""
        world, owner, first = self.github.fake_github.world, self.github.fake_github.owner, self.spots[0]
        for _ in range(number):
            repo, installation = first.repo, first.installation
            if repositories:
                repo = world.add_repo(owner, f"sample{len(self.spots)}", PROJECT)
                installation = world.install(repo)
            self.spots.append(IssueUnderTest(repo, installation, world.open_issue(repo, owner, TITLE, BODY)))

    def label(self, spot: IssueUnderTest | None = None) -> Delivery:
        it, owner = spot or self.spots[0], self.github.fake_github.owner
        return self.github.tell(lambda hooks: hooks.labeled(it.repo, it.installation, owner, it.issue, "agent-fix"))

    def try_to_label(self) -> Delivery:
        """Where the receiver dies on it, GitHub tells us again when it is asked to."""
        delivery = None
        while delivery is None or delivery.status != 202:
            try:
                delivery = self.label() if delivery is None else self.send_again(delivery)
            except httpx.TransportError:
                delivery = self.github.fake_github.world.deliveries[-1]
                self.revive()
        return delivery

    def send_again(self, delivery: Delivery) -> Delivery:
        """As GitHub does when the App, or a person, asks for it."""

        async def again(hooks: Hooks) -> Delivery:
            await hooks.attempt(delivery)
            return delivery

        return self.github.tell(again)

    def label_all(self) -> None:
        for spot in self.spots:
            self.label(spot)

    def report(self, body: str, spot: IssueUnderTest | None = None) -> Delivery:
        it, fake_github = spot or self.spots[0], self.github.fake_github
        comment = fake_github.world.comment(it.repo, it.issue, fake_github.owner, body)
        return self.github.tell(
            lambda hooks: hooks.commented(it.repo, it.installation, fake_github.owner, it.issue, comment)
        )

    # What dies.

    def arm(self, role: Role, *names: str) -> None:
        """Each of these places (`NAME` or `NAME:N`) kills once; one in a job's process is armed by its worker."""
        fuses = self.place / "fuses"
        fuses.mkdir(exist_ok=True)
        for name in names:
            fuse = fuses / name.replace(":", "-")
            fuse.touch()
            spec = f"{name if ':' in name else f'{name}:1'}@{fuse}"
            self._armed[role] = f"{self._armed[role]},{spec}" if role in self._armed else spec

    def arm_for_ever(self, role: Role, name: str) -> None:
        """This place kills whoever comes by, each time."""
        self._armed[role] = name

    @property
    def unburnt(self) -> list[str]:
        """Places that nobody came by."""
        return sorted(fuse.name for fuse in (self.place / "fuses").glob("*"))

    def start(self, *roles: Role) -> None:
        for role in roles or ROLES:
            self.server.start(role, failpoint=self._armed.get(role, ""))

    def kill(self, role: Role) -> None:
        self.server.end(role, kill=True)
        self.deaths.append(role)

    def kill_process(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def replace(self, role: Role) -> None:
        """As in a deploy: the old one is asked to end once it is ready, the new one comes."""
        self.server.wait(lambda: self.server.is_ready(role), f"a {role} that is ready")
        assert self.server.end(role) == 0, f"the {role} did not end well:\n{self.server.tail()}"
        self.start(role)

    def children(self) -> dict[int, str]:
        """Processes that work on a job, each with the job's id."""
        mark = "app.server.job_process "
        return {pid: line.partition(mark)[2].split()[0] for pid, line in self.processes().items() if mark in line}

    def processes(self) -> dict[int, str]:
        """Everything alive that has this server's state directory in its environment or its command line."""
        found = {}
        mark = str(self.server.settings.state).encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal() or int(entry.name) == os.getpid():
                continue
            try:
                environment, line = (entry / "environ").read_bytes(), (entry / "cmdline").read_bytes()
            except OSError:  # it has ended, or is a stranger's
                continue
            if mark in environment or mark in line:
                found[int(entry.name)] = line.replace(b"\0", b" ").decode(errors="replace")
        return found

    # What follows.

    def until(self, true: Callable[[], object], what: str, *, timeout: float = TIMEOUT) -> float:
        """Wait, starting again whatever was killed; how many seconds it took."""
        began = time.monotonic()
        while not true():
            self.revive()
            if time.monotonic() - began > timeout:
                raise AssertionError(f"{what} did not come within {timeout:.0f} s:\n{self.account()}")
            time.sleep(0.05)
        return time.monotonic() - began

    def revive(self) -> None:
        for role, process in list(self.server.processes.items()):
            code = process.poll()
            if code is None:
                continue
            had_no_database = self.database_falls and code == ExitCode.OUTPUT
            assert code == -signal.SIGKILL or had_no_database, f"the {role} ended with {code}:\n{self.server.tail()}"
            self.deaths.append(role)
            self.on_restart()
            self.start(role)

    def wait_for_end(self, *, timeout: float = TIMEOUT) -> float:
        """Until there is nothing left to do."""
        return self.until(self.is_settled, "the end", timeout=timeout)

    def is_settled(self) -> bool:
        """Everything that was asked is dealt with, every job has ended, and people were told."""
        with self.server.server_context.engine.connect() as db:
            undone = sa.select(sa.func.count()).where(deliveries.c.state.in_(("waiting", "claimed")))
            open_effects = sa.select(sa.func.count()).where(effects.c.state.in_(("wanted", "claimed")))
            if db.execute(undone).scalar() or db.execute(open_effects).scalar():
                return False
        found = self.jobs()
        return bool(found) and all(each.row.final and each.posted_state == each.row.state for each in found)

    def jobs(self) -> list[JobWithContext]:
        server_context = self.server.server_context
        with server_context.engine.connect() as db:
            names = db.execute(sa.select(jobs.c.id).order_by(jobs.c.created_at, jobs.c.id)).scalars().all()
        return [each for each in map(server_context.job_queries.get, names) if each is not None]

    @property
    def job(self) -> JobWithContext:
        (only,) = self.jobs()
        return only

    def lapse(self, job: str) -> None:
        """The lease of whoever works on it ends now."""
        with self.server.server_context.engine.begin() as db:
            db.execute(job_contexts.update().where(job_contexts.c.job == job).values(lease_until=0.0))

    def account(self) -> str:
        """What a failing test shows."""
        lines = [f"{each.job.id} {each.row.state} epoch {each.row.epoch} {each.row.reason}" for each in self.jobs()]
        with self.server.server_context.engine.connect() as db:
            lines += [
                str(tuple(row))
                for row in db.execute(sa.select(deliveries.c.id, deliveries.c.state, deliveries.c.outcome))
            ]
            rows = sa.select(effects.c.key, effects.c.state, effects.c.reason, effects.c.attempts)
            lines += [str(tuple(row)) for row in db.execute(rows)]
        return "\n".join([*lines, self.server.tail()])


@contextmanager
def chaos_server(
    place: Path, dialect: str = "sqlite", *, environment: Mapping[str, str] | None = None, database_url: str = ""
) -> Iterator[ChaosServer]:
    """Nobody plays yet: `start` does."""
    url = database_url or ("" if dialect == "sqlite" else fresh_postgres())
    with running_github(place, PROJECT, TITLE, BODY) as github:
        own = {
            "AGENT_FIX_MODEL": f"recorded/{record(place / 'recorded.jsonl')}",
            "AGENT_FIX_DATABASE_URL": url,
            "AGENT_FIX_JOBS": "4",
            "AGENT_FIX_JOBS_PER_REPOSITORY": "4",
        }
        with running_server(place, {**github.environment, **own, **(environment or {})}) as server:
            github.receiver = server.url
            yield ChaosServer(place, github, server)
