"""What the model of one job is shown: map, rules, the plan's prompt and the brief; the same bytes for the same job."""

from collections.abc import Sequence
from functools import cached_property

from app.agent.prompts import render_brief
from app.bootstrap.ground import Ground
from app.bootstrap.kinds import KindOfTask
from app.bootstrap.lessons import Memory
from app.bootstrap.sight import Sight
from app.context.instructions import instructions
from app.context.survey import Survey
from app.job import Answers, Journal
from app.model.meters import Meters
from app.plan import Plan
from app.plan_text import parse_plan_file
from app.planner import make_plan
from app.verify.facts import Known

MAP_TOKENS = 2_500
INSTRUCTION_TOKENS = 3_000


class Showing:
    """Asked by a job's desk; `survey` also tells verification which tests guard a change."""

    def __init__(self, ground: Ground, kind: KindOfTask, memory: Memory, sight: Sight, survey: Survey) -> None:
        self._ground = ground
        self._kind = kind
        self._memory = memory
        self._sight = sight
        self.survey = survey

    async def plan(self, meters: Meters, journal: Journal, answers: Sequence[Answers] = ()) -> Plan:
        """The plan that people edited, or else the model's."""
        job = self._ground.job
        if job.plan_file:
            return parse_plan_file(job.plan_file)
        # Not in a thread: the steps of a job are numbered in the order in which they begin.
        repository_map, rules = self._repository
        return await make_plan(
            meters.of("plan"),
            journal,
            job,
            answers=answers,
            repository_map=repository_map,
            instructions=rules,
            lessons=self._memory.shown,
            images=self._sight.shown,
            overrides=self._kind.overrides,
        )

    def brief(self, plan: Plan | None, known: Known, answers: Sequence[Answers] = ()) -> str:
        job = self._ground.job
        repository_map, rules = self._repository
        on_the_branch = job.task.follows_up and job.aim == "fix"  # its diff says better where to look
        return render_brief(
            self._kind.shown,
            plan=plan,
            answers=answers,
            repository_map="" if on_the_branch else repository_map,
            instructions=rules,
            suite=known.brief,
            guards=self.survey.guards(plan.candidate_files) if plan else (),
            lessons=self._memory.shown,
            images=self._sight.shown,
            overrides=self._kind.overrides,
        )

    @cached_property
    def _repository(self) -> tuple[str, list[tuple[str, str]]]:
        """The map and the rules of the repository, as the model is shown them; the same for the same base."""
        described = self.survey.map(MAP_TOKENS)
        rules = [(rule.path, rule.text) for rule in instructions(self._ground.tree, INSTRUCTION_TOKENS)]
        if self._ground.config.instructions:
            rules.insert(0, (".github/agent-fix.yml", self._ground.config.instructions))
        return described, rules
