"""Model names for each kind of work."""

from typing import Literal

from app.core.record import Record

WorkKind = Literal["plan", "test", "code", "answer", "cheap"]
"""Kinds of work that may have a model each: plans, specification tests, changes, answers to questions, and minor tasks
beside."""


Reasoning = Literal["", "low", "medium", "high"]
"""How hard a model is to think before it answers; empty leaves that to the provider."""


class ModelNames(Record):
    """The model for each kind of work; an empty name means the code model, and for tests the plan's model."""

    code: str = ""
    plan: str = ""
    test: str = ""
    answer: str = ""
    cheap: str = ""

    def of(self, kind: WorkKind) -> str:
        names: dict[WorkKind, str] = {"plan": self.plan, "code": self.code, "answer": self.answer, "cheap": self.cheap}
        names["test"] = self.test or self.plan
        return names[kind] or self.code
