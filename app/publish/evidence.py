"""The evidence in a pull request's Verification section: who wrote the tests, their results, and the controls."""

from collections.abc import Iterator
from typing import NamedTuple

from app.core.text import clip, count
from app.core.verification import Control, Outcome, Specification, SpecificationResult, SpecifiedTest, Verification
from app.llm.ledger import usd
from app.publish.markdown import cell, code_cell, code_span, details, fenced, inline, quoted, table
from app.publish.plaintext import duration
from app.verify.verdict import CONTROLS

LIMIT_OF_KNOWLEDGE = (
    "No verdict can tell whether these tests match what the issue's author meant. That is for a reviewer to decide."
)
_HEAD: dict[Outcome, str] = {
    "passed": "🟢 passes",
    "failed": "🔴 fails",
    "error": "🔴 fails",
    "skipped": "⚪ skipped",
    "not_run": "⚪ not run",
}
_OUTCOMES = {
    "held": "🟢 held",
    "failed": "🔴 did not hold",
    "not_applicable": "does not apply",
    "not_run": "⚪ not run",
}


class Caps(NamedTuple):
    """Limits of the long parts: characters of an output, items of a list, characters of a text."""

    output: int
    items: int
    text: int


def effort(found: Specification) -> str:
    """The author's number of calls, time and cost."""
    cost = f"{usd(found.cost)}, " if found.cost else ""
    return f"{count(found.turns, 'call')}, {found.tokens:,} tokens, {cost}{duration(found.seconds)}"


def independent_tests(facts: Verification, caps: Caps) -> str:
    """Who wrote the tests and when, their results on base and head, and any objection to them."""
    found = facts.specification
    if found is None:
        return ""
    if not found.tests:
        spent = f" ({effort(found)})" if found.turns else ""
        return f"**Independent tests:** {inline(found.absent)}{spent}"
    by = f"{code_span(clip(found.model, 100))}, " if found.model else ""
    written = (
        f"**Independent tests:** a separate test author ({by}{effort(found)}) wrote them from the issue before the work"
        f" started. They were run on the base {count(found.runs, 'time')} and then frozen"
        f" ({code_span(found.digest[:12])})."
    )
    shown = f" The agent that made the change saw {'the first' if found.example else 'none'} of them."
    rows = [
        [cell(clip(test.sentence, caps.text)), _BASE[test.role], _on_head(test), code_cell(clip(test.id, 200))]
        for test in found.tests[: caps.items]
    ]
    more = len(found.tests) - len(rows)
    parts = [
        written + shown,
        table(["Requirement", "Base", "Head", "Test"], rows),
        f"and {more:,} more." if more > 0 else "",
        *_argued(found, caps),
        _failures(found, caps),
        _sources(found, caps),
        LIMIT_OF_KNOWLEDGE,
    ]
    return "\n\n".join(part for part in parts if part)


_BASE = {"shows": "🔴 fails", "guards": "🟢 passes"}


def _on_head(test: SpecifiedTest) -> str:
    return f"{_HEAD[test.head]}{', withdrawn' if test.withdrawn else ''}"


def _argued(found: SpecificationResult, caps: Caps) -> Iterator[str]:
    if found.settlement is not None:
        decided = found.settlement
        objection, reason = (quoted(clip(text, caps.text)) for text in (decided.objection, decided.reason))
        yield f"The agent that made the change objected to failing tests:\n\n{objection}"
        withdrawn, kept = count(len(decided.withdrawn), "test"), len(decided.kept)
        yield (
            "A third model call reviewed the issue, the tests and their failures. It withdrew"
            f" {withdrawn} and upheld {kept}. Its reason:\n\n{reason}"
        )
    if found.dropped:
        listed = [f"- {inline(clip(reason, caps.text))}" for reason in found.dropped[: caps.items]]
        yield details(f"{count(len(found.dropped), 'test')} discarded", "\n".join(listed))


def _failures(found: SpecificationResult, caps: Caps) -> str:
    """The framework's output for failing tests, on the base as expected and on the head."""
    lines = [
        f"{code_span(clip(test.id, 200))} on the {side}:\n\n{fenced(clip(text, caps.output))}"
        for test in found.tests[: caps.items]
        for side, text in (("base", test.base_text), ("head", test.head_text))
        if text and caps.output
    ]
    return details("How the independent tests failed", "\n\n".join(lines)) if lines else ""


def _sources(found: SpecificationResult, caps: Caps) -> str:
    if not caps.output:
        return ""
    files = (f"{code_span(clip(file.path, 200))}\n\n{fenced(clip(file.text, caps.output))}" for file in found.files)
    return details("The independent tests' code", "\n\n".join(files))


def control_table(controls: tuple[Control, ...]) -> str:
    """The checks that make red and green trustworthy."""
    if not controls:
        return ""
    rows = [
        [CONTROLS[each.name].strip("“”"), _OUTCOMES[each.outcome], cell(clip(each.detail, 300))] for each in controls
    ]
    failed = any(control.outcome == "failed" for control in controls)
    held = sum(control.outcome == "held" for control in controls)
    text = table(["Control", "Outcome", ""], rows)
    return text if failed else details(f"Controls of these runs: {held} of {len(controls)} held, none failed", text)
