"""Operator defaults, lessons of failed attempts, and a repository's own prompts and gates, over real processes."""

from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from app.pipeline.failed_attempts import TITLE
from tests.support.conversation_model import ModelQuestion
from tests.support.e2e_server import E2ERepository, Story, chosen, run_stories, running_e2e_server
from tests.support.openai_endpoint import Reply, answer
from tests.support.sample_project import fixes

pytestmark = [pytest.mark.xdist_group("operator"), pytest.mark.timeout(400)]
DEFAULTS = "labels: [made-by-agent]\nbudget: {usd: 2}\nlock: [budget.usd]\n"
GATE = "gates: [{name: functions, command: grep -c def money.py, must: not-worsen}]\n"


@pytest.fixture(scope="module")
def story_results(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, "Future[None]"]]:
    with (
        running_e2e_server(tmp_path_factory.mktemp("operator"), AGENT_FIX_DEFAULTS=DEFAULTS) as e2e_server,
        run_stories(e2e_server, chosen(request, STORIES)) as told,
    ):
        yield told


def the_operators_defaults_hold(place: E2ERepository) -> None:
    place.configure("budget: {usd: 50, steps: 30}\n")
    place.model_answers(fixes)
    place.says("/agent fix --budget 5")
    place.told("the server's operator has locked `budget.usd`")
    assert place.job() is None
    place.labels()
    place.has("made-by-agent", place.pull())
    job = place.comes_to("pr_opened").job
    assert (job.budget.usd, job.budget.steps) == (2_000_000, 30)


def the_next_attempt_is_told_why_the_last_one_failed(place: E2ERepository) -> None:
    told = list[bool]()

    def think(asked: ModelQuestion) -> Reply:
        if asked.wants_a_plan:
            told.append(asked.says(TITLE))
        elif len(told) == 1:
            return answer("The half is right already.")
        return fixes(asked)

    place.model_answers(think)
    place.labels()
    first = place.comes_to("error", "no_change")
    place.says("/agent retry")
    place.comes_to("pr_opened", not_before=first.job.id)
    assert told == [False, True]
    assert any(each.says("The half is right already.") for each in place.asked if each.wants_a_plan)
    assert "The agent was told why earlier attempts at this failed." in place.pull().body


def a_prompt_and_a_gate_of_the_repository_are_used(place: E2ERepository) -> None:
    place.commit("main", {".github/agent-fix/prompts/cents.md": "Count in whole cents.\n"})
    place.configure(GATE)
    place.model_answers(fixes)
    place.says("/agent fix with cent")
    place.told("Did you mean `cents`?")
    place.says("/agent fix with cents")
    pull = place.pull()
    work = [each for each in place.asked if each.says("Now do the work.")]
    assert work
    assert all(each.says("Count in whole cents.") for each in work)
    assert "Worked on with the repository's prompt `cents`." in pull.body
    assert "1 on the base, 1 on the head" in pull.body


RULES = "\n".join(f"{number}. Rule {number} of this team is told in a dozen words or so." for number in range(200))
SKILL = "---\nname: cents\ndescription: How cents are shared here.\n---\nThe skill's own text.\n"


def rules_are_shown_in_full_and_skills_by_name(place: E2ERepository) -> None:
    rules = {"AGENTS.md": RULES, "tests/AGENTS.md": "A rule for tests.\n", "docs/AGENTS.md": "A rule for pages.\n"}
    place.commit("main", {**rules, ".claude/skills/cents/SKILL.md": SKILL})
    place.model_answers(fixes)
    place.labels()
    place.pull()
    work = [each for each in place.asked if each.says("Now do the work.")]
    assert work
    for each in work:
        assert each.says("Rule 150 of this team")
        assert each.says("cents (.claude/skills/cents/SKILL.md): How cents are shared here.")
        assert not each.says("The skill's own text.")
        assert each.says("docs/AGENTS.md")
        assert not each.says("A rule for pages.")


STORIES: tuple[Story, ...] = (
    rules_are_shown_in_full_and_skills_by_name,
    the_operators_defaults_hold,
    the_next_attempt_is_told_why_the_last_one_failed,
    a_prompt_and_a_gate_of_the_repository_are_used,
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_story(story_results: "dict[str, Future[None]]", story: Story) -> None:
    story_results[story.__name__].result()
