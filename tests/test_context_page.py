"""The page that tells what a model is shown names the budgets that are kept."""

from pathlib import Path

import pytest

from app import images, seeing
from app.bootstrap.showing import INSTRUCTION_TOKENS, MAP_TOKENS
from app.context.guards import MOST
from app.context.history import LARGE_COMMIT
from app.context.overrides import MAX_BYTES
from app.forge.github import attachments
from app.lessons.recalling import MOST_TOKENS
from app.model import tokens
from app.reception import sections
from app.reception.material import MOST_ASKED_FOR
from app.verify.feedback import BRIEF_LINES, MAX_IDS

PAGE = " ".join((Path(__file__).parents[1] / "docs/explanation/context.md").read_text("utf-8").split())


@pytest.mark.parametrize(
    "told",
    [
        f"no bodies ([localisation.md](../development/localisation.md)) | {MAP_TOKENS:,} tokens",
        f"CONTRIBUTING.md | {INSTRUCTION_TOKENS:,} tokens",
        f"looked at again | {MOST_TOKENS} tokens",
        f"| {MAX_BYTES // 4:,} tokens a file of the repository's",
        f"{sections.MOST_CONVERSATION // 4:,} tokens, {sections.MOST_COMMENTS} comments, {sections.MOST_OF_ONE // 4:,}",
        f"{sections.MOST_DIFF // 4:,} tokens, {sections.MOST_OF_A_FILE // 4:,} of one file",
        f"| commits | the pull request | {sections.MOST_COMMITS} |",
        f"{sections.MOST_THREADS}; {sections.MOST_OF_ONE // 8} tokens of a comment, {sections.MOST_OF_A_HUNK // 4} of",
        f"{sections.MOST_CHECKS}; {sections.MOST_OF_A_LOG // 4:,} tokens of a log",
        f"{MAX_IDS} test ids, or {BRIEF_LINES} lines",
        f"the past, below | {MOST} paths",
        f"more than {LARGE_COMMIT} files have no say",
        f"{seeing.MOST_TOKENS:,} tokens, {images.MOST} images",
        f"at most {images.LARGEST:,} bytes (5 MB in base64, which providers take)",
        f"and {images.WIDEST:,} pixels on a side",
        f"{attachments.PATIENCE:.0f} seconds are enough for each",
        f"counted as {tokens.IMAGE:,} tokens against the budget before the call ({tokens.DEAR_IMAGES['gpt-4o-mini']:,}",
    ],
)
def test_budgets_are_told_as_they_are(told: str) -> None:
    assert told in PAGE


def test_the_number_of_authors_who_are_asked_for() -> None:
    assert MOST_ASKED_FOR == 12
    assert "for the twelve who spoke last" in PAGE
