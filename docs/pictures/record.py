"""Plays a few conversations on the GitHub of our tests and keeps every word of them, for `make.py` to draw.

    .venv/bin/python -m docs.pictures.record

Server, git, sandbox, proof and texts are real, GitHub is emulated. Of the first conversation the model's answers are
those of the demo (one real model's, recorded); of the others they are written here.
"""

import json
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.core.state_words import WORDS
from tests.support.conversation_model import ConversationModel, ModelQuestion, called, planned, submitted
from tests.support.emulate.github import EmulatedGitHub, Repository, emulated_github
from tests.support.emulate.person import InlineComment
from tests.support.openai_endpoint import ReceivedRequest, Reply, answer, declines
from tests.support.server_process import Server, running_server

HERE = Path(__file__).parent
DEMO = HERE.parents[1] / "demo"
SITE = "https://github.example.org"
ASK_FIRST = "plan: approve\nbudget: {usd: 3, steps: 40}\n"
LITTLE_MONEY = "plan: none\nbudget: {usd: 0.3, steps: 40}\n"
MODEL = "openai/example-model"
PRICES = f"{MODEL}: {{input: 3, output: 15, cached: 0.3, context_window: 200000, max_output: 8192}}\n"
USAGE = {"prompt_tokens": 12_000, "completion_tokens": 900}
READING = (
    "ls",
    "sed -n 1,80p duebook/invoices.py",
    "ls tests",
    "sed -n 1,80p duebook/cycle.py",
    "sed -n 1,80p duebook/dates.py",
)


class Recorded:
    """The demo's answers, in order. The last but one waits until people have been told of the work."""

    def __init__(self) -> None:
        lines = [json.loads(line) for line in (DEMO / "recorded.jsonl").read_text().splitlines()[1:]]
        self._replies = {line["key"]: _reply(line["answer"]) for line in lines}
        self.told = threading.Event()

    def __call__(self, asked: ModelQuestion) -> Reply:
        if asked.turn == 3:
            self.told.wait(120)
        return self._replies["plan" if asked.wants_a_plan else f"turn.{asked.turn}"]

    def author(self, received: ReceivedRequest) -> Reply:
        """The recorded authors' tests for the demo's issue; the other conversations have none."""
        asked = ModelQuestion(received.body)
        if asked.brief.startswith("Test this change"):
            return self._replies[f"second_tests.{asked.turn}"]
        about_the_issue = "Harbour Yoga" in asked.brief and "29 February" not in asked.brief
        return self._replies[f"specification.{asked.turn}"] if about_the_issue else declines(received)


def _reply(kept: dict[str, Any]) -> Reply:
    usage = kept["usage"]
    told = {
        "prompt_tokens": usage["prompt_tokens"],
        "completion_tokens": usage["completion_tokens"],
        "prompt_tokens_details": {"cached_tokens": usage["cached_tokens"]},
    }
    tools = [(call["id"], call["name"], call["arguments"]) for call in kept["tool_calls"]]
    return answer(kept["content"], tools=tools, usage=told)


class Thoughts:
    """Who answers depends on what it is about."""

    def __init__(self) -> None:
        self.recorded = Recorded()

    def __call__(self, asked: ModelQuestion) -> Reply:
        for words, think in (
            ("29 February", _follow_up),
            ("where does it round", _explained),
            ("overview is wrong", _unclear),
            ("We need refunds", _planned),
            ("tidy the importer", _endless),
        ):
            if words in asked.brief:
                return think(asked)
        return self.recorded(asked)


def _follow_up(asked: ModelQuestion) -> Reply:
    if asked.turn == 1:
        old = "a start on the 31st is the last day of\n        each shorter month, and the 31st again"
        new = (
            "a start on the 31st is the last day of\n        each shorter month, "
            "one on 29 February is 28 February in common years, and both come back"
        )
        return called(("edit", {"path": "duebook/cycle.py", "old_text": old, "new_text": new}))
    return submitted("The docstring of Cycle.after says what happens to a start on 29 February.")


def _planned(asked: ModelQuestion) -> Reply:
    return planned(
        "Invoices cannot be negative today, so a refund needs a kind of its own beside the invoice.",
        "Add a Refund beside Invoice, with the number of the invoice that it takes back",
        "Number refunds in their own series, REF-0001",
        "List them in `duebook report`, below the invoices of the same day",
        "Test a refund of a whole and of a shared period",
    )


