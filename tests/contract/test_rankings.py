"""What every way of looking lessons up promises: the likest comes first, and trouble means less, never a failure."""

import importlib.util
import re
import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from app.core.errors import AgentFixError
from app.core.lessons import Lesson, LessonRanking
from app.pipeline.lessons import (
    ChromaRanking,
    FullTextRanking,
    check_installed,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SPACE = 256
CHROMA = importlib.util.find_spec("chromadb") is not None


def lesson(number: int, text: str) -> Lesson:
    return Lesson(number=number, text=text, kind="trap", author="agent", created=NOW, expires=NOW + timedelta(days=1))


CENTS = lesson(1, "Amounts of money are integer cents.")
DATES = lesson(2, "Dates of invoices are in the customer's time zone.")
IMPORT = lesson(3, "`read_csv()` of the importer skips blank lines.")
ALL = (CENTS, DATES, IMPORT)


def placed(text: str) -> list[float]:
    """Words in a space of 256 directions: no meaning, and still a likeness."""
    vector = [0.0] * SPACE
    for word in re.findall(r"[a-z]{4,}", text.lower()):
        vector[crc32(word.rstrip("s").encode()) % SPACE] += 1.0
    return vector


def chroma(place: Path, repository: str = "r1") -> ChromaRanking:
    """With an embedding of our own: Chroma's fetches a model when it is first used."""
    base: Any = import_module("chromadb").EmbeddingFunction
    numpy: Any = import_module("numpy")

    class Own(base):  # type: ignore[misc]  # untyped where the extra is not installed
        def __init__(self) -> None:
            pass

        def __call__(self, input: Any) -> Any:  # noqa: A002  # Chroma's name
            return [numpy.array([*placed(text), 0.01], dtype=numpy.float32) for text in input]

        @staticmethod
        def name() -> str:
            return "own"

        def get_config(self) -> dict[str, Any]:
            return {}

        @staticmethod
        def build_from_config(config: dict[str, Any]) -> "Own":
            return Own()

    return ChromaRanking(place, repository, FullTextRanking(), embedding=Own)


needs_chroma = pytest.mark.skipif(not CHROMA, reason="NOT TESTED: the extra agent-fix[chroma] is not installed")


@pytest.fixture
def place() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="agent-fix-chroma-"))
    yield made
    shutil.rmtree(made)


@pytest.fixture(params=["full text", pytest.param("chroma", marks=needs_chroma)])
def ranking(request: pytest.FixtureRequest, place: Path) -> LessonRanking:
    return FullTextRanking() if request.param == "full text" else chroma(place)


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("Money: amounts are a cent too low", CENTS),
        ("Invoices carry wrong dates\n\nA customer in Tokyo sees yesterday.", DATES),
        ("The importer reads blank lines", IMPORT),
    ],
)
async def test_the_most_similar_lesson_comes_first(ranking: LessonRanking, question: str, first: Lesson) -> None:
    found = await ranking.rank(ALL, question)
    assert found[0] == first
    assert len(set(found)) == len(found)
    assert set(found) <= set(ALL)


async def test_without_lessons_or_question_the_ranking_is_empty(ranking: LessonRanking) -> None:
    assert await ranking.rank((), "money") == ()
    assert await ranking.rank(ALL, "") == ()
    assert await ranking.rank(ALL, " \n") == ()


@pytest.mark.parametrize(
    "question",
    [
        'money" OR text:* NEAR(',
        "'); DROP TABLE lesson; -- money",
        "money AND NOT money",
        "{money}^2 - + ~",
        "money \0 \ud800",
    ],
)
async def test_a_question_is_not_read_as_query_syntax(ranking: LessonRanking, question: str) -> None:
    found = await ranking.rank(ALL, question.encode("utf-8", "replace").decode())
    assert set(found) <= set(ALL)


async def test_a_very_long_question_is_asked_all_the_same(ranking: LessonRanking) -> None:
    found = await ranking.rank(ALL, "Amounts of money in cents\n" + "lorem ipsum dolor " * 50_000)
    assert found[:1] in {(CENTS,), ()}, "in so much text there may be too little likeness left"


async def test_the_same_question_has_the_same_answer(ranking: LessonRanking) -> None:
    many = [lesson(number, f"Fact number {number} of money and dates.") for number in range(1, 60)]
    assert await ranking.rank(many, "money, dates") == await ranking.rank(many, "money, dates")


# What is each one's own.


async def test_full_text_knows_names_in_their_parts() -> None:
    assert await FullTextRanking().rank(ALL, "TypeError in readCsv") == (IMPORT,)
    assert await FullTextRanking().rank(ALL, "the and of are in") == ()


async def test_full_text_looks_at_paths_too() -> None:
    from app.core.lessons import Citation

    cited = CENTS.model_copy(
        update={"citation": Citation(path="shop/checkout.py", commit="a", digest="d"), "number": 9}
    )
    assert await FullTextRanking().rank([*ALL, cited], "checkout fails") == (cited,)


async def test_if_chroma_fails_lessons_are_ranked_by_words(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Not installed, or its directory is a file: both are its own errors."""
    (place / "file").write_text("")
    assert (await ChromaRanking(place / "file", "r1", FullTextRanking()).rank(ALL, "importer"))[0] == IMPORT
    assert "Chroma failed" in caplog.text


@pytest.mark.skipif(CHROMA, reason="it is installed")
def test_without_the_extra_the_error_says_how_to_install_it() -> None:
    with pytest.raises(AgentFixError) as caught:
        check_installed()
    assert "'.[chroma]'" in caught.value.hint


@needs_chroma
async def test_lessons_deleted_in_the_database_are_deleted_in_chroma(place: Path) -> None:
    assert CENTS in await chroma(place).rank(ALL, "money in cents")
    assert CENTS not in await chroma(place).rank(ALL[1:], "money in cents")
    changed = CENTS.model_copy(update={"text": "Amounts of money are decimals."})
    assert (await chroma(place).rank([changed, DATES], "money"))[0] == changed


@needs_chroma
async def test_repositories_have_collections_of_their_own(place: Path) -> None:
    await chroma(place, "r1").rank(ALL, "money")
    assert await chroma(place, "r2").rank([DATES], "money in cents") == (DATES,)
    assert CENTS in await chroma(place, "r1").rank(ALL, "money in cents")
