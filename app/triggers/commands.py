"""Parses `/agent` commands from comments. Returns None for other text, and never raises.

A command starts with `/agent` or `@agent-fix` at the beginning of a line of visible prose; the next word is the
command, and the rest of that line and everything below is its text. Options are at the start of the command or at the
end of its line.
"""

import re
from collections.abc import Callable
from difflib import get_close_matches
from functools import lru_cache
from typing import Final, Literal, NamedTuple, get_args

from app.config import value_rules
from app.config.repository import OperatorDefaults
from app.core.job import HIGHEST_BUDGET, MAX_ATTEMPTS
from app.core.model_usage import DOLLAR, MicroUSD
from app.core.record import Record
from app.core.task import ASKABLE, TaskKind
from app.core.text import prose_lines, visible
from app.verify.gates.paths import allowed_path

CommandName = Literal[
    "fix",
    "plan",
    "reproduce",
    "approve",
    "ask",
    "verify",
    "stop",
    "status",
    "retry",
    "continue",
    "rebase",
    "ci",
    "remember",
    "forget",
    "allow",
]
"""What people may write after `/agent`."""
Verb = Literal[CommandName, "steer", "revise", "help"]
COMMAND_NAMES: Final = get_args(CommandName)
_ADDRESSED = re.compile(r" {0,3}(?:/agent|@agent-fix)(?=\s|$)", re.IGNORECASE)
_WORD = re.compile(r"\S+")
_MONEY = re.compile(r"(\+?)\$?([0-9]{1,5}(?:\.[0-9]{1,6})?)")
_WITH_PROMPT_NAME = re.compile(r"with\s+([a-z][a-z0-9-]{0,39})", re.IGNORECASE)
"""Words that choose a prompt, alone on the command's line: `with the new API` is a message."""
_OPTIONS: Final = ("--model", "--runner", "--budget", "--kind", "--attempts", "--base")
_DASHES: Final = "-\u2013\u2014"
_LIKE_AN_OPTION: Final = re.compile(rf"-?[{_DASHES}][A-Za-z]\S*")
"""Also `-b`, and the dash that a phone makes of two hyphens."""
_FLAGS: Final = ("--urgent",)
_REFUSED: Final = ("--draft", "--no-draft")


class CommandOptions(Record):
    """The options of a command; None if an option is not set. `extra` is added to a paused job's budget."""

    model: str | None = None
    runner: str | None = None
    budget: MicroUSD | None = None
    extra: MicroUSD | None = None
    kind: TaskKind | None = None
    attempts: int | None = None
    prompt: str | None = None
    """The repository's own prompt: `/agent fix with NAME`, or the label `agent-fix:NAME`."""
    allow: str | None = None
    """For `allow`: the protected path that the job may change."""
    base: str | None = None
    """The branch to start from, and to open the pull request against."""
    urgent: bool = False

    def locked_by(self, operator: OperatorDefaults) -> str:
        """The key that one of these options sets although the operator locks it; empty if there is none."""
        keys = {"model": self.model, "runner": self.runner, "budget.usd": self.budget or self.extra}
        keys |= {"protected_paths": self.allow, "base": self.base}
        return next((key for key, value in keys.items() if value and operator.locks(key)), "")


class AgentCommand(Record):
    """One command. `text` is what the person wrote after it, without hidden characters."""

    verb: Verb
    text: str = ""
    options: CommandOptions = CommandOptions()
    lesson: int | None = None
    """For `forget`: the lesson's number."""
    problem: str = ""
    """For `help`: what could not be understood, in a sentence."""
    suggestion: str = ""
    """For `help`: the command that was probably meant."""