def _unclear(asked: ModelQuestion) -> Reply:
    return planned(
        "The totals of the overview can be wrong in two ways that need different changes.",
        "Ask",
        questions=(
            "Which totals are meant: those by plan or those by month?",
            "Should a period that spans two months count where it begins, or by days in both?",
        ),
    )


def _explained(asked: ModelQuestion) -> Reply:
    return submitted(
        "In duebook/money.py: Money.share rounds half up to the cent, once for each invoice. "
        "Nothing is rounded when invoices are added up, so that a total is the sum of what was billed."
    )


def _endless(asked: ModelQuestion) -> Reply:
    command = READING[min(asked.turn, len(READING)) - 1]
    return answer("", tools=[(f"call-{asked.turn}", "bash", json.dumps({"command": command}))], usage=USAGE)


class RecordedScenario:
    """One repository, and everything that its people saw."""

    def __init__(self, server: Server, repository: Repository) -> None:
        self.server = server
        self.repository = repository
        self.site = repository.site
        self.ada, self.grace = repository.as_user("ada"), repository.as_user("grace")

    def watch(self, number: int, until: Callable[[], object], what: str) -> list[dict[str, Any]]:
        """Every status comment that was to be read there until then, with the labels beside it."""
        seen: list[dict[str, Any]] = []

        def look() -> object:
            time.sleep(0.4)  # emulate counts requests by the hour
            comments = [self.shown(each) for each in self.site.comments(number)]
            now = {"comments": comments, **self.around(number)}
            if comments and now not in seen:
                seen.append(now)
            return until()

        self.server.wait(look, what)
        look()
        return seen

    def around(self, number: int) -> dict[str, Any]:
        issue = self.site.issue(number)
        return {"labels": list(issue.labels), "reactions": [name for _, name in self.reactions(f"issues/{number}")]}

    def shown(self, comment: Any) -> dict[str, Any]:
        kind = "pulls" if comment.path else "issues"
        reactions = [name for _, name in self.reactions(f"{kind}/comments/{comment.id}")]
        return {**asdict(comment), "reactions": reactions}

    def reactions(self, subject: str) -> list[tuple[str, str]]:
        return self.site.reactions(subject)

    def status(self, number: int) -> str:
        """The bot's newest comment, or nothing."""
        comments = [each for each in self.site.comments(number) if each.author.endswith("[bot]")]
        return comments[-1].body if comments else ""

    def needed(self, number: int, words: str) -> list[dict[str, Any]]:
        """The comment with these words, once the label says that a person is needed."""
        self.watch(number, self.says(number, words), words)
        return self.watch(number, lambda: self.site.labels(number) == {"agent-needs-human"}, "the label")[-1:]

    def says(self, number: int, *words: str) -> Callable[[], bool]:
        return lambda: all(word in self.status(number) for word in words)


def fixed(scenario: RecordedScenario, thoughts: Thoughts) -> dict[str, Any]:
    """From the label to the second commit."""
    title, _, body = (DEMO / "issue.md").read_text().partition("\n\n")
    number = scenario.ada.open_issue(title.removeprefix("# "), body)
    scenario.grace.label(number, "agent-fix")
    states = scenario.watch(number, scenario.says(number, WORDS["working"].headline, "Recent actions"), "the work")
    thoughts.recorded.told.set()
    scenario.watch(number, scenario.says(number, "🚀"), "the end of it")
    states += scenario.watch(
        number, lambda: scenario.site.labels(number) == {"agent-done"}, "the label of what is done"
    )
    (pull,) = scenario.site.pulls()
    checks = scenario.server.wait(lambda: scenario.site.check_runs(pull.head), "the check run")
    line = _line_of(scenario, pull.branch, "duebook/cycle.py", "each shorter month")
    words = "/agent say what happens to a start on 29 February, too"
    scenario.grace.comment_inline(pull.number, InlineComment("duebook/cycle.py", line, words, start_line=line - 1))
    scenario.server.wait(lambda: scenario.site.inline_comments(pull.number)[1:], "the thread's answer")
    scenario.server.wait(lambda: "Follow-up" in scenario.site.pull(pull.number).body, "the follow-up's section")
    before, after = (_lines(scenario, head) for head in (pull.head, scenario.site.pull(pull.number).head))
    return {
        "issue": asdict(scenario.site.issue(number)),
        "states": states,
        "pull": asdict(pull),
        "checks": [asdict(each) for each in checks],
        "thread": [scenario.shown(each) for each in scenario.site.inline_comments(pull.number)],
        "lines": [[each, before[each - 1]] for each in range(line - 4, line + 1)],
        "changed": [[number, text] for number, text in enumerate(after, 1) if text not in before],
    }


