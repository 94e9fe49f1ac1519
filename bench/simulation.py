"""Computes two hours of 1,000,000 repositories and 10,000 jobs at once, and what fills up first.

`python -m bench.simulation [--seed N]`: discrete events, pure Python, a few seconds. Every figure it rests on is in
`Assumptions`; measured ones name their measurement. It computes queueing, not networks.
"""

import argparse
import heapq
import random
from dataclasses import dataclass, field, fields
from statistics import quantiles
from typing import Any

HOURS = 2.0
POLL_SECONDS = 0.5


def _value(default: float, source: str) -> Any:
    return field(default=default, metadata={"from": source})


@dataclass(frozen=True)
class Assumptions:
    """Values, each with where it comes from."""

    repositories: int = _value(1_000_000, "given")
    jobs_at_once: int = _value(10_000, "given: `AGENT_FIX_JOBS`")
    burst: int = _value(10_000, "given: all requested in the first second")
    jobs_of_a_repository_in_a_day: float = _value(0.3, "assumed")
    share_of_busy_repositories: float = _value(0.2, "assumed: the share of all jobs that 1 % of the repositories have")
    job_minutes: float = _value(12.0, "assumed: median; mostly the model's and the suite's time")
    job_spread: float = _value(0.7, "assumed: sigma of the logarithm")
    claims_a_second: float = _value(64.0, "32 every half second (`app.server.worker`); `bench.database`: 0.1 s each")
    pods_a_second: float = _value(20.0, "Fargate's sustained launch rate")
    pod_start_seconds: float = _value(45.0, "assumed: the image is there, some machines are not")
    evictions_an_hour: float = _value(0.05, "assumed: for each spot machine")
    minutes_lost: float = _value(1.5, "assumed: for an eviction, to repeat the step and start a new pod")
    github_requests: int = _value(45, "assumed: reads, a push, edits of one comment, for each job")
    installation_requests: int = _value(5_000, "GitHub: the lowest hourly limit of an installation")
    publisher_requests_a_second: float = _value(30.0, "assumed: ten in parallel, 0.3 s each")
    transactions: int = _value(700, "assumed: log lines, steps and costs of a job")
    looks_a_second: float = _value(0.57, "a look every 2 s, a heartbeat every 15 s (`app.server.job_process`)")
    connections: int = _value(4, "assumed: DBOS' pool of 3 at most, and our own")
    pod_dollars_an_hour: float = _value(0.04, "assumed: 2 processors and 8 GB of a spot machine")
    model_dollars: float = _value(0.60, "assumed: for each job")


