"""Detects a reproduction that only reads source text, so that its result says nothing about behaviour."""

import re
import shlex
from pathlib import PurePosixPath

from app.core.tree import Tree
from app.repo.grammars import language_of
from app.sandbox.base import WORKSPACE

_WORD = re.compile(r"\S+")
_READS_TEXT = frozenset(
    _WORD.findall("""
    [ [[ test grep egrep fgrep rg ag cat head tail nl od xxd wc ls find stat file diff cmp cut sort uniq tr strings tee
    echo printf true false exit return : cd set pwd basename dirname sed awk git
    """)
)
_BEFORE_A_COMMAND = frozenset(
    _WORD.findall("! if then elif else fi while until do done { } time command builtin exec env xargs")
)
_EXECUTING = re.compile(r"-(?:exec|execdir|ok|okdir)$|-f$|--file\b")
"""Options by which `find`, `sed` and `awk` execute something of the project."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_SUBSTITUTED = re.compile(r"\$\(([^()]*)\)|`([^`]*)`")


def only_reads_source(command: str, tree: Tree) -> bool:
    """True if only grep, test and the like are started, and they read source code.

    False if that cannot be determined. Prose or data is different: there the text itself is the result.
    """
    plain, parts = _SUBSTITUTED.sub(" ", command), [a or b for a, b in _SUBSTITUTED.findall(command)]
    if "$(" in plain or "`" in plain:
        return False
    words = [simple for part in (plain, *parts) for simple in _simple_commands(part)]
    programs = [simple[0] for simple in words if simple]
    if not programs or not all(map(_looks, words)):
        return False
    return any(_is_code(word, tree) for simple in words for word in simple[1:])


def _simple_commands(command: str) -> list[list[str]]:
    """The words of each simple command, without prefixes; one unknown word if they cannot be determined."""
    lexer = shlex.shlex(command.replace("\n", ";"), posix=True, punctuation_chars=";&|()")
    lexer.commenters = ""
    found: list[list[str]] = [[]]
    try:
        for word in lexer:
            if set(word) <= set(";&|()"):
                found.append([])
            elif found[-1] or not (word in _BEFORE_A_COMMAND or _ASSIGNMENT.match(word)):
                found[-1].append(word)
    except ValueError:
        return [["?"]]
    return found


def _looks(simple: list[str]) -> bool:
    if not simple:
        return True
    name = PurePosixPath(simple[0]).name
    return name in _READS_TEXT and (name == "test" or not any(_EXECUTING.match(word) for word in simple[1:]))


def _is_code(word: str, tree: Tree) -> bool:
    path = word.removeprefix(f"{WORKSPACE}/").removeprefix("./").rstrip("/")
    if path in ("", ".", WORKSPACE):
        return True
    return language_of(path) is not None or any(
        other.startswith(f"{path}/") and language_of(other) is not None for other in tree.entries()
    )