class _CommandError(ValueError):  # shown as a reply
    def __init__(self, problem: str, suggestion: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.suggestion = suggestion


class _CommandWord(NamedTuple):
    text: str
    start: int
    end: int


@lru_cache(maxsize=32)  # a delivery asks for its command at each decision, and a long comment takes 20 ms to read
def parse(text: str) -> AgentCommand | None:
    """The one command in a comment; `help` if it cannot be understood or if there are several."""
    shown = visible(text).text
    lines = shown.split("\n")
    places = [number for number in prose_lines(shown, _ADDRESSED) if _ADDRESSED.match(lines[number])]
    if not places:
        return None
    if len(places) > 1:
        return AgentCommand(verb="help", problem="The comment has several commands; please send one per comment.")
    first = lines[places[0]]
    line = _ADDRESSED.sub("", first, count=1).strip()
    below = "\n".join(lines[places[0] + 1 :]).strip("\n").rstrip()
    try:
        return _command(line, below)
    except _CommandError as misread:
        return AgentCommand(verb="help", problem=misread.problem, suggestion=misread.suggestion)


def _command(line: str, below: str) -> AgentCommand:
    word, rest = _split(line)
    verb = word.casefold().rstrip(".,:;!?")
    if verb not in COMMAND_NAMES:
        return _without_command_word(line, below, word)
    rest, options = _options(rest)
    name = next(each for each in COMMAND_NAMES if each == verb)
    _refuse_more_money(options, SYNTAX[name])
    return SYNTAX[name].read(AgentCommand(verb=name, options=options), rest, below)


def _split(line: str) -> tuple[str, str]:
    found = _WORD.match(line)
    return (found[0], line[found.end() :].strip()) if found else ("", "")


def _without_command_word(line: str, below: str, word: str) -> AgentCommand:
    """An unknown command: help if it is empty or looks like a typo, otherwise a message for the job."""
    if word.casefold() == "help" or not (line or below):
        return AgentCommand(verb="help")
    alone = line.casefold() == word.casefold() and not below
    bare = re.sub(r"\W+$", "", word.casefold())
    if alone and (named := next((name for name, syntax in SYNTAX.items() if bare in syntax.synonyms), None)):
        raise _CommandError(f"There is no command `{_shown(word)}`.", f"/agent {named}")
    if meant := next((verb for verb in COMMAND_NAMES if _is_typo(bare, verb)), None):
        raise _CommandError(f"There is no command `{_shown(word)}`.", f"/agent {meant}")
    rest, options = _options(line)
    text = _joined(rest, below)
    _refuse_more_money(options, None)
    return AgentCommand(verb="steer" if text else "fix", text=text, options=options)


def _options(line: str) -> tuple[str, CommandOptions]:
    """The line without the options at its two ends, and their values."""
    words = [_CommandWord(found[0], *found.span()) for found in _WORD.finditer(line)]
    found: dict[str, str] = {}
    first, last = 0, len(words)
    while first < last and (option := _option(words[first:last], found)):
        first += option
    while last > first and (option := _last_option(words[first:last], found)):
        last -= option
    rest = line[words[first].start : words[last - 1].end] if first < last else ""
    return rest, _checked(found)


def _option(words: list[_CommandWord], found: dict[str, str]) -> int:
    """How many of the first words form an option, which is added to `found`."""
    name, equals, value = words[0].text.partition("=")
    if not _LIKE_AN_OPTION.fullmatch(name):
        return 0
    if name in _REFUSED:
        raise _CommandError(f"`{name}` is not supported: agent-fix's pull requests are always drafts.")
    if name in _FLAGS and not equals:
        found[name] = "yes"
        return 1
    if name not in _OPTIONS:
        raise _unknown_option(name)
    if not equals:
        value = words[1].text if len(words) > 1 else ""
    if not value or value.startswith("--"):
        raise _CommandError(f"`{name}` needs a value after it (text in backticks does not count).")
    if name in found:
        raise _CommandError(f"`{name}` is given twice.")
    found[name] = value
    return 1 if equals else 2


def _unknown_option(name: str) -> _CommandError:
    """With the option that was probably meant, or else all of them."""
    known = (*_OPTIONS, *_FLAGS)
    if meant := get_close_matches(f"--{name.lstrip(_DASHES)}".casefold(), known, n=1, cutoff=0.75):
        return _CommandError(f"There is no option `{_shown(name)}`.", f"{meant[0]} …")
    listed = ", ".join(f"`{option}`" for option in known)
    return _CommandError(
        f"There is no option `{_shown(name)}`; the options are {listed}. Text that looks like one goes in backticks."
    )


def _last_option(words: list[_CommandWord], found: dict[str, str]) -> int:
    """How many of the last words form an option, which is added to `found`."""
    if _LIKE_AN_OPTION.fullmatch(words[-1].text.partition("=")[0]):
        return _option(words[-1:], found)
    alone = (*_REFUSED, *_FLAGS)
    takes_a_value = len(words) > 1 and "=" not in words[-2].text and words[-2].text not in alone
    return _option(words[-2:], found) if takes_a_value else 0


def _checked(found: dict[str, str]) -> CommandOptions:
    model = _valid("--model", value_rules.model, found)
    runner = _valid("--runner", value_rules.runner, found)
    urgent = "--urgent" in found
    base = _valid("--base", value_rules.base_branch, found)
    options = CommandOptions(
        model=model, runner=runner, kind=_kind(found), attempts=_attempts(found), base=base, urgent=urgent
    )
    money = found.get("--budget")
    if money is None:
        return options
    more, amount = _amount(money)
    return options.model_copy(update={"extra" if more else "budget": amount})


def _kind(found: dict[str, str]) -> TaskKind | None:
    value = found.get("--kind")
    if value is None:
        return None
    kind = next((kind for kind in ASKABLE if kind == value.casefold()), None)
    if kind is None:
        similar = get_close_matches(value.casefold(), ASKABLE, n=1, cutoff=0.6)
        known = ", ".join(ASKABLE)
        raise _CommandError(f"`--kind` must be one of {known}.", f"--kind {similar[0]} …" if similar else "")
    return kind


def _attempts(found: dict[str, str]) -> int | None:
    value = found.get("--attempts")
    if value is None:
        return None
    if not re.fullmatch(r"[0-9]{1,3}", value) or not 1 <= int(value) <= MAX_ATTEMPTS:
        raise _CommandError(f"`--attempts` must be a number from 1 to {MAX_ATTEMPTS}.")
    return int(value)


def _valid(name: str, rule: Callable[[str], str], found: dict[str, str]) -> str | None:
    try:
        return rule(found[name]) if name in found else None
    except ValueError as error:
        raise _CommandError(f"`{name}` {error}.") from None


def _amount(value: str) -> tuple[bool, MicroUSD]:
    match = _MONEY.fullmatch(value)
    amount = round(float(match[2]) * DOLLAR) if match else 0
    if match is None or not 0 < amount <= HIGHEST_BUDGET * DOLLAR:
        raise _CommandError(f"`--budget` must be US dollars up to {HIGHEST_BUDGET:,}, such as 5 or +3.")
    return match[1] == "+", amount


def _refuse_more_money(options: CommandOptions, syntax: "CommandSyntax | None") -> None:
    if options.extra is not None and not (syntax and syntax.raises_budget):
        more = f"{options.extra / DOLLAR:g}"
        raise _CommandError("`--budget +N` raises the budget of a paused job.", f"/agent continue --budget +{more}")


def _shown(word: str) -> str:
    """Quote a word that somebody else wrote: short, and unable to end its code span."""
    return word.replace("`", "'")[:30]


def _is_typo(word: str, verb: str) -> bool:
    """True for one wrong, missing, extra or swapped letter after a correct start, so that plain words do not match."""
    if len(word) < 3 or len(verb) < 3 or (word[0] != verb[0] and word[:2] != verb[1::-1]):
        return False
    if len(word) == len(verb):
        wrong = [place for place in range(len(word)) if word[place] != verb[place]]
        swapped = len(wrong) == 2 and wrong[1] == wrong[0] + 1 and word[wrong[0]] == verb[wrong[1]]
        return len(wrong) == 1 or (swapped and word[wrong[1]] == verb[wrong[0]])
    short, long = sorted((word, verb), key=len)
    return any(long[:place] + long[place + 1 :] == short for place in range(len(long)))


def _joined(rest: str, below: str) -> str:
    return "\n\n".join(part for part in (rest, below) if part)


def _with_text(command: AgentCommand, rest: str, below: str) -> AgentCommand:
    return command.model_copy(update={"text": _joined(rest, below)})


def _with_prompt(command: AgentCommand, rest: str, below: str) -> AgentCommand:
    """A prompt's name, alone on the command's line, or a text: `with the new API` is a text."""
    chosen = _WITH_PROMPT_NAME.fullmatch(rest)
    if chosen is None:
        return _with_text(command, rest, below)
    options = command.options.model_copy(update={"prompt": chosen[1].casefold()})
    return command.model_copy(update={"options": options, "text": below})


def _with_question(command: AgentCommand, rest: str, below: str) -> AgentCommand:
    if not _joined(rest, below):
        raise _CommandError("`/agent ask` needs a question after it.", "/agent ask …")
    return _with_text(command, rest, below)


def _without_text(command: AgentCommand, rest: str, below: str) -> AgentCommand:
    if _joined(rest, below):
        name = f"/agent {command.verb}"
        raise _CommandError(f"`{name}` takes no text. A message begins with another word.", name)
    return command


def _with_lesson(command: AgentCommand, rest: str, below: str) -> AgentCommand:  # people may add words below
    number = re.fullmatch(r"#?([0-9]{1,6})", rest)
    if number is None or int(number[1]) < 1:
        raise _CommandError(
            "`/agent forget` needs the number of a lesson; `/agent remember` alone lists them.", "/agent remember"
        )
    return command.model_copy(update={"lesson": int(number[1])})


def _with_path(command: AgentCommand, rest: str, below: str) -> AgentCommand:
    word, rest = _split(rest)
    try:
        path = allowed_path(word)
    except ValueError as error:
        raise _CommandError(f"`/agent allow` {error}.", "/agent allow PATH") from None
    options = command.options.model_copy(update={"allow": path})
    return _with_text(command.model_copy(update={"options": options}), rest, below)


OPINIONS: Final = ("review", "check", "test", "judge", "evaluate", "assess", "validate", "examine")
"""Words that ask for an opinion on a pull request: nothing is ever pushed for them to somebody's branch."""
_POLITE: Final = frozenset({"please", "can", "could", "would", "you", "kindly", "just", "also", "now", "and"})


def asks_for_opinion(text: str) -> str:
    """The word with which a message asks for an opinion; empty if it does not begin with one."""
    words = (word.casefold().strip(".,:;!?") for word in text.split()[:6])
    first = next((word for word in words if word not in _POLITE), "")
    return first if first in (*OPINIONS, "verify") else ""


class CommandSyntax(NamedTuple):
    """How a command is written, after its name and options."""

    help: dict[str, str]
    """How to write it, and what it does, for people."""
    read: Callable[[AgentCommand, str, str], AgentCommand] = _with_text
    """Completes the command with the rest of its line and the text below."""
    synonyms: tuple[str, ...] = ()
    """Words that, alone on their line, mean this command."""
    raises_budget: bool = False
    """`--budget +N` is one of its options."""


SYNTAX: Final[dict[CommandName, CommandSyntax]] = {
    "fix": CommandSyntax(
        {
            "/agent fix [what]": "start; on a pull request: change it",
            "/agent fix with NAME": "start with the repository's prompt `.github/agent-fix/prompts/NAME.md`",
        },
        _with_prompt,
        synonyms=("start", "begin", "solve"),
    ),
    "plan": CommandSyntax({"/agent plan": "plan only, and wait"}, _with_prompt),
    "reproduce": CommandSyntax(
        {"/agent reproduce": "on an issue: show it as a program, and change nothing"}, synonyms=("repro",)
    ),
    "approve": CommandSyntax({"/agent approve": "continue with the plan in the status comment"}, synonyms=("accept",)),
    "ask": CommandSyntax({"/agent ask …": "answer a question without changing anything"}, _with_question),
    "verify": CommandSyntax(
        {"/agent verify": "on any pull request: judge it by examples, a reviewer and the suite, and change nothing"},
        synonyms=OPINIONS,
    ),
    "stop": CommandSyntax({"/agent stop": "stop the job"}, synonyms=("abort", "cancel", "halt", "kill")),
    "status": CommandSyntax({"/agent status": "show the job's state"}, synonyms=("progress",)),
    "retry": CommandSyntax({"/agent retry": "start again from scratch"}, _with_prompt, synonyms=("restart", "redo")),
    "allow": CommandSyntax(
        {"/agent allow PATH": "start again, and let that job change this protected path"}, _with_path
    ),
    "continue": CommandSyntax(
        {"/agent continue --budget +3": "resume a paused job"}, synonyms=("resume",), raises_budget=True
    ),
    "rebase": CommandSyntax({"/agent rebase": "bring the pull request's branch up to its base"}),
    "ci": CommandSyntax({"/agent ci": "start CI on the pull request"}, _without_text),
    "remember": CommandSyntax(
        {"/agent remember TEXT": "save a lesson for later jobs in this repository; without a text: list the lessons"}
    ),
    "forget": CommandSyntax({"/agent forget N": "delete a lesson"}, _with_lesson),
}
"""How each command is written; in this order they are listed for people."""
COMMAND_HELP: Final[dict[str, str]] = {
    usage: effect for syntax in SYNTAX.values() for usage, effect in syntax.help.items()
} | {"/agent …": "guide the running job, or start one"}
"""How to write each command, and what it does."""
