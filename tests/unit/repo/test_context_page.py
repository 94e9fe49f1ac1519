"""The page that tells what a model is shown names the budgets that are kept."""

from pathlib import Path

import pytest

from app.config.repository import MAX_BYTES
from app.core import images
from app.github.reader import TOTAL_TIMEOUT
from app.llm import tokens
from app.pipeline.lessons import MAX_TOKENS
from app.pipeline.wiring.prompts import IMAGE_TOKENS, INSTRUCTION_TOKENS, MAP_TOKENS
from app.repo.index.ranking import LARGE_COMMIT
from app.repo.index.survey import MAX_TESTS
from app.triggers import prompt_context as sections
from app.triggers.prompt_context import MAX_ASKED_FOR
from app.verify.feedback import BRIEF_LINES, MAX_IDS

PAGE = " ".join((Path(__file__).parents[3] / "docs/explanation/context.md").read_text("utf-8").split())


@pytest.mark.parametrize(
    "told",
    [
        f"no bodies ([localisation](../development/localisation.md)) | {MAP_TOKENS:,} tokens",
        f"[below](#rules-and-skills) | {INSTRUCTION_TOKENS:,} tokens",
        f"earlier jobs, checked again | {MAX_TOKENS} tokens",
        f"| {MAX_BYTES // 4:,} tokens for each of the repository's files",
        f"{sections.MAX_CONVERSATION // 4:,} tokens, {sections.MAX_COMMENTS} comments, {sections.MAX_OF_ONE // 4:,}",
        f"{sections.MAX_DIFF // 4:,} tokens, {sections.MAX_OF_A_FILE // 4:,} for each file",
        f"| commits | the pull request | {sections.MAX_COMMITS} |",
        f"{sections.MAX_THREADS}; {sections.MAX_OF_ONE // 8} tokens for each comment, {sections.MAX_OF_A_HUNK // 4}",
        f"{sections.MAX_CHECKS}; the last {sections.MAX_OF_A_LOG // 4:,} tokens of each log",
        f"{MAX_IDS} test ids, or {BRIEF_LINES} lines",
        f"the history: [below](#tests-near-a-file) | {MAX_TESTS} paths",
        f"more than {LARGE_COMMIT} files are ignored",
        f"{IMAGE_TOKENS:,} tokens, {images.MAX_IMAGES} images",
        f"at most {images.MAX_IMAGE_BYTES:,} bytes (5 MB in base64, which providers accept)",
        f"and {images.MAX_IMAGE_SIDE:,} pixels a side",
        f"wait at most {TOTAL_TIMEOUT:.0f} seconds for each",
        f"reserves {tokens.IMAGE:,} tokens of the budget before the call ({tokens.IMAGE_COSTS['gpt-4o-mini']:,}",
    ],
)
def test_the_budgets_on_the_page_are_those_of_the_code(told: str) -> None:
    assert told in PAGE


def test_the_number_of_authors_who_are_asked_for() -> None:
    assert MAX_ASKED_FOR == 12
    assert "for the last twelve commenters" in PAGE
