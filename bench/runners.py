"""Prints what each runner takes for one small job: `python -m bench.runners [--repeat N] [--keep DIR] [NAME …]`."""

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Any

from app.agent.external.recipe import built_in
from bench.endpoint import MODEL
from bench.ground import BenchDirectory, Command
from bench.memory import family
from bench.table import Row, render
from tests.support.shell_model import ShellModel

NATIVE = "native"
LOOK_SECONDS = 0.1
REPRODUCTION = "python3 -m unittest tests.test_money.SplitTest.test_remainder"
SUBMISSION = {"summary": "Give the remainder to the first people.", "reproduction": REPRODUCTION}
FIX = """python3 - <<'EOF'
from pathlib import Path
money, tests = Path("/workspace/money.py"), Path("/workspace/tests/test_money.py")
money.write_text(money.read_text().replace("[share] * people", "[share + (n < total - share * people) for n in range(people)]"))
test = "    def test_remainder(self):\\n        self.assertEqual(split(100, 3), [34, 33, 33])\\n"
tests.write_text(tests.read_text() + "\\n" + test)
EOF"""  # fmt: skip  # noqa: E501
LOOKS = tuple(f"sed -n '{line},{line + 4}p' money.py; python3 -m unittest" for line in range(1, 17))
"""Sixteen commands of which each has an output of its own, so that the conversation grows as conversations do."""
HAND_IN = f"cat > /tmp/submission.json <<'EOF'\n{json.dumps(SUBMISSION)}\nEOF"


class BenchModel(ShellModel):
    """The same commands for all; our own runner hands in with a tool of its own, not with a file."""

    def _said(self, body: Mapping[str, Any]) -> tuple[str, list[tuple[str, str, str]]]:
        named = {tool["function"]["name"] for tool in body.get("tools") or () if "function" in tool}
        if "submit" in named and self._step == len(self._commands) - 1:
            self._step += 1
            return "", [("submit", "submit", json.dumps(SUBMISSION))]
        return super()._said(body)


@dataclass(frozen=True, slots=True)
class RunnerCost:
    """By one job: seconds, and the most megabytes at one moment: of what was in the sandbox, and of our own process, in
    which the gateway is."""

    seconds: float
    inside: float
    ours: float


def take(ground: BenchDirectory, name: str) -> RunnerCost:
    with BenchModel({}, [*LOOKS, FIX, HAND_IN]) as mind:
        address = {"OPENAI_API_BASE": mind.url, "OPENAI_API_KEY": "sk-bench"}
        argv = ground.fix("--no-plan", "--runner", name, "--model", MODEL)
        command = Command(argv, {**ground.environment, **address})
        inside = ours = 0.0
        while not command.ended:
            ours = max(ours, share(command.pid))
            inside = max(inside, sum(map(share, _inside(command.pid))))
            sleep(LOOK_SECONDS)
        spent = command.end(0)
    return RunnerCost(spent.seconds, inside, ours)


def share(pid: int) -> float:
    """Proportional megabytes of a process; nothing where it has just ended."""
    with suppress(OSError, ValueError, IndexError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(float(line.split()[1]) / 1_024 for line in lines if line.startswith("Pss:"))
    return 0.0


def _inside(pid: int) -> list[int]:
    """Descendants in another namespace of processes: a child that is just being made has still our own memory."""
    with suppress(OSError):
        ours = _namespace(pid)
        return [each for each in family(pid) if _namespace(each) not in (None, ours)]
    return []


def _namespace(pid: int) -> Path | None:
    with suppress(OSError):
        return Path(f"/proc/{pid}/ns/pid").readlink()
    return None


def rows(taken: Mapping[str, Sequence[RunnerCost]]) -> Iterator[Row]:
    ours = taken.get(NATIVE, ())
    for name, each in taken.items():
        yield Row(name, [one.seconds for one in each], "s", than=[one.seconds for one in ours])
        yield Row("  memory in the sandbox", [one.inside for one in each], "MB")
        yield Row("  memory of our process", [one.ours for one in each], "MB")


@contextmanager
def _root(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="agent-fix-bench-") as made:
        yield Path(made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="runners (default: all)")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="how often each is measured (%(default)s)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="a state directory with what was installed before")
    chosen = parser.parse_args()
    names = chosen.names or [NATIVE, *sorted(built_in())]
    taken: dict[str, list[RunnerCost]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="agent-fix-bench-") as made, _root(chosen.keep) as state:
        ground = BenchDirectory(Path(made))
        (ground.root / "state").symlink_to(state)
        ground.prepare()
        for name in names:
            take(ground, name)  # which installs it
        for _ in range(chosen.repeat):  # in turns, so that the load of the moment falls on all alike
            for name in names:
                taken[name].append(take(ground, name))
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"Python {platform.python_version()}, {os.cpu_count()} processors, load {load}, {chosen.repeat} times each\n")
    print(render(list(rows(taken))))


if __name__ == "__main__":
    main()
