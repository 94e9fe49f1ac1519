"""Draws lessons from a successful job: by rules from the harness's facts, and from the agent's own; pure.

Nothing is learned from a pull request's branch: it may be a stranger's, and may never be merged.
"""

import re
from collections.abc import Iterator
from typing import Final

from app.core.lessons import AGENT, MAX_PER_JOB, LessonDraft
from app.pipeline.lessons.experience import JobExperience, draft_with_citation
from app.pipeline.lessons.rules import by_rule

MAX_FROM_AGENT: Final = 3
_AGENT_LESSON = re.compile(r"\s*`?(?P<path>[^\s`:]+)`?(?::\d+)?\s*(?::|[-\u2013\u2014]|\s)\s*(?P<fact>\S.*)", re.DOTALL)


def lessons_of(experience: JobExperience) -> tuple[LessonDraft, ...]:
    """The lessons of a job, the harness's first; none unless its change is at least tested."""
    if not experience.is_verified or experience.job.task.follows_up:
        return ()
    drafts = [*by_rule(experience), *_from_agent(experience)]
    unique = {draft.about: draft.model_copy(update={"job": experience.job.id}) for draft in reversed(drafts)}
    return tuple(reversed(unique.values()))[:MAX_PER_JOB]


def _from_agent(experience: JobExperience) -> Iterator[LessonDraft]:
    """At most three, each with a file of the base about the same subject."""
    agent_lessons = experience.submission.lessons[:MAX_FROM_AGENT] if experience.submission else ()
    for text in agent_lessons:
        match = _AGENT_LESSON.fullmatch(text)
        if match is None:
            continue
        path = match["path"].removeprefix("/workspace/").removeprefix("./")
        draft = draft_with_citation(experience, match["fact"], "trap", [path], author=AGENT)
        if draft is not None:
            yield draft
