"""Shows a job while it runs: what has happened scrolls by, and the last lines of the screen show what happens now."""

import io
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import IO, TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from app.core.job import BASE_SUITE, BASE_TESTS, Budget, Job, ProgressKind
from app.core.model_usage import Totals, usd
from app.core.text import count, one_line, plain
from app.llm.ledger import price
from app.publish.status_text import plan_steps
from app.server.terminal import WIDTH, TerminalProgress

STAGES = ("plan", "tests from the issue", "suite on the base", "work", "verify", "branch")
_PREPARING = {"plan", "tests from the issue", "suite on the base"}
_DONE_AFTER = {BASE_SUITE: "suite on the base", BASE_TESTS: "tests from the issue"}
OUTPUT_LINES = 6
"""Of the current command's output."""
MAX_LINE = 500
PER_SECOND = 8
NOTHING_SPENT = Totals()

_LABELS = {"", "plan", "step", "note", "verify", "warning"}
_STYLE: dict[ProgressKind, str] = {
    "state": "bold",
    "plan": "cyan",
    "step": "bold",
    "observation": "dim",
    "verification": "green",
    "warning": "yellow",
}


@dataclass(slots=True)
class JobView:
    """What the screen shows of a job; changed by progress only."""

    now: Callable[[], float] = monotonic
    job: str = ""
    title: str = ""
    budget: Budget | None = None
    """None until the job is known."""
    totals: Totals = NOTHING_SPENT
    done: set[str] = field(default_factory=set)
    active: set[str] = field(default_factory=set)
    steps: tuple[str, ...] = ()
    turn: str = ""
    command: str = ""
    command_since: float = 0.0
    waits: dict[str, float] = field(default_factory=dict)
    """What the job waits for, and since when."""
    output: deque[str] = field(default_factory=lambda: deque([""], OUTPUT_LINES))
    begun: float = 0.0
    spinner: Spinner = field(default_factory=lambda: Spinner("dots"))

    def enter(self, state: str) -> None:
        match state:
            case "planning":
                self.active = set(_PREPARING)
            case "working":
                self.active = {"work"}
            case "verifying":
                self.done |= {"work"}
                self.active = {"verify"}
            case "publishing":
                self.done |= {"work", "verify"}
                self.active = {"branch"}

    def take_turn(self, text: str) -> None:
        self.turn, self.command = text, ""
        self.done -= {"work", "verify"}
        self.active = {"work"}
        self.clear_output()

    def begin(self, command: str) -> None:
        self.command, self.command_since = command, self.now()
        self.clear_output()

    def clear_output(self) -> None:
        self.output = deque([""], OUTPUT_LINES)

    def add_output(self, text: str) -> None:
        """Keep the last lines; a carriage return begins the line again, as in progress bars."""
        first, *rest = text.replace("\r\n", "\n").split("\n")
        self.output[-1] = self._overwritten(self.output[-1] + first)
        self.output.extend(self._overwritten(line) for line in rest)

    @staticmethod
    def _overwritten(line: str) -> str:
        return line.rpartition("\r")[2][-MAX_LINE:]

    def finish(self, what: str) -> None:
        self.waits.pop(what, None)
        if what in _DONE_AFTER:
            self.done.add(_DONE_AFTER[what])

    def region(self, height: int) -> Iterator[RenderableType]:
        """The live part from top to bottom; of plan and output, as much as fits into `height` lines."""
        waits = [f"{what} {clock(self.now() - since)}" for what, since in self.waits.items()]
        output = [line for line in self.output if line.strip()] if self.command else []
        free = height - 5 - len(waits) - len(output)
        yield Rule(Text(one_line(self.title) or "agent-fix", "bold", overflow="ellipsis"), align="left", style="dim")
        if self.active:
            yield self._stages()
        if len(self.steps) <= free:
            yield from (_line(f"  {number}. {one_line(step)}") for number, step in enumerate(self.steps, 1))
        if self.command:
            yield _line(f" {self.command}  {clock(self.now() - self.command_since)}", "bold")
        yield from (_line(f"   │ {plain(line)}", "dim") for line in output)
        yield from self._waiting(waits)
        yield _line(f" {self.spending}")

    def _stages(self) -> Text:
        text = Text(" ", no_wrap=True, overflow="ellipsis")
        for stage in STAGES:
            mark, style = (
                ("✓", "green") if stage in self.done else ("▸", "bold") if stage in self.active else ("·", "dim")
            )
            text.append(f"{mark} {stage}   ", style)
        return text

    def _waiting(self, waits: Sequence[str]) -> Iterator[RenderableType]:
        if self.command and not waits:
            return
        first, *others = waits or [" and ".join(sorted(self.active)) or "starting"]
        line = Table.grid(padding=(0, 1))
        line.add_row(self.spinner, _line(f"waiting for {first}" if waits else first))
        yield line
        yield from (_line(f"              {other}") for other in others)

    @property
    def spending(self) -> str:
        """Time, money, tokens and turns, with their limits."""
        totals, budget, elapsed = self.totals, self.budget, clock(self.now() - self.begun)
        if budget is None:
            return elapsed
        parts = [f"{elapsed} of {budget.minutes:g} min"]
        if totals.calls:
            parts.append(
                f"{price(totals)} of {usd(budget.usd)}" if totals.cost else f"price unknown, cap {usd(budget.usd)}"
            )
            parts.append(f"{totals.prompt_tokens:,} tokens in, {totals.completion_tokens:,} out")
        else:
            parts.append(f"at most {usd(budget.usd)}")
        parts.append(self.turn or f"at most {count(budget.steps, 'turn')}")
        return " · ".join(parts)


