"""Neutral names for copies of tests: only the seed tells which test is a copy."""

import re
from collections.abc import Iterable
from random import Random

_WORDS = re.findall(
    r"\w+",
    """
    amount average balance basic border branch bulk cached case chain column config count created cycle date
    default detail digits draft edge empty entry event exact field filter final first flags format group header
    index inner input item kept label large last layout length level limit line list long lookup margin marks
    match merged middle mixed model month names narrow nested next number offset option order other outer output
    pages pair parts path plain point price prior query quote range record repeat report result rounded rows
    sample scale second segment short simple single sorted source span spread state steps sums table tail third
    title total trail types unit update usage value views whole width window words year zero zone
    """,
)


class CopyNames:
    """Fresh names from a seeded source; never repeated, and none of `taken`."""

    def __init__(self, random: Random, taken: Iterable[str] = ()) -> None:
        self._random = random
        self._taken = set(taken)

    def fresh(self, separator: str = "_") -> str:
        while True:
            name = separator.join(self._random.sample(_WORDS, 3))
            if name not in self._taken:
                self._taken.add(name)
                return name
