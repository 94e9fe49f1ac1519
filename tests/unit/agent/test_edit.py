"""An edit finds its one place or says why not; nothing outside of that place ever changes."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.agent.edit_matching import EditError, numbered, replace

PYTHON = "def f(a):\n    if a:\n        return 1\n    return 2\n\n\ndef g():\n    return f(0)\n"

APPLIED = {
    "a word": (PYTHON, "return 1", "return 10", PYTHON.replace("return 1", "return 10"), ""),
    "several lines": (PYTHON, "if a:\n        return 1", "if not a:\n        return 3", None, ""),
    "part of a line": ("alpha beta gamma\n", "beta", "BETA", "alpha BETA gamma\n", ""),
    "a deletion": ("a\nb\nc\n", "b\n", "", "a\nc\n", ""),
    "the end without a line end": ("a\nb", "b", "c", "a\nc", ""),
    "the whole file": ("a", "a", "b", "b", ""),
    "dollars and backslashes": ("x = 1\n", "x = 1", r"x = '\1$0\\n'", "x = '\\1$0\\\\n'\n", ""),
    "not ASCII": ("grün\nblau\n", "grün", "größer", "größer\nblau\n", ""),
    "crlf, written with lf": ("a\r\nb\r\nc\r\n", "a\nb\n", "A\nB\nX\n", "A\r\nB\r\nX\r\nc\r\n", ""),
    "crlf, one line": ("a\r\nb\r\n", "a", "x\ny", "x\r\ny\r\nb\r\n", ""),
    "crlf, written with crlf": ("a\r\nb\r\n", "a\r\nb", "c\r\nd", "c\r\nd\r\n", ""),
    "lf, written with crlf": ("a\nb\nc\n", "a\r\nb", "x\r\ny", "x\ny\nc\n", ""),
    "crlf, from a line's end": ("a\r\nb\r\n", "\nb", "c", "ac\r\n", ""),
    "spaces at line ends in the file": ("a  \nb\t\nc\n", "a\nb\n", "a\nB\n", "a  \nB\nc\n", "white space at line ends"),
    "spaces at line ends in old_text": ("a\nb\nc\n", "a  \nb \n", "a\nB\n", "a\nB\nc\n", "white space at line ends"),
    "no final line end": ("a\nb", "a\nb\n", "a\nc\n", "a\nc", "white space at line ends"),
    "mixed line ends": ("a\r\nb\r\nc\n", "a\nb\n", "a\nX\nY\n", "a\r\nX\r\nY\r\nc\n", "white space at line ends"),
    "too little indentation": (
        "class A:\n    def f(self):\n        return 1\n",
        "def f(self):\n    return 1\n",
        "def f(self):\n    x = 2\n\n    return x\n",
        "class A:\n    def f(self):\n        x = 2\n\n        return x\n",
        "indentation",
    ),
    "too much indentation": ("a:\n  b\nc\n", "    a:\n      b\n", "    a:\n      d\n", "a:\n  d\nc\n", "indentation"),
    "uneven indentation": (
        "if a:\n    f(1)\n        g(2)\n",
        "f(1)\n  g(2)\n",
        "f(3)\n",
        "if a:\n    f(3)\n",
        "indentation",
    ),
    "tabs": ("\tif x {\n\t\ty()\n\t}\n", "if x {\n\ty()\n}\n", "if x {\n\tz()\n}\n", None, "indentation"),
    "blanks inside": (
        "x = [1,  2]\ny = 3\n",
        "x = [1, 2]\ny = 3\n",
        "x = [1, 2]\ny = 4\n",
        "x = [1,  2]\ny = 4\n",
        "white space",
    ),
    "blanks for tabs": (
        "if x {\n\tfor {\n\t\ty()\n\t}\n}\n",
        "    for {\n        y()\n",
        "    for {\n        if z {\n            y()\n        }\n",
        "if x {\n\tfor {\n\t\tif z {\n\t\t\ty()\n\t\t}\n\t}\n}\n",
        "indentation",
    ),
    "line numbers": (
        "a = 1\n  b = 2\nc\n",
        " 9\ta = 1\n10\t  b = 2\n",
        " 9\ta = 1\n10\t  b = 3\n",
        "a = 1\n  b = 3\nc\n",
        "line numbers",
    ),
    "numbers that are the text": ("1\tone\n2\ttwo\n", "2\ttwo", "2\tzwei", "1\tone\n2\tzwei\n", ""),
    "numbers of a view, beside numbers of the text": (
        "levels:\n0: nothing\n1: commands\n",
        "41\tlevels:\n42\t0: nothing\n43\t1: commands\n",
        "levels:\n0: no output\n1: commands\n",
        "levels:\n0: no output\n1: commands\n",
        "line numbers",
    ),
    "bytes that nobody can show": (
        "# caf\udce9\nx = 1\n",
        "# caf\ufffd\nx = 1\n",
        "# caf\ufffd\nx = 2\n",
        "# caf\udce9\nx = 2\n",
        "white space",
    ),
    "curly quotes in the file": ("say \u201chi\u201d\nx\n", 'say "hi"\nx', 'say "hi"\ny', None, "curly quotes"),
    "curly quotes in old_text": ("s = 'hi'\n", "s = \u2018hi\u2019", "s = 'ho'", "s = 'ho'\n", "curly quotes"),
}

REFUSED = {
    "empty old_text": ("a\n", "", "b", "old_text is empty"),
    "no change": ("a\n", "a", "a", "change nothing"),
    "nothing like it": ("a\nb\n", "zzzzzzzz", "y", "No line is like it"),
    "twice": ("x = 1\ny\nx = 1\n", "x = 1", "x = 2", "at lines 1, 3"),
    "overlapping": ("aaa\n", "aa", "b", "more than once"),
    "many times": ("x\n" * 50, "x", "y", "and more"),
    "twice but for the indentation": (
        "if a:\n    f(1)\n    g(2)\nif b:\n    f(1)\n    g(2)\n",
        "f(1)\ng(2)\n",
        "f(1)\n",
        "lines 2, 5",
    ),
    "twice but for spaces": ("a \nb\na\t\nb\n", "a\nb\n", "c\n", "lines 1, 3"),
    "only blank lines": ("a\n\n\nb\n", "\n\n", "x", "old_text is empty"),
    "indentation that does not fit": ("a:\n  b\n", "    a:\n      b\n", "  a:\n      c\n", "indentation"),
    "a typing error": (
        "def compute_total(x):\n    return x\n",
        "def compute_totl(x):",
        "def c(x):",
        "def compute_total",
    ),
    "made before": (
        "value = compute_total(items)\n",
        "value = 1",
        "value = compute_total(items)",
        "already there, at line 1",
    ),
    "another function like it": (
        "def first(items):\n    total = 0\n    for item in items:\n        total += item.size\n    return total\n",
        "def second(items):\n    total = 0\n    for item in items:\n        total += item.size\n    return total\n",
        "def second(items):\n    total = 0\n    for item in items:\n        total -= item.size\n    return total\n",
        "nearest lines",
    ),
    "the one that is meant is gone, another like it stays": (
        "load(name)\nmodule.loader = SourceLoader(name)\nmodule.spec = loader\nreturn module\n\nCompiledLoader.put()\n",
        "module.loader = CompiledLoader(name)\nmodule.spec = loader\nreturn module\n",
        "module.loader = CompiledLoader(name)\nmodule.spec = None\nreturn module\n",
        "nearest lines",
    ),
    "a line more like it is elsewhere": (
        "mode = stat(pipe)\npipe.proto = None\nsay('pipes, sockets only')\n\nsay('for pipes or sockets, only')\n",
        "mode = stat(pipe)\npipe.proto = None\nsay('for pipes or sockets only')\n",
        "mode = stat(pipe)\npipe.proto = 1\nsay('for pipes or sockets only')\n",
        "nearest lines",
    ),
    "two lines around are stale": (
        "load(1)\nother(2)\nchanged = compute(3)\nfirst(4)\nlast(5)\n",
        "load(0)\nother(0)\nchanged = compute(3)\nfirst(4)\nlast(5)\n",
        "load(0)\nother(0)\nchanged = compute(5)\nfirst(4)\nlast(5)\n",
        "nearest lines",
    ),
    "quotes of which some are meant to be curly": (
        "say('\u201chi\u201d')\nx = 'one'\n",
        "say(\u2018\u201chi\u201d\u2019)\nx = \u2018one\u2019\n",
        "say(\u2018\u201chi\u201d\u2019)\nx = \u2018two\u2019\n",
        "or the quotes",
    ),
    "the very line is another by now": (
        "def total(items):\n    count = 0\n    return count + 1\n",
        "def total(items):\n    count = 0\n    return count + 2\n",
        "def total(items):\n    count = 0\n    return count + 3\n",
        "nearest lines",
    ),
    "other words between": ("alpha\nbeta\ngamma\n", "alpha\ngamma\n", "alpha\n", "nearest lines"),
}


@pytest.mark.parametrize("name", APPLIED)
def test_edit_applies(name: str) -> None:
    text, old, new, expected, how = APPLIED[name]
    edited = replace(text, old, new)
    assert edited.how == how
    if expected is not None:
        assert edited.text == expected


@pytest.mark.parametrize("name", REFUSED)
def test_edit_is_refused_with_a_reason(name: str) -> None:
    text, old, new, reason = REFUSED[name]
    with pytest.raises(EditError, match=reason):
        replace(text, old, new)


def test_edit_reports_the_new_lines() -> None:
    edited = replace("a\nb\nc\nd\n", "b\nc\n", "x\ny\nz\n")
    assert (edited.first, edited.last) == (2, 4)
    assert numbered(edited.text, edited.first, edited.last) == "2\tx\n3\ty\n4\tz"


def test_edit_reports_where_lines_were_deleted() -> None:
    edited = replace("a\nb\nc\n", "b\n", "")
    assert edited.last < edited.first == 2


def test_refused_edit_shows_the_nearest_lines_with_numbers() -> None:
    text = "".join(f"line_{n} = {n}\n" for n in range(50)) + "def compute_interest(rate, years):\n    pass\n"
    with pytest.raises(EditError) as error:
        replace(text, "def compute_interest(rate, year):\n    pass\n", "x")
    assert "51\tdef compute_interest(rate, years):" in str(error.value)


def test_unchanged_lines_keep_their_bytes() -> None:
    text = "keep \u201cthis\u201d  \nchange 'that'\n"
    edited = replace(text, "keep \"this\"\nchange 'that'\n", 'keep "this"\nchanged\n')
    assert edited.text == "keep \u201cthis\u201d  \nchanged\n"


# Generated cases: a passage of a generated file, disturbed as models do it, is found at its own place or not at all.

LINE = st.text(alphabet="ab( )\t'=:#\u2019", max_size=8)
FILE = st.lists(LINE, min_size=1, max_size=12)
DISTURBANCES: dict[str, Callable[[list[str]], list[str]]] = {
    "none": lambda lines: lines,
    "spaces at ends": lambda lines: [line + "  " for line in lines],
    "stripped ends": lambda lines: [line.rstrip() for line in lines],
    "more indentation": lambda lines: ["  " + line if line.strip() else line for line in lines],
    "less indentation": lambda lines: [line.removeprefix(" ") for line in lines],
    "straight quotes": lambda lines: [line.replace("\u2019", "'") for line in lines],
}


def _loosely(line: str) -> str:
    return line.strip().replace("\u2019", "'")


@pytest.mark.parametrize("disturbance", DISTURBANCES)
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@given(lines=FILE, data=st.data())
def test_edit_changes_only_the_lines_it_matched(
    lines: list[str], data: st.DataObject, ends: str, disturbance: str
) -> None:
    """Whatever was overlooked, only one run of lines changed, and it reads like what was asked for."""
    begin = data.draw(st.integers(0, len(lines) - 1))
    end = data.draw(st.integers(begin + 1, len(lines)))
    wanted = DISTURBANCES[disturbance](lines[begin:end])
    old = "\n".join(wanted) + "\n"
    text = ends.join(lines) + ends
    try:
        edited = replace(text, old, "NEW\n")
    except EditError:
        return
    if not edited.how:
        before, after = text.replace(ends, "\n").split(old)
        assert edited.text.replace(ends, "\n") == f"{before}NEW\n{after}"
        return
    had, has = text.split(ends), edited.text.split(ends)
    place = next(index for index, line in enumerate(has) if "NEW" in line)
    assert has[:place] + has[place + 1 :] == had[:place] + had[place + end - begin :]
    assert [*map(_loosely, had[place : place + end - begin])] == [*map(_loosely, wanted)]


@given(text=st.text(alphabet="ab\n", max_size=30), old=st.text(alphabet="ab\n", max_size=4).filter(str.strip))
def test_exact_match_must_be_unique(text: str, old: str) -> None:
    places = [index for index in range(len(text)) if text.startswith(old, index)]
    if len(places) == 1:
        assert replace(text, old, "X").text == text[: places[0]] + "X" + text[places[0] + len(old) :]
    elif places:
        with pytest.raises(EditError, match="more than once"):
            replace(text, old, "X")


@pytest.mark.parametrize("size", range(1, 6))
@pytest.mark.parametrize("begin", range(0, 40, 2))
@pytest.mark.parametrize("shift", ["", "    "])
def test_every_passage_of_a_file_is_found_where_it_is(begin: int, size: int, shift: str) -> None:
    lines = [f"{'    ' * (n % 3)}call_{n}(argument={n})" for n in range(45)]
    passage = "\n".join(shift + line for line in lines[begin : begin + size]) + "\n"
    edited = replace("\n".join(lines) + "\n", passage, shift + "done()\n")
    assert edited.text == "\n".join([*lines[:begin], "done()", *lines[begin + size :]]) + "\n"


@given(text=st.text(max_size=200), old=st.text(max_size=40), new=st.text(max_size=40))
def test_any_text_gives_an_edit_or_an_error(text: str, old: str, new: str) -> None:
    """Any texts give an edit or a reason."""
    with suppress(EditError):
        assert replace(text, old, new).text != text