class LiveView(TerminalProgress):
    """Progress on a screen. Safe from several threads; call `finish` before the process ends."""

    def __init__(
        self,
        stream: TextIO,
        *,
        colours: bool,
        now: Callable[[], float] = monotonic,
        width: int | None = None,
        height: int | None = None,
    ) -> None:
        super().__init__(stream, colours=colours)
        self.view = JobView(now, begun=now())
        self._totals: Callable[[], Totals] | None = None
        self._view_lock = threading.RLock()  # before Rich's own, always
        self._message: list[str] = []
        self._plan = ""
        self._console = Console(
            file=cast("IO[str]", _Forwarded(self._write)),
            force_terminal=True,
            no_color=not colours,
            highlight=False,
            markup=False,
            emoji=False,
            width=width,
            height=height,
        )
        self._stopped = threading.Event()
        self._live = self._start()

    def _start(self) -> Live:
        self._stopped = threading.Event()
        live = Live(
            console=self._console,
            get_renderable=self._region,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        live.start(refresh=True)
        threading.Thread(target=self._keep_fresh, args=(self._stopped,), daemon=True).start()
        return live

    def refresh(self) -> None:
        """Redraw the live part."""
        with self._view_lock:
            if not self._stopped.is_set():
                self._live.refresh()

    def _keep_fresh(self, stopped: threading.Event) -> None:
        while not stopped.wait(1 / PER_SECOND):
            self.refresh()

    def watch(self, job: Job, totals: Callable[[], Totals]) -> None:
        with self._view_lock:
            self._totals = totals
            self.view.job, self.view.title = job.id, plain(f"{job.task.issue.title}")
            self.view.budget, self.view.totals = job.budget, totals()

    def report(self, kind: ProgressKind, text: str) -> None:
        text = text if kind == "output" else plain(text)
        with self._view_lock:
            self._take(kind, text)

    def _take(self, kind: ProgressKind, text: str) -> None:
        view = self.view
        match kind:
            case "text":
                self._message.append(text)
            case "output":
                view.add_output(text)
            case "started":
                view.waits[text] = view.now()
            case "finished":
                view.finish(text)
            case "cost":
                self._print_message()
                view.totals = self._totals() if self._totals else view.totals
            case "command":
                view.begin(text)
            case "observation":
                self._print_done(view.command, text)
                view.command = ""
                view.clear_output()
            case _:
                self._scroll(kind, text)

    def _scroll(self, kind: ProgressKind, text: str) -> None:
        """Print what stays on the screen above the live part."""
        if not text:
            return
        if kind == "state":
            self.view.enter(text)
            if self.view.active and text in ("planning", "working", "verifying", "publishing"):
                return
        if kind == "plan":
            self.view.steps = plan_steps(None, text)
            self.view.done.add("plan")
            self._plan = text
            text = text.partition("\n\n")[0]
        if kind == "step":
            self.view.take_turn(text)
        for line in self._lines(kind, text):
            self._print(line, _STYLE.get(kind, ""))

    def _print_message(self) -> None:
        message = plain("".join(self._message)).strip()
        self._message.clear()
        for line in message.splitlines():
            self._print(" " * WIDTH + line, "dim")

    def show(self, text: str, style: str = "") -> None:
        self.finish()
        super().show(text, style)

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.finish()
        super().report("plan", self._plan)
        try:
            yield
        finally:
            self._live = self._start()

    def finish(self) -> None:
        with self._view_lock:
            self._stopped.set()
            self._live.stop()

    def _paint(self, kind: ProgressKind, text: str) -> str:
        return text  # coloured by the console

    def _print(self, text: str, style: str) -> None:
        """Print a line that is wrapped to the right of its label, if it has one."""
        label, rest = text[:WIDTH], text[WIDTH:]
        if label.strip() not in _LABELS:
            self._console.print(Text(text, style))
            return
        grid = Table.grid()
        grid.add_column(width=WIDTH, no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(Text(label, style), Text(rest, style))
        self._console.print(grid)

    def _print_done(self, command: str, observation: str) -> None:
        """A command and what came of it, on one line."""
        left = self._console.width - WIDTH - len(observation) - 4
        command = command if len(command) <= left else f"{command[: max(left - 1, 10)]}…"
        line = Text(" " * WIDTH + command)
        line.append(f"  → {observation}", "dim")
        self._console.print(line, no_wrap=True, overflow="ellipsis", crop=True)

    def _region(self) -> RenderableType:
        return Group(*self.view.region(self._console.height - 1))


class _Forwarded(io.TextIOBase):
    """A stream for Rich that gives everything to a writer which outlives a closed reader."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._forward = write

    def write(self, text: str) -> int:
        self._forward(text)
        return len(text)

    def isatty(self) -> bool:
        return True


def clock(seconds: float) -> str:
    """Seconds as `0:42`."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"


def _line(text: str, style: str = "") -> Text:
    """One line that is cut at the screen's width."""
    return Text(text, style, no_wrap=True, overflow="ellipsis")
