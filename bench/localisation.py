"""Which files the localisation ranks first for real issues, against the files that their fixes changed.

    python bench/localisation.py --manifest FILE --mirrors DIR [--mask-paths] [--no-history] [--json OUT]

The manifest has one JSON object a line: `instance_id, repo, base_commit, gold_files, problem_statement`. Mirrors lie at
`DIR/owner+name/repo`, bare or not, with their full history. Nothing after the base commit is read. What is not in a
mirror is counted and named, and no part of the figures.
"""

import argparse
import json
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a script: the checkout it lies in, and no other

from app.repo.git_command import Git, GitError
from app.repo.git_store import GitStore, log
from app.repo.index.file_index import CodeIndex
from app.repo.index.ranking import MAX_COMMITS, CommitChange, rank_files, read_log

TOPS = (1, 5, 10, 20)
WRITTEN, MASKED = "issues as they were written", "paths masked in the text"
_FOLDER = r"(?<![\w.@-])(?:[\w.@+~-]*[/\\])+[\w.@+~-]*"
_FILE = r"\b[\w-]+\.(?:py|[jt]sx?|go|rs|rb|java|php|cc?|cpp|h|hpp)\b"
_FOLDER_OR_FILE = re.compile(f"{_FOLDER}|{_FILE}")


@dataclass(slots=True)
class Figures:
    """What was found for some instances: the ranks of all gold files, and what it took."""

    ranks: list[list[int | None]] = field(default_factory=list)
    cold: list[float] = field(default_factory=list)
    incremental: list[float] = field(default_factory=list)
    query: list[float] = field(default_factory=list)

    def all_gold_at(self, top: int) -> float:
        return _percent(all(rank is not None and rank <= top for rank in ranks) for ranks in self.ranks)

    def recall_at(self, top: int) -> float:
        return _percent(rank is not None and rank <= top for ranks in self.ranks for rank in ranks)

    def summary(self) -> dict[str, Any]:
        return {
            "instances": len(self.ranks),
            "all_gold_at": {str(top): self.all_gold_at(top) for top in TOPS},
            "recall": {str(top): self.recall_at(top) for top in TOPS},
        }

    def times(self) -> dict[str, Any]:
        return {
            "index_seconds_cold": round(max(self.cold, default=0.0), 2),
            "index_seconds_incremental": round(median(self.incremental), 3) if self.incremental else None,
            "query_milliseconds": round(1000 * median(self.query), 1) if self.query else None,
            "query_milliseconds_worst": round(1000 * max(self.query), 1) if self.query else None,
        }


def _percent(outcomes: Iterable[bool]) -> float:
    values = list(outcomes)
    return round(100 * mean(values), 1) if values else 0.0


@dataclass(slots=True)
class Localisation:
    """All instances one after the other; each is indexed once and asked in every wanted form of its text."""

    mirrors: Path
    cache: Path
    history: bool
    forms: tuple[str, ...]
    figures: dict[str, dict[str, Figures]] = field(default_factory=dict)
    """By form and repository."""
    unreachable: list[str] = field(default_factory=list)

    def measure(self, instance: dict[str, Any]) -> None:
        repo, commit = instance["repo"], instance["base_commit"]
        git_dir = _git_dir(self.mirrors / repo.replace("/", "+") / "repo")
        try:
            tree = GitStore(git_dir).tree(commit)
            changes = _history(git_dir, commit) if self.history else []
            started = perf_counter()
            index = CodeIndex.build(tree, self.cache / repo.replace("/", "+"))
        except (GitError, OSError):
            self.unreachable.append(instance["instance_id"])
            return
        seconds = perf_counter() - started
        for form in self.forms:
            figures = self.figures.setdefault(form, defaultdict(Figures))[repo]
            (figures.incremental if figures.ranks else figures.cold).append(seconds)
            text = instance["problem_statement"]
            self._ask(index, masked(text) if form == MASKED else text, changes, instance["gold_files"], figures)

    def _ask(
        self, index: CodeIndex, text: str, changes: list[CommitChange], gold: Sequence[str], figures: Figures
    ) -> None:
        started = perf_counter()
        ranked = rank_files(index, text, history=changes)
        figures.query.append(perf_counter() - started)
        place = {each.path: rank for rank, each in enumerate(ranked, 1)}
        figures.ranks.append([place.get(path) for path in gold])


def masked(text: str) -> str:
    """The text without paths and file names, as an issue by somebody who does not know the code."""
    return _FOLDER_OR_FILE.sub(" ", text)


def _git_dir(path: Path) -> Path:
    return path / ".git" if (path / ".git").is_dir() else path


def _history(git_dir: Path, commit: str) -> list[CommitChange]:
    return list(read_log(log(Git(f"--git-dir={git_dir}"), commit, MAX_COMMITS)))


def report(bench: Localisation, form: str) -> dict[str, Any]:
    total = Figures()
    of_form = bench.figures.get(form, {})
    for figures in of_form.values():
        total.ranks += figures.ranks
    per_repository = {repo: {**figures.summary(), **figures.times()} for repo, figures in sorted(of_form.items())}
    unreachable = {"unreachable": len(bench.unreachable), "unreachable_instances": bench.unreachable}
    return {**total.summary(), **unreachable, "repositories": per_repository}


def table(title: str, result: dict[str, Any]) -> str:
    heads = [*(f"@{top}" for top in TOPS), *(f"recall@{top}" for top in TOPS), "cold s", "incr. s", "query ms"]
    lines = [title, f"{'repository':32} {'n':>4} " + " ".join(f"{head:>9}" for head in heads)]
    for repo, row in {**result["repositories"], "all": result}.items():
        values = [*row["all_gold_at"].values(), *row["recall"].values()]
        values += [row.get(key) for key in ("index_seconds_cold", "index_seconds_incremental", "query_milliseconds")]
        shown = " ".join(f"{'' if value is None else value:>9}" for value in values)
        lines.append(f"{repo:32} {row['instances']:>4} {shown}")
    if result["unreachable"]:
        lines.append(f"{result['unreachable']} instances left out: no mirror, or their base commit is not in it")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--manifest", type=Path, required=True)
    parser.add_argument("--mirrors", type=Path, required=True)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    only_masked = "only the figures with paths and file names taken out of the text (otherwise both)"
    parser.add_argument("--mask-paths", "--masked", dest="masked", action="store_true", help=only_masked)
    parser.add_argument("--no-history", action="store_true", help="do not use commits before the base")
    parser.add_argument("--cache", type=Path, help="keep the index here (a temporary directory otherwise)")
    chosen = parser.parse_args(arguments)
    forms = (MASKED,) if chosen.masked else (WRITTEN, MASKED)
    with tempfile.TemporaryDirectory(prefix="localisation-") as temporary:
        bench = Localisation(chosen.mirrors, chosen.cache or Path(temporary), not chosen.no_history, forms)
        for instance in sorted(_instances(chosen.manifest), key=lambda each: (each["repo"], each["instance_id"])):
            bench.measure(instance)
    first, *rest = [report(bench, form) for form in forms]
    for form, result in zip(forms, [first, *rest], strict=True):
        print(table(form, result), flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps({**first, **({"masked": rest[0]} if rest else {})}, indent=2) + "\n")
    return 0


def _instances(manifest: Path) -> list[dict[str, Any]]:
    """One object a line, or one list of them."""
    text = manifest.read_text("utf-8")
    if text.lstrip().startswith("["):
        return list(json.loads(text))
    return [json.loads(line) for line in text.splitlines() if line.strip()]


if __name__ == "__main__":
    sys.exit(main())
