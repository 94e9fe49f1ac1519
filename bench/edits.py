"""How often an edit applies, by what is wrong with it: `python -m bench.edits [--cases N] [--seed N] [--show KIND]`."""

import argparse
import random
import sysconfig
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.edits.corpus import Case, Source
from tests.support.edits.judge import EditJudgement, judge
from tests.support.edits.kinds import CLEAN, HOPELESS, KINDS, RECOVERABLE, cases
from tests.support.edits.samples import SAMPLES

AIMS = {CLEAN: 99.5, RECOVERABLE: 97.0}
OWN = Path(__file__).parents[1]
MOST_FILES, LARGEST = 400, 60_000


def sources(random_: random.Random) -> Iterator[Source]:
    """Files of this repository and of Python's library, and the samples of other languages many times."""
    found = [
        *(path for top in ("app", "tests", "bench", "docs") for path in sorted((OWN / top).rglob("*.*"))),
        *sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")),
        *sorted(Path(sysconfig.get_path("stdlib"), "json").glob("*.py")),
        *sorted(Path(sysconfig.get_path("stdlib"), "asyncio").glob("*.py")),
    ]
    kept = [path for path in found if path.suffix in {".py", ".md", ".yml", ".toml", ".js", ".html", ".css"}]
    for path in random_.sample(kept, min(MOST_FILES, len(kept))):
        text = path.read_bytes().decode("utf-8", "surrogateescape")
        if 200 < len(text) < LARGEST:
            yield Source(path.name, text)
    yield from SAMPLES * 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=4_000, metavar="N", help="how many edits (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the mutations (%(default)s)")
    parser.add_argument("--show", metavar="KIND", help="print what went wrong in this kind")
    chosen = parser.parse_args()
    random_ = random.Random(chosen.seed)
    made = cases(list(sources(random_)), random_, chosen.cases)
    judged = [(case, judge(case)) for case in made]
    print(table(judged))
    for case, verdict in judged:
        if chosen.show == case.kind and verdict.fate in {"refused", "wrong"}:
            print(f"\n--- {case.source.name}: {verdict.fate}: {verdict.why}\n{case.old}\n=>\n{case.new}")


def table(judged: Sequence[tuple[Case, EditJudgement]]) -> str:
    """Counts and shares by kind and group; `wrong` is an edit at another place than was meant."""
    rows = [f"{'kind':<34} {'cases':>6} {'applied':>8} {'refused':>8} {'wrong':>6} {'share':>8}"]
    for group in (CLEAN, RECOVERABLE, HOPELESS):
        kinds = [name for name, kind in KINDS.items() if kind.group == group]
        rows += [_row(f"  {name}", [v for c, v in judged if c.kind == name]) for name in kinds]
        every = [verdict for case, verdict in judged if KINDS[case.kind].group == group]
        aim = f"   aim {AIMS[group]} %" if group in AIMS else "   aim 0 %: to be refused"
        rows.append(_row(group, every) + aim)
    return "\n".join(rows)


def _row(name: str, verdicts: Sequence[EditJudgement]) -> str:
    count = Counter(verdict.fate for verdict in verdicts)
    share = 100 * count["applied"] / len(verdicts) if verdicts else 0.0
    return (
        f"{name:<34} {len(verdicts):>6} {count['applied']:>8} {count['refused']:>8} {count['wrong']:>6} {share:>7.2f} %"
    )


if __name__ == "__main__":
    main()