class Simulation:
    """A queue with one job at a time per repository, oldest first."""

    def __init__(self, given: Assumptions, seed: int) -> None:
        self.given = given
        self.chance = random.Random(seed)
        self.coming = self._requests()
        self.asked = len(self.coming)
        self.ready: list[tuple[float, int]] = []
        self.running: list[tuple[float, int]] = []
        self.busy: set[int] = set()
        self.blocked: dict[int, list[float]] = {}
        self.waits: list[float] = []
        self.work = self.last_start = 0.0
        self.ended = self.evictions = self.most = 0

    def run(self) -> None:
        now = 0.0
        while now < HOURS * 3_600:
            while self.running and self.running[0][0] <= now:
                self._end(heapq.heappop(self.running)[1])
            while self.coming and self.coming[-1][0] <= now:
                heapq.heappush(self.ready, self.coming.pop())
            self._claim(now, int(self.given.claims_a_second * POLL_SECONDS))
            self.most = max(self.most, len(self.running))
            now += POLL_SECONDS

    def _requests(self) -> list[tuple[float, int]]:
        """When a job is asked for, and in which repository; last first."""
        given, chance = self.given, self.chance
        rate = given.repositories * given.jobs_of_a_repository_in_a_day / 86_400
        times = [0.0] * given.burst
        while (at := (times[-1] if times else 0.0) + chance.expovariate(rate)) < HOURS * 3_600:
            times.append(at)
        few = max(1, given.repositories // 100)
        share = given.share_of_busy_repositories
        return [(at, chance.randrange(few if chance.random() < share else given.repositories)) for at in times][::-1]

    def _end(self, repository: int) -> None:
        self.ended += 1
        self.busy.discard(repository)
        if waiting := self.blocked.pop(repository, []):
            heapq.heappush(self.ready, (waiting.pop(0), repository))
            if waiting:
                self.blocked[repository] = waiting

    def _claim(self, now: float, most: int) -> None:
        room = min(most, self.given.jobs_at_once - len(self.running))
        while self.ready and room:
            since, repository = heapq.heappop(self.ready)
            if repository in self.busy:
                self.blocked.setdefault(repository, []).append(since)
                continue
            room -= 1
            self.busy.add(repository)
            self._start(now, since, repository)

    def _start(self, now: float, since: float, repository: int) -> None:
        given = self.given
        self.last_start = max(self.last_start + 1 / given.pods_a_second, now)
        begins = self.last_start + given.pod_start_seconds
        seconds = 60 * given.job_minutes * self.chance.lognormvariate(0.0, given.job_spread)
        if self.chance.random() < given.evictions_an_hour * seconds / 3_600:
            self.evictions += 1
            seconds += 60 * given.minutes_lost
        self.work += seconds
        self.waits.append(begins - since)
        heapq.heappush(self.running, (begins + seconds, repository))

    def _transactions(self) -> float:
        return len(self.waits) * self.given.transactions / HOURS / 3_600

    def figures(self) -> dict[str, str]:
        given, started = self.given, len(self.waits)
        cuts, behind = quantiles(self.waits, n=100), sum(map(len, self.blocked.values()))
        requests = started / HOURS * given.github_requests
        left = len(self.ready) + behind
        return {
            "jobs requested in two hours": f"{self.asked:,}",
            "started, ended": f"{started:,}, {self.ended:,}",
            "maximum at once": f"{self.most:,}",
            "wait until the pod works: median, 95 %, maximum": f"{cuts[49] / 60:.1f}, {cuts[94] / 60:.1f}, "
            f"{max(self.waits) / 60:.1f} minutes",
            "waiting at the end": f"{left:,}, of which {behind:,} for another job of their repository",
            "jobs an hour that this many at once allow": f"{given.jobs_at_once * 3_600 * started / self.work:,.0f}",
            "jobs an hour of one slot": f"{3_600 * started / self.work:.1f}",
            "evictions survived": f"{self.evictions:,}",
            "database, transactions a second: working, looking": f"{self._transactions():,.0f}, "
            f"{self.most * given.looks_a_second:,.0f}",
            "database, connections without a pooler": f"{self.most * given.connections:,}",
            "GitHub, requests an hour": f"{requests:,.0f}",
            "GitHub, jobs an hour of one installation": f"{given.installation_requests // given.github_requests:,}",
            "publishers for that": f"{-(-requests // (3_600 * given.publisher_requests_a_second)):,.0f}",
            "dollars an hour: machines, models": f"{self.work / 3_600 / HOURS * given.pod_dollars_an_hour:,.0f}, "
            f"{started / HOURS * given.model_dollars:,.0f}",
        }


def report(given: Assumptions, seed: int) -> str:
    """Assumptions and figures as tables; the same for the same seed."""
    simulation = Simulation(given, seed)
    simulation.run()
    lines = ["| Assumed | | From |", "|---|---|---|"]
    for each in fields(given):
        value = getattr(given, each.name)
        lines.append(f"| {each.name.replace('_', ' ')} | {value:,} | {each.metadata['from']} |")
    lines += ["", f"| Computed, seed {seed} | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in simulation.figures().items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    print(report(Assumptions(), parser.parse_args().seed))


if __name__ == "__main__":
    main()
