"""Who looks at a page, and which jobs they may see and act on: by the same rule as commands on GitHub."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from app.github.models import Account, ActorPermission
from app.jobs.context import JobContext
from app.triggers.permission import refusal


@dataclass(frozen=True, slots=True)
class Visitor:
    """A signed-in person, or the holder of the web token, who counts as an operator and has user 0.

    `rights` has a person's permission (admin, write or read) by repository. Operators see and do everything.
    """

    name: str
    form_key: bytes = field(repr=False)
    operator: bool = False
    user: int = 0
    rights: Mapping[int, str] = field(default_factory=dict)

    @property
    def visible(self) -> frozenset[int] | None:
        """The repositories whose jobs they may see; None for all."""
        return None if self.operator else frozenset(self.rights)

    @property
    def asks_as(self) -> int:
        """The numeric id of the person whose rights count for what they start; 0 for operators."""
        return 0 if self.operator else self.user

    def sees(self, job_context: JobContext | None) -> bool:
        """Whether they may see a job; only operators see one without a context, which has not begun."""
        return self.operator or (job_context is not None and job_context.issue_ref.repository in self.rights)

    def refusal(self, job_context: JobContext | None) -> str:
        """Why they may not act on a job, in the words of the rule for commands on GitHub; empty if they may."""
        if self.operator:
            return ""
        if job_context is None:
            return "the job has not begun"
        permission = self.rights.get(job_context.issue_ref.repository, "none")
        actor = Account(id=self.user, login=self.name)
        status = ActorPermission(id=self.user, login=self.name, permission=permission)
        return refusal(actor, status, allowed_actors=job_context.config.allowed_actors) or ""

    def seal(self, what: str) -> str:
        """A CSRF token for a form shown to this visitor."""
        return hmac.new(self.form_key, f"form:{what}".encode(), hashlib.sha256).hexdigest()

    def sealed(self, what: str, seal: str) -> bool:
        return hmac.compare_digest(self.seal(what), seal if seal.isascii() else "")
