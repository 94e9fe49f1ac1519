"""Answers that belong to no job: one comment for each trigger, wished for before the trigger counts as decided."""

import hashlib

from app.github.base import Reaction
from app.publish.effects import AddReaction, ChangeLabels, Effect, UpdateStatusComment
from app.publish.outbox import name_without_job
from app.triggers.event_facts import TriggerContext
from app.triggers.stores import Stores

NEEDS_HUMAN = "agent-needs-human"


class ReplyPoster:
    """Says something, and writes down what became of the trigger. Blocking; everything may be said twice."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    def answer(self, trigger_context: TriggerContext, outcome: str, words: str, *, once_for: str = "") -> str:
        """Answer and have it decided. With `once_for` the same is said once on an issue, however often it is asked."""
        key = trigger_context.identity.key
        if once_for:
            told = hashlib.sha256(once_for.encode()).hexdigest()[:16]
            key = f"r{trigger_context.repo_context.repository.id}#{trigger_context.number}/told:{told}"
        self._add_effect(key, trigger_context, UpdateStatusComment(body=words))
        return self.decide(trigger_context, outcome)

    def acknowledge(self, trigger_context: TriggerContext, content: Reaction = "eyes") -> None:
        """An emoji on what was written; a review has no place for one."""
        if trigger_context.target is not None:
            self._add_effect(
                trigger_context.identity.key,
                trigger_context,
                AddReaction(target=trigger_context.target, content=content),
            )

    def request_attention(self, trigger_context: TriggerContext) -> None:
        """Mark that the bot does not get any further by itself."""
        self._add_effect(trigger_context.identity.key, trigger_context, ChangeLabels(add=(NEEDS_HUMAN,)))

    def decide(self, trigger_context: TriggerContext, outcome: str, job: str = "") -> str:
        self._stores.triggers.record(trigger_context.asked, outcome, job)
        return outcome

    def _add_effect(self, key: str, trigger_context: TriggerContext, effect: Effect) -> None:
        self._stores.outbox.add(name_without_job(key), 0, trigger_context.issue_ref, effect)
