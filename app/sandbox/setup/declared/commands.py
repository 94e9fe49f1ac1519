"""Shell text of CI files, tox, make and scripts, split into simple commands; nothing is executed."""

import re
import shlex
from collections.abc import Callable, Mapping

MAX_COMMANDS = 200
MAX_LINE = 20_000
"""Characters of a line that is split into words, which takes time that grows with the square of a word."""
MAX_SCRIPT = 100_000
"""Characters of what a job of CI or a program with recipes executes."""
MAX_EXPANDED = 100_000
"""Characters that all variables of a text may have together."""
_CONTINUED = re.compile(r"\\\r?\n\s*")
_VARIABLE = re.compile(r"\$\{\{\s*(?P<expression>[\w.-]+)\s*\}\}|\$\([^()]*\)|\$\{?(?P<name>[A-Za-z_]\w*)\}?")
_MERGED = re.compile(r"\d?>&\d|&>")
_KEYWORDS = frozenset({"if", "then", "else", "elif", "fi", "do", "done", "while", "esac", "{", "}", "!"})
_HEADS = frozenset({"for", "case"})
"""They begin what is no command."""
_SEPARATORS = frozenset({"&&", "||", ";", "|", "&", ";;", "(", ")"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)


def simple_commands(script: str, values: Mapping[str, str] | None = None, *, piped: bool = True) -> list[list[str]]:
    """The words of each command, in order. `values` replaces variables and `${{ matrix.x }}`; unknown ones and
    `$(…)` become `$`. Commands that only get another one's output are left out if not `piped`.

    Conditions, loops and redirections are not followed: what they guard is listed as if it were executed.
    """
    found: list[list[str]] = []
    for line in _CONTINUED.sub(" ", script).splitlines():
        words = _words(expanded(line, values or {}))
        current: list[str] = []
        fed = False
        for word in [*words, ";"]:
            if word in _SEPARATORS:
                if current and current[0] not in _HEADS and (piped or not fed):
                    found.append(current)
                current, fed = [], word == "|"
            elif current or word not in _KEYWORDS:
                current.append(word)
        if len(found) >= MAX_COMMANDS:
            break
    return found[:MAX_COMMANDS]


def without_assignments(words: list[str]) -> list[str]:
    """A command without the variables that are set in front of it."""
    start = next((at for at, word in enumerate(words) if not is_assignment(word)), len(words))
    return words[start:]


def is_assignment(word: str) -> bool:
    return _ASSIGNMENT.fullmatch(word) is not None


def _words(line: str) -> list[str]:
    if len(line) > MAX_LINE:
        return []
    lexer = shlex.shlex(_MERGED.sub(" ", line).strip(), posix=True, punctuation_chars="();&|")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    try:
        words = list(lexer)
    except ValueError:
        return []
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif re.fullmatch(r"\d?>{1,2}|<", word):
            skip = True
        elif not re.match(r"\d?>|<|&>", word):
            kept.append(word)
    return kept


def expanded(text: str, values: Mapping[str, str]) -> str:
    """The text with `values` in place of its variables; unknown ones become `$`."""
    return substituted(_VARIABLE, lambda found: values.get(found["expression"] or found["name"] or "", "$"), text)


def substituted(expression: re.Pattern[str], value: Callable[[re.Match[str]], str], text: str) -> str:
    """As `re.sub`; what goes beyond MAX_EXPANDED is left out, because variables may contain each other many times."""
    left = MAX_EXPANDED

    def limited(found: re.Match[str]) -> str:
        nonlocal left
        new = value(found)
        left -= len(new)
        return new if left >= 0 else ""

    return expression.sub(limited, text)
