"""The simulation of many repositories can be repeated, and keeps to its own limits."""

from bench.simulation import Assumptions, Simulation, report

SMALL = Assumptions(repositories=500, jobs_at_once=20, burst=60, job_minutes=2.0)


def test_one_seed_gives_one_report() -> None:
    assert report(SMALL, 7) == report(SMALL, 7)
    assert report(SMALL, 7) != report(SMALL, 8)


def test_no_more_jobs_run_at_once_than_may() -> None:
    simulation = Simulation(SMALL, 7)
    simulation.run()
    assert simulation.most == SMALL.jobs_at_once
    assert 0 < simulation.ended <= simulation.asked
