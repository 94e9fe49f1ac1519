"""The conversation as sent to the model: append-only with stable bytes, apart from rare compactions.

A compaction replaces the old turns by a digest, which is made by rules: one line for each call.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from app.agent.step import Observation, Step, format_messages, last_checkpoint, remembered_messages
from app.llm.base import Message, ModelInfo, ModelRequest, ToolSpec

_TARGET_SHARE = 0.4
"""A compaction reduces the prompt to this share of the window, so that the next one is far away."""
_KEPT = 6_000
"""Maximum tokens after a compaction, besides the head: a digest and the last turns."""
_LOOKUP_TOKENS = 2_000
"""Estimated tokens to look up again what a compaction dropped."""
_EARLIEST = 10_000
"""Tokens besides the head below which a compaction is never worth it."""
_LIGHTEST = 6.0
"""Characters per token: a provider that counts fewer tokens leaves some out (cached ones) and is not believed."""
_GROWN_LESS = 0.95
"""A share of a size that was refused; larger prompts are not tried again."""
_CLEARLY_SMALLER = 0.8
"""A share of its size to which a compaction must reduce the prompt at least."""
_MAX_ANSWER_SIZE = 8_192
_PER_MESSAGE = 24
_MAX_RECENT = 8
_MIN_DIGEST = 400
_DIGEST_HEAD = (
    "The earlier part of the conversation is replaced by this digest. Files are as you left them: view again what you "
    "need of them. Outputs under /tmp/output can still be viewed.\n\n"
)


@dataclass(slots=True)
class ConversationHistory:
    """Messages of the head, then of every step. The same steps always give the same bytes."""

    head: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    info: ModelInfo
    steps: list[Step] = field(default_factory=list)
    window: int = 0
    """Tokens of prompt and answer together: the model's known window, or less if the provider refused a smaller one."""
    _messages: list[Message] = field(default_factory=list)
    _head: int = 0
    """Characters of the head and the tools."""
    _size: int = 0
    """Characters of the whole prompt."""
    _known: tuple[int, int] = (0, 0)
    """Prompt tokens that the provider last counted, and the characters they stand for."""
    _density: float = 3.5
    """Characters per token, as counted by the provider."""
    _carried: int = 0
    """The cost so far of sending what a compaction would have dropped."""

    def __post_init__(self) -> None:
        self.window = self.info.context_window
        self._messages = list(self.head)
        self._head = self._size = _size(self.head) + sum(
            len(tool.name) + len(tool.description) + len(json.dumps(tool.parameters)) for tool in self.tools
        )

    @property
    def reserve(self) -> int:
        """Output tokens to keep free for the next answer."""
        return min(_MAX_ANSWER_SIZE, self.info.max_output, max(self.window // 4, 1))

    def request(self) -> ModelRequest:
        return ModelRequest(messages=tuple(self._messages), tools=self.tools, max_tokens=self.reserve)

    def add(self, step: Step) -> None:
        usage = step.answer.usage
        if self._size / _LIGHTEST <= usage.prompt_tokens <= self.info.context_window and not usage.estimated:
            self._known = (usage.prompt_tokens, self._size)
            self._density = max(self._size / usage.prompt_tokens, 2.0)
        self._carried += max(0, self.tokens() - self._goal()) * _prices(self.info)[1]
        made = messages_of(step)
        self.steps.append(step)
        self._messages += made
        self._size += _size(made)

    def say(self, text: str) -> None:
        """Add a message of the harness that no step has."""
        messages = [Message(role="user", content=text)]
        self._messages += messages
        self._size += _size(messages)

    def tokens(self) -> int:
        """The prompt's size: the provider's last count plus an estimate for what is new."""
        tokens, characters = self._known
        return tokens + int((self._size - characters) / self._density)

    def full(self) -> bool:
        """True if prompt and answer no longer fit into the window together."""
        return self.tokens() + self.reserve > self.window

    def should_compact_for_cost(self) -> bool:
        """True if sending the old turns has cost as much as dropping them, which makes the prompt new to every cache
        and requires looking things up again.

        Compacting at this point never costs more than twice the best choice, whenever the work ends.
        """
        head = self._head / self._density
        if self.tokens() < head + _EARLIEST:
            return False
        fresh, cached = _prices(self.info)
        return self._carried >= (self._goal() - head) * max(fresh - cached, 0) + _LOOKUP_TOKENS * fresh

    def refused(self) -> None:
        """The provider refused the prompt: assume that its window is smaller from now on."""
        self.window = min(self.window, max(int((self.tokens() + self.reserve) * _GROWN_LESS), 1))

    def compact(self) -> bool:
        """Replace old turns by a digest; False if that would not make the prompt clearly smaller."""
        self._carried = 0
        smallest = len(_DIGEST_HEAD) + _PER_MESSAGE + _MIN_DIGEST
        space = max(int(min(self._goal() * self._density, self._size * 0.6)) - self._head, smallest)
        if not self.steps or self._head + space > self._size * _CLEARLY_SMALLER:
            return False
        recent, tail = self._recent(min(space * 2 // 3, space - smallest))
        space -= _size(tail) + len(_DIGEST_HEAD) + _PER_MESSAGE
        text = _DIGEST_HEAD + digest(self.steps[: len(self.steps) - recent], space)
        self._messages = [*self.head, Message(role="user", content=text), *tail]
        self._size = self._head + _size(self._messages[len(self.head) :])
        self._known = (0, 0)
        return True

    def _goal(self) -> int:
        """Tokens of the prompt after a compaction."""
        return int(min(self.window * _TARGET_SHARE, self._head / self._density + _KEPT))

    def _recent(self, space: int) -> tuple[int, list[Message]]:
        """How many of the last steps stay unchanged, and their messages."""
        tail: list[Message] = []
        for recent in range(min(_MAX_RECENT, len(self.steps))):
            longer = messages_of(self.steps[-1 - recent]) + tail
            if _size(longer) > space:
                return recent, tail
            tail = longer
        return min(_MAX_RECENT, len(self.steps)), tail


def _prices(info: ModelInfo) -> tuple[int, int]:
    """The prices of an uncached and a cached prompt token; a usual ratio if unknown."""
    fresh = max(info.input_price, info.cache_write_price)
    return (fresh, info.cached_price) if fresh else (10, 1)


def messages_of(step: Step) -> list[Message]:
    """The answer, one message for each of its calls, and messages of the harness and of people."""
    calls = step.turn.calls
    content = step.answer.content.encode("utf-8", "replace").decode()
    if not calls and not content.strip():
        content = "(no answer)"  # providers refuse empty messages
    messages = [Message(role="assistant", content=content, tool_calls=calls, thinking=step.answer.thinking)]
    messages += [
        Message(role="tool", content=observation.text, tool_call_id=observation.call_id)
        for observation in step.turn.observations
    ]
    additions = [*step.turn.notes, *filter(None, [step.turn.base_suite, format_messages(step.turn.user_messages)])]
    if additions:
        messages.append(Message(role="user", content="\n\n".join(additions)))
    return messages


def _size(messages: Sequence[Message]) -> int:
    """Characters of messages, including what surrounds them in a request."""
    return sum(
        len(message.content)
        + _PER_MESSAGE
        + sum(len(call.name) + len(call.arguments) + _PER_MESSAGE for call in message.tool_calls)
        + sum(len(str(block.get("thinking", ""))) + _PER_MESSAGE for block in message.thinking)
        for message in messages
    )


_WIDTHS = (160, 100, 60)
"""Characters for text and for actions; the more turns, the narrower."""
_MAX_OUTCOME_LENGTH = 160
_MAX_VERDICT_LENGTH = 120
_MAX_MENTIONS = 30
_MAX_FAILING = 20
_MAX_ERRORS = 8
_MAX_ERROR_LENGTH = 160
_MAX_REJECTION_LENGTH = 1_500
_MIN_PART = 80
_MENTION = re.compile(r"(?<![\w/.-])((?:[\w.-]+/)*[\w-]+\.[a-zA-Z]\w{0,4}):(\d+)")
_FAILING = re.compile(
    r"""
    ^(?:FAILED|ERROR)[ ](NODE)            # pytest's summary
    | ^(NODE)[ ](?:FAILED|ERROR)\b        # pytest -v
    | ^(?:FAIL|ERROR):\s(\S+\s\(\S+\))     # unittest
    | ^[ \t]*---\sFAIL:\s(\S+)             # go test
    | ^test\s(\S+)\s\.\.\.\sFAILED         # cargo test
    | ^[ \t]*not\sok\s\d+\s-\s(.{1,120})   # TAP
    | ^[ \t]*✖\s(.{1,120})                 # node --test
    """.replace("NODE", r"(?=[^\s\[]*::)[^\s\[]++(?:\[[^]\n]*+])?"),
    re.VERBOSE | re.MULTILINE,
)
"""Takes time in proportion to the text, whatever that is."""
_ERROR = re.compile(
    r"^(?:E\s+\S.*|.*\b(?:\w*(?:Error|Exception)\b|panicked\sat\b|error(?:\[\w+\])?:|fatal:|undefined\sreference\b).*)$",
    re.MULTILINE,
)
_VERDICT = re.compile(
    r"\b\d+ (passed|failed|passing|failing|tests?|errors?|failures?)\b|^(OK|FAILED|FAIL|PASS)\b|Error\b"
)
"""A last line of output that shows how a command went; pipes hide its exit code."""
_TARGETS = ("command", "path", "query", "summary")


def digest(steps: Sequence[Step], space: int) -> str:
    """The old turns in at most `space` characters; the oldest lines are dropped and counted."""
    messages = remembered_messages(steps, space // 3)
    facts = _facts(steps, space // 2)
    space_left = space - len(facts) - len(messages) - 200
    for width in _WIDTHS:  # the largest at which all lines fit, else the smallest
        lines = [line for step in steps for line in _lines(step, width)]
        if sum(map(len, lines)) + len(lines) <= space_left:
            break
    kept: list[str] = []
    for line in reversed(lines):
        space_left -= len(line) + 1
        if space_left < 0:
            break
        kept.append(line)
    dropped = len(lines) - len(kept)
    head = [f"(… the first {dropped:,} lines are left out)"] if dropped else []
    turns = "Turns until now, one line for each call:\n" + "\n".join([*head, *reversed(kept)])
    return "\n\n".join(filter(None, (messages, turns, facts)))[: max(space, 0)]


def _facts(steps: Sequence[Step], space: int) -> str:
    """Facts that later turns need, most important first, as far as there is space."""
    kept: list[str] = []
    base_suite = next((step.turn.base_suite for step in steps if step.turn.base_suite), "")
    parts = (_changed(steps), _rejected(steps), base_suite, _failing(steps), _errors(steps), _mentions(steps))
    for part in (*parts, _edits(steps, space // 2)):
        if part and space > _MIN_PART:
            kept.append(_bounded(part, space))
            space -= len(kept[-1]) + 2
    return "\n\n".join(kept)


def _bounded(text: str, space: int) -> str:
    """Whole lines that fit, and the number of those that do not."""
    if len(text) <= space:
        return text
    lines, space_left = text.split("\n"), space - len("(… 1,000,000 more lines)")
    count = 0
    while count < len(lines) and len(lines[count]) < space_left:
        space_left -= len(lines[count]) + 1
        count += 1
    return "\n".join([*lines[:count], f"(… {len(lines) - count:,} more lines)"])


def _lines(step: Step, width: int) -> Iterable[str]:
    number = step.turn.number
    if statement := step.answer.content.strip():
        yield f"{number}. said: {_shortened(statement, width)}"
    for call, observation in zip(step.turn.calls, step.turn.observations, strict=False):
        arguments = json.loads(call.arguments)
        target = next((str(arguments[key]) for key in _TARGETS if key in arguments), "")
        yield f"{number}. {call.name} {_shortened(target, width)} → {_outcome(observation)}"


def _shortened(text: str, width: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else f"{text[:width]}…"


def _outcome(observation: Observation) -> str:
    summary = observation.summary[:_MAX_OUTCOME_LENGTH]
    if observation.tool == "bash" and (verdict := _verdict(observation.text)):
        summary += f": {verdict}"
    return summary if observation.outcome == "ok" else f"{observation.outcome}: {summary}"


def _verdict(output: str) -> str:
    """The last line that the command itself wrote, if it shows how the command went."""
    lines = (line.strip(" =") for line in reversed(output.split("\n")))
    last = next((line for line in lines if line and not line.startswith("(")), "")
    return last[:_MAX_VERDICT_LENGTH] if _VERDICT.search(last) else ""


def _changed(steps: Sequence[Step]) -> str:
    """The files that the last checkpoint changed."""
    checkpoint = last_checkpoint(steps)
    if checkpoint is None or checkpoint.clean:
        return "Files changed so far: none."
    names = [f"{state.path}{' (deleted)' if state.digest is None else ''}" for state in checkpoint.files]
    return "Files changed so far:\n" + "\n".join(names[:100])


def _edits(steps: Sequence[Step], space: int) -> str:
    """The newest edit results that fit; they show the current code."""
    kept: list[str] = []
    for observation in (seen for step in reversed(steps) for seen in reversed(step.turn.observations)):
        if observation.tool == "edit" and observation.outcome == "ok":
            space -= len(observation.text) + 1
            if space < 0:
                break
            kept.append(observation.text)
    return "\n".join(["The last edits, as they were answered:", *reversed(kept)]) if kept else ""


def _failing(steps: Sequence[Step]) -> str:
    """The failing tests in the newest output that names any, and the results of later commands."""
    later = ""
    for step in reversed(steps):
        found: dict[str, None] = {}
        for observation in step.turn.observations:
            if observation.tool in {"bash", "submit"}:
                found.update((next(filter(None, groups)), None) for groups in _FAILING.findall(observation.text))
        number = step.turn.number
        if found:
            return f"Failing tests last seen (turn {number}{later}):\n" + "\n".join(list(found)[:_MAX_FAILING])
        verdicts = [_verdict(seen.text) for seen in step.turn.observations if seen.tool == "bash"]
        if not later and any(verdicts):
            later = f"; since then, in turn {number}: {next(filter(None, reversed(verdicts)))}"
    return ""


def _rejected(steps: Sequence[Step]) -> str:
    """The verification result of the last rejected submission."""
    for step in reversed(steps):
        if step.turn.fate in {"rejected", "returned"} and step.turn.observations:
            text = _bounded(step.turn.observations[0].text, _MAX_REJECTION_LENGTH)
            return f"Of the submission in turn {step.turn.number} verification said:\n{text}"
    return ""


def _errors(steps: Sequence[Step]) -> str:
    """The last lines that name an error, from the newest output that has any."""
    for step in reversed(steps):
        outputs = [seen.text for seen in step.turn.observations if seen.tool == "bash"]
        found = dict.fromkeys(
            match[0].strip()[:_MAX_ERROR_LENGTH] for text in outputs for match in _ERROR.finditer(text)
        )
        if found:
            return f"Errors last seen (turn {step.turn.number}):\n" + "\n".join(list(found)[-_MAX_ERRORS:])
    return ""


def _mentions(steps: Sequence[Step]) -> str:
    """The newest places named as file:line."""
    found: dict[tuple[str, str], None] = {}
    for step in reversed(steps):
        for observation in step.turn.observations:
            found.update((place, None) for place in _MENTION.findall(observation.text))
        if len(found) >= _MAX_MENTIONS:
            break
    files: dict[str, list[str]] = {}
    for path, line in list(found)[:_MAX_MENTIONS]:
        files.setdefault(path, []).append(line)
    shown = "; ".join(f"{path}:{', '.join(at)}" for path, at in files.items())
    return f"Places mentioned last: {shown}" if shown else ""
