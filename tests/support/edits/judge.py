"""Whether an edit did what was meant, nothing, or something else."""

from dataclasses import dataclass
from typing import Literal

from app.agent.edit_matching import EditError, replace
from tests.support.edits.corpus import Case

Fate = Literal["applied", "refused", "wrong"]


@dataclass(frozen=True, slots=True)
class EditJudgement:
    """`wrong`: the file is another one than was meant, by more than white space at the ends of lines."""

    fate: Fate
    why: str = ""


def judge(case: Case) -> EditJudgement:
    try:
        edited = replace(case.source.text, case.old, case.new)
    except EditError as error:
        return EditJudgement("refused", str(error))
    if case.expected is None or _bare(edited.text) != _bare(case.expected):
        return EditJudgement("wrong", edited.how)
    return EditJudgement("applied", edited.how)


def _bare(text: str) -> list[str]:
    """Lines without blanks at their ends; their kind of end counts."""
    return [line.rstrip(" \t") for line in text.split("\n")]
