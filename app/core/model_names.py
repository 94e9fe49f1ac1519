"""Model names for each kind of work."""

from typing import Literal

from app.core.record import Record

WorkKind = Literal["plan", "code", "answer", "cheap"]
"""Kinds of work that may have a model each: plans, changes, answers to questions, and small things beside."""


Reasoning = Literal["", "low", "medium", "high"]
"""How hard a model is to think before it answers; empty leaves that to the provider."""


class ModelNames(Record):
    """The model for each kind of work; an empty name means the code model."""

    code: str = ""
    plan: str = ""
    answer: str = ""
    cheap: str = ""

    def of(self, kind: WorkKind) -> str:
        names: dict[WorkKind, str] = {"plan": self.plan, "code": self.code, "answer": self.answer, "cheap": self.cheap}
        return names[kind] or self.code