def _lines(scenario: RecordedScenario, head: str) -> list[str]:
    return (scenario.site.file("duebook/cycle.py", head) or b"").decode().split("\n")


def waited(scenario: RecordedScenario) -> list[dict[str, Any]]:
    """Comments of jobs that wait for people, or answer them."""
    refund = scenario.ada.open_issue("Let us take back an invoice", "We need refunds: an invoice that takes one back.")
    scenario.grace.label(refund, "agent-fix")
    found = scenario.needed(refund, "/agent approve")
    scenario.grace.comment(refund, "/agent stop")
    scenario.watch(refund, scenario.says(refund, "Stopped"), "the end of it")
    unclear = scenario.ada.open_issue("The overview is wrong", "The totals of the overview is wrong since last week.")
    scenario.grace.label(unclear, "agent-fix")
    found += scenario.needed(unclear, "Which totals")
    asked = scenario.ada.open_issue("Totals by plan", "I would like totals by plan.")
    scenario.grace.comment(asked, "/agent ask where does it round a part of a month, and how?")
    found += scenario.watch(asked, scenario.says(asked, "💬 Answer"), "the answer")[-1:]
    return found


def paused(scenario: RecordedScenario) -> list[dict[str, Any]]:
    number = scenario.ada.open_issue("Importer", "Please tidy the importer.")
    scenario.grace.label(number, "agent-fix")
    return scenario.needed(number, "Paused")


def _line_of(scenario: RecordedScenario, branch: str, path: str, words: str) -> int:
    lines = (scenario.site.file(path, branch) or b"").decode().split("\n")
    return next(number for number, line in enumerate(lines, 1) if words in line)


def sample(config: str) -> dict[str, str | bytes]:
    """The demo's project, with a configuration if it is to have one."""
    root = DEMO / "sample"
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    found: dict[str, str | bytes] = {str(path.relative_to(root)): path.read_bytes() for path in files}
    return {**found, ".github/agent-fix.yml": config} if config else found


def played() -> Iterator[tuple[str, Any]]:
    thoughts = Thoughts()
    with emulated_github() as github, ConversationModel(thoughts) as mind, tempfile.TemporaryDirectory() as directory:
        prices = Path(directory) / "prices.yml"
        prices.write_text(PRICES)
        environment = {
            **github.environment,
            "AGENT_FIX_MODEL": MODEL,
            "AGENT_FIX_PRICES": str(prices),
            "OPENAI_API_BASE": mind.url,
            "OPENAI_API_KEY": "not needed here",
        }
        with running_server(Path(directory), environment) as server:
            github.receiver = server.webhook
            server.start_all()
            mind.author = thoughts.recorded.author
            yield "fixed", fixed(_scenario(server, github, "duebook"), thoughts)
            yield "waited", waited(_scenario(server, github, "duebook-refunds", config=ASK_FIRST))
            yield "paused", paused(_scenario(server, github, "duebook-import", config=LITTLE_MONEY))
            github.receiver = None


def _scenario(server: Server, github: EmulatedGitHub, name: str, config: str = "") -> RecordedScenario:
    return RecordedScenario(server, github.add_repository(name, sample(config)))


def main() -> None:
    told = json.dumps(dict(played()), indent=1, ensure_ascii=False)
    told = re.sub(r"http://127\.0\.0\.1:\d+", SITE, told).replace("agent-fix-test[bot]", "agent-fix[bot]")
    (HERE / "conversation.json").write_text(told.replace(sys.base_prefix, "/usr") + "\n")


if __name__ == "__main__":
    main()
