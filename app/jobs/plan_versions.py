"""The versions of a job's plan, with who wrote each and when. The newest one is edited until it is approved."""

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from app.core.clock import moment
from app.core.plan import Plan, render_plan_file
from app.jobs.tables import TableStore, job_contexts, jobs, plan_versions, writing

AGENT = "agent-fix"
"""The author of the plans that a model made."""


@dataclass(frozen=True, slots=True)
class PlanVersion:
    version: int
    plan: Plan
    who: str
    at: datetime


class PlanConflict(Exception):  # noqa: N818  # an answer, not a fault
    """The plan cannot be edited, or another version is the newest by now."""


class PlanVersions(TableStore):
    """The versions of plans, in short transactions."""

    def of(self, job_id: str) -> tuple[PlanVersion, ...]:
        """All versions of a job's plan, oldest first."""
        with self._engine.connect() as db:
            return _versions(db, job_id)

    def record(self, job_id: str, plan: Plan, who: str = AGENT) -> None:
        """Store a plan as the newest version, unless it is that already."""
        with writing(self._engine) as db:
            known = _versions(db, job_id)
            if not known or known[-1].plan != plan:
                self._insert(db, job_id, plan, who)

    def edit(self, job_id: str, version: int, plan: Plan, who: str) -> PlanVersion:
        """Store an edit of this version. Raises PlanConflict if it is not the newest, or not waiting for approval."""
        with writing(self._engine) as db:
            query = sa.select(jobs.c.state, jobs.c.result, job_contexts.c.context).where(jobs.c.id == job_id)
            of_job = query.join_from(jobs, job_contexts, job_contexts.c.job == jobs.c.id).with_for_update()
            row = db.execute(of_job).mappings().first()
            if row is None or not may_be_approved(row["state"], row["context"]["aim"]):
                raise PlanConflict("The plan is not waiting for approval.")
            known = _versions(db, job_id)
            if not known or known[-1].version != version:
                newest = known[-1].version if known else 0
                raise PlanConflict(f"Version {version} is not the newest one, which is {newest}.")
            result = {**(row["result"] or {}), "plan": plan.model_dump(mode="json")}
            db.execute(jobs.update().where(jobs.c.id == job_id).values(result=result, updated_at=self._clock()))
            return self._insert(db, job_id, plan, who)

    def edited_text(self, job_id: str) -> str:
        """The newest version as the text of an edited plan; empty if nobody edited the model's plan."""
        known = self.of(job_id)
        return render_plan_file(known[-1].plan) if known and known[-1].who != AGENT else ""

    def _insert(self, db: Connection, job_id: str, plan: Plan, who: str) -> PlanVersion:
        newest = sa.select(sa.func.coalesce(sa.func.max(plan_versions.c.version), 0))
        version = int(db.execute(newest.where(plan_versions.c.job == job_id)).scalar_one()) + 1
        now = self._clock()
        row = {"job": job_id, "version": version, "plan": plan.model_dump(mode="json"), "who": who[:80]}
        db.execute(plan_versions.insert().values(**row, at=now.timestamp()))
        return PlanVersion(version, plan, who[:80], now)


def may_be_approved(state: str, aim: str) -> bool:
    """True for a job that waits for its plan's approval, or that only made a plan."""
    return state == "awaiting_approval" or (state == "answered" and aim == "plan")


def _versions(db: Connection, job_id: str) -> tuple[PlanVersion, ...]:
    query = plan_versions.select().where(plan_versions.c.job == job_id).order_by(plan_versions.c.version)
    return tuple(
        PlanVersion(row["version"], Plan.model_validate(row["plan"]), row["who"], moment(row["at"]))
        for row in db.execute(query).mappings()
    )
