"""Posts answers that belong to no job: one comment per trigger, stored before the trigger counts as decided."""

import hashlib

from app.publish.effects import AddReaction, ChangeLabels, Effect, UpdateStatusComment
from app.publish.outbox import name_without_job
from app.triggers.event_facts import TriggerContext
from app.triggers.stores import Stores

NEEDS_HUMAN = "agent-needs-human"


class ReplyPoster:
    """Posts replies and stores the trigger's outcome. Blocking and idempotent."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    def answer(self, trigger_context: TriggerContext, outcome: str, words: str, *, once_for: str = "") -> str:
        """Reply and decide the trigger. With `once_for`, the same reply is posted only once per issue."""
        if trigger_context.requested:
            self._stores.requests.end(trigger_context.requested, "stopped", words)
            return self.decide(trigger_context, outcome)
        key = trigger_context.identity.key
        if once_for:
            digest = hashlib.sha256(once_for.encode()).hexdigest()[:16]
            key = f"r{trigger_context.repo_context.repository.id}#{trigger_context.number}/told:{digest}"
        self._add_effect(key, trigger_context, UpdateStatusComment(body=words))
        return self.decide(trigger_context, outcome)

    def acknowledge(self, trigger_context: TriggerContext) -> None:
        """Add 👀 to what was written, if it accepts reactions."""
        if trigger_context.target is not None and not trigger_context.requested:
            seen = AddReaction(target=trigger_context.target, content="eyes")
            self._add_effect(trigger_context.identity.key, trigger_context, seen)

    def request_attention(self, trigger_context: TriggerContext) -> None:
        """Mark that the bot cannot continue without a person."""
        self._add_effect(trigger_context.identity.key, trigger_context, ChangeLabels(add=(NEEDS_HUMAN,)))

    def decide(self, trigger_context: TriggerContext, outcome: str, job: str = "") -> str:
        self._stores.triggers.record(trigger_context.row, outcome, job)
        return outcome

    def _add_effect(self, key: str, trigger_context: TriggerContext, effect: Effect) -> None:
        self._stores.outbox.add(name_without_job(key), 0, trigger_context.issue_ref, effect)
