"""The tools in a real sandbox: what a model asks for happens there, and what it is told is true and not too long."""

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.agent.actions import Action, BashAction, EditAction, RestoreAction, SearchAction, ViewAction, WriteAction
from app.agent.tools import LARGEST, AgentTools, ToolLimits, ToolResult, write_file
from app.sandbox.base import Sandbox, SandboxSpec
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from app.sandbox.changes import LITTER_DIRECTORIES, baseline
from tests.support.memory_tree import MemoryTree
from tests.support.recorded_progress import ListProgress

FILES: dict[str, bytes] = {
    "app/money.py": b"class Money:\n    def add(self, other):\n        return self.cents - other.cents\n",
    "app/cart.py": b"from app.money import Money\n\n\ndef total(items):\n    return sum_money(items)\n",
    "tests/test_money.py": b"from app.money import Money\n\n\ndef test_add():\n    assert Money\n",
    "dos.txt": b"one\r\ntwo\r\nthree\r\n",
    "bom.txt": b"\xef\xbb\xbffirst\nsecond\n",
    "latin.txt": b"caf\xe9\nplain\n",
    "binary.bin": b"\x00\x01\x02",
    "empty.txt": b"",
    "no_end.txt": b"last",
    "broken.py": b"def f(:\n    pass\n",
    "long.txt": b"".join(b"line %d of the long file\n" % n for n in range(1, 3001)),
    "wide.txt": b"x" * 50_000 + b"\nshort\n",
    "with space/-dash.txt": b"odd\n",
}


@dataclass(slots=True)
class Tools:
    sandbox: Sandbox
    toolbox: AgentTools
    progress: ListProgress

    async def do(self, action: Action, *, characters: int = 10_000, seconds: float = 600.0) -> ToolResult:
        return await self.toolbox.execute(action, ToolLimits(characters, seconds, "1-1"))

    async def content(self, path: str) -> bytes:
        return (await self.sandbox.exec(["cat", "--", path])).output


@pytest.fixture
async def tools(tmp_path: Path) -> AsyncIterator[Tools]:
    def fill(directory: Path) -> None:
        for path, content in FILES.items():
            target = directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)

    provider = BubblewrapProvider(tmp_path / "sandboxes", caches=tmp_path / "caches", environment=dict(os.environ))
    sandbox = await provider.open(SandboxSpec(key="tools", fill=fill))
    progress = ListProgress()
    yield Tools(sandbox, AgentTools(sandbox, progress, baseline(MemoryTree(FILES))), progress)
    await sandbox.destroy()


# bash


async def test_bash_tells_exit_code_and_output(tools: Tools) -> None:
    done = await tools.do(BashAction(command="echo out; echo err >&2; exit 3"))
    assert done.outcome == "ok"
    first, *rest = done.text.split("\n")
    assert first.startswith("exit 3, ")
    assert sorted(rest) == ["err", "out"]


async def test_bash_is_bash_in_the_workspace_with_empty_stdin(tools: Tools) -> None:
    done = await tools.do(BashAction(command='a=(x y); echo "${a[1]}" $PWD; cat; echo end'))
    assert done.text.split("\n")[1:] == ["y /workspace", "end"]


async def test_bash_keeps_nothing_but_files(tools: Tools) -> None:
    await tools.do(BashAction(command="cd app; export X=1; echo kept > kept.txt"))
    done = await tools.do(BashAction(command="echo $PWD [$X]; cat app/kept.txt"))
    assert done.text.split("\n")[1:] == ["/workspace []", "kept"]


async def test_bash_ends_at_its_limit_with_all_it_started(tools: Tools) -> None:
    done = await tools.do(BashAction(command="echo begun; (sleep 300; echo late > late.txt) & sleep 300", timeout=1))
    assert done.text.startswith("stopped at its limit of 1 s")
    assert "begun" in done.text


async def test_bash_gets_no_more_time_than_the_job_has(tools: Tools) -> None:
    done = await tools.do(BashAction(command="sleep 300", timeout=100), seconds=0.2)
    assert "limit of 1 s" in done.text


async def test_long_output_is_cut_and_can_be_read_whole(tools: Tools) -> None:
    done = await tools.do(BashAction(command="seq 1 20000"))
    assert len(done.text) <= 12_000
    assert "left out; all of it is in /tmp/output/1-1.txt" in done.text
    whole = await tools.do(ViewAction(path="/tmp/output/1-1.txt", start=9_000, end=9_002))
    assert "9000\t9000\n9001\t9001" in whole.text
    found = await tools.do(BashAction(command="grep -c . /tmp/output/1-1.txt"))
    assert found.text.endswith("\n20000")


async def test_output_streams_to_people(tools: Tools) -> None:
    await tools.do(BashAction(command="echo visible"))
    assert "visible" in "".join(tools.progress.texts("output"))


async def test_equal_results_have_equal_fingerprints(tools: Tools) -> None:
    commands = ["echo 3 failed in 0.12s", "echo 3 failed in 1.7s", "echo 4 failed in 0.12s", "echo 3 failed; exit 1"]
    marks = [(await tools.do(BashAction(command=command))).fingerprint for command in commands]
    assert marks[0] == marks[1]
    assert len(set(marks)) == 3


# view


async def test_view_numbers_lines(tools: Tools) -> None:
    done = await tools.do(ViewAction(path="app/money.py"))
    assert done.text == (
        "app/money.py, lines 1-3 of 3:\n1\tclass Money:\n2\t    def add(self, other):\n"
        "3\t        return self.cents - other.cents"
    )


@pytest.mark.parametrize("path", ["/workspace/app/money.py", "./app/money.py", "app//money.py", " app/money.py "])
async def test_view_takes_any_spelling_of_a_path(path: str, tools: Tools) -> None:
    assert "app/money.py, lines 1-3 of 3" in (await tools.do(ViewAction(path=path))).text


async def test_view_shows_a_range(tools: Tools) -> None:
    done = await tools.do(ViewAction(path="long.txt", start=1500, end=1502))
    assert done.text.split("\n")[1:] == [f"{n}\tline {n} of the long file" for n in (1500, 1501, 1502)]


async def test_view_stops_at_a_line_border_and_says_where_to_go_on(tools: Tools) -> None:
    done = await tools.do(ViewAction(path="long.txt"))
    assert len(done.text) <= 10_200
    last = int(done.text.split("start=")[1].rstrip(")")) - 1
    assert f"{last}\tline {last} of the long file\n(… go on" in done.text
    assert f"lines 1-{last} of 3000" in done.text


async def test_view_to_the_end(tools: Tools) -> None:
    done = await tools.do(ViewAction(path="long.txt", start=2999, end=-1))
    assert done.text.endswith("3000\tline 3000 of the long file")


async def test_view_cuts_long_lines(tools: Tools) -> None:
    done = await tools.do(ViewAction(path="wide.txt"))
    assert "(… this line goes on)" in done.text
    assert len(done.text) < 3_000


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("binary.bin", "binary.bin is a binary file of 3 bytes"),
        ("empty.txt", "empty.txt is an empty file"),
        ("dos.txt", "lines 1-3 of 3 (CRLF line ends):\n1\tone\n2\ttwo"),
        ("bom.txt", "(byte order mark):\n1\tfirst"),
        ("latin.txt", "(not UTF-8)"),
        ("no_end.txt", "lines 1-1 of 1:\n1\tlast"),
        ("with space/-dash.txt", "1\todd"),
        ("app", "app, a directory:\ncart.py\nmoney.py"),
        (".", "/workspace, a directory:\napp/\napp/cart.py"),
    ],
)
async def test_view_says_what_it_is(path: str, said: str, tools: Tools) -> None:
    done = await tools.do(ViewAction(path=path))
    assert done.outcome == "ok"
    assert said in done.text


@pytest.mark.parametrize(
    ("action", "said"),
    [
        (ViewAction(path="nowhere.py"), "There is no file nowhere.py"),
        (ViewAction(path="app/money.py", start=10), "has only 3 lines"),
        (ViewAction(path="app/money.py", start=3, end=2), "end 2 is before start 3"),
        (ViewAction(path="/dev/zero"), "no regular file"),
        (EditAction(path="nowhere.py", old_text="a", new_text="b"), "There is no file nowhere.py"),
        (EditAction(path="app", old_text="a", new_text="b"), "app is a directory"),
        (EditAction(path="binary.bin", old_text="a", new_text="b"), "binary file"),
        (EditAction(path="latin.txt", old_text="plain", new_text="größer"), "not UTF-8"),
        (EditAction(path="app/money.py", old_text="cents", new_text="c"), "at lines 3, 3"),
        (WriteAction(path="app", content="x"), "app is a directory"),
        (WriteAction(path="/usr/x", content="x"), "/usr/x"),
        (WriteAction(path="empty.txt/x", content="x"), "empty.txt"),
        (WriteAction(path="no_end.txt", content="last"), "already has exactly this content"),
    ],
)
async def test_failures_are_reported(action: Action, said: str, tools: Tools) -> None:
    done = await tools.do(action)
    assert done.outcome == "failed"
    assert said in done.text


# edit and write


async def test_edit_changes_one_place_and_shows_it(tools: Tools) -> None:
    done = await tools.do(EditAction(path="app/money.py", old_text="self.cents - other", new_text="self.cents + other"))
    assert "Edited app/money.py, line 3:" in done.text
    assert "3\t        return self.cents + other.cents" in done.text
    assert await tools.content("app/money.py") == FILES["app/money.py"].replace(b"-", b"+")


async def test_long_edit_shows_its_ends_and_a_line_on_each_side(tools: Tools) -> None:
    lines = "".join(f"        line({number})\n" for number in range(30))
    old = "        return self.cents - other.cents\n"
    done = await tools.do(EditAction(path="app/money.py", old_text=old, new_text=lines))
    shown = done.text.splitlines()[1:]
    before = FILES["app/money.py"].decode().splitlines()[1]
    assert shown[0].split("\t")[1] == before
    assert [line.split("(")[-1] for line in shown[1:6]] == [f"{number})" for number in range(5)]
    assert shown[6] == "(… 20 more changed lines)"
    assert [line.split("(")[-1] for line in shown[7:12]] == [f"{number})" for number in range(25, 30)]


@pytest.mark.parametrize(
    ("path", "old", "new", "after"),
    [
        ("dos.txt", "one\ntwo\n", "1\n2\n2b\n", b"1\r\n2\r\n2b\r\nthree\r\n"),
        ("bom.txt", "first", "FIRST", b"\xef\xbb\xbfFIRST\nsecond\n"),
        ("latin.txt", "plain", "PLAIN", b"caf\xe9\nPLAIN\n"),
        ("no_end.txt", "last", "end", b"end"),
    ],
)
async def test_edit_keeps_bytes_it_does_not_change(path: str, old: str, new: str, after: bytes, tools: Tools) -> None:
    assert (await tools.do(EditAction(path=path, old_text=old, new_text=new))).outcome == "ok"
    assert await tools.content(path) == after


async def test_edit_and_write_keep_the_mode(tools: Tools) -> None:
    await tools.sandbox.exec(["chmod", "755", "dos.txt", "no_end.txt"])
    await tools.do(EditAction(path="dos.txt", old_text="one", new_text="1"))
    await tools.do(WriteAction(path="no_end.txt", content="new\n"))
    done = await tools.sandbox.exec(["stat", "-c", "%a", "dos.txt", "no_end.txt"])
    assert done.output.split() == [b"755", b"755"]


async def test_edit_writes_through_a_link(tools: Tools) -> None:
    await tools.sandbox.exec(["ln", "-s", "app/money.py", "link.py"])
    await tools.do(EditAction(path="link.py", old_text="Money", new_text="Coins"))
    done = await tools.sandbox.exec(["readlink", "link.py"])
    assert done.output == b"app/money.py\n"
    assert b"class Coins" in await tools.content("app/money.py")


async def test_an_edit_that_breaks_the_syntax_is_refused(tools: Tools) -> None:
    done = await tools.do(EditAction(path="app/cart.py", old_text="def total(items):", new_text="def total(items:"))
    assert done.outcome == "failed"
    assert "Not done: app/cart.py parses now and would not afterwards" in done.text
    assert "4\tdef total(items:" in done.text
    assert await tools.content("app/cart.py") == FILES["app/cart.py"]


async def test_a_file_that_was_broken_can_be_edited(tools: Tools) -> None:
    assert (await tools.do(EditAction(path="broken.py", old_text="pass", new_text="return"))).outcome == "ok"
    assert (await tools.do(EditAction(path="broken.py", old_text="def f(:", new_text="def f():"))).outcome == "ok"


async def test_a_write_that_breaks_the_syntax_is_refused(tools: Tools) -> None:
    done = await tools.do(WriteAction(path="app/cart.py", content="def total(:\n"))
    assert done.outcome == "failed"
    assert await tools.content("app/cart.py") == FILES["app/cart.py"]


async def test_a_new_file_that_does_not_parse_is_written_and_said(tools: Tools) -> None:
    done = await tools.do(WriteAction(path="new/deep/case.py", content="def f(:\n"))
    assert done.outcome == "ok"
    assert "Created new/deep/case.py, 1 lines.\nIt does not parse. Line 1" in done.text
    assert await tools.content("new/deep/case.py") == b"def f(:\n"


async def test_write_keeps_line_ends_and_byte_order_mark(tools: Tools) -> None:
    await tools.do(WriteAction(path="dos.txt", content="a\nb\n"))
    await tools.do(WriteAction(path="bom.txt", content="a\n"))
    assert await tools.content("dos.txt") == b"a\r\nb\r\n"
    assert await tools.content("bom.txt") == b"\xef\xbb\xbfa\n"


async def test_write_replaces_a_file_of_any_size_in_its_own_form(tools: Tools) -> None:
    await write_file(tools.sandbox, "large.txt", b"\xef\xbb\xbf" + b"line\r\n" * (LARGEST // 5))
    done = await tools.do(WriteAction(path="large.txt", content="a\nb\n"))
    assert done.text == "Replaced large.txt, 2 lines."
    assert await tools.content("large.txt") == b"\xef\xbb\xbfa\r\nb\r\n"


async def test_files_outside_the_workspace_are_reported_as_not_in_the_patch(tools: Tools) -> None:
    done = await tools.do(WriteAction(path="/tmp/try.py", content="print(1)\n"))
    assert "not part of the patch" in done.text


async def test_nothing_is_left_beside_a_written_file(tools: Tools) -> None:
    await tools.do(WriteAction(path="dos.txt", content="a\n"))
    await tools.do(WriteAction(path="/usr/x", content="a\n"))
    done = await tools.sandbox.exec(["sh", "-c", "ls -A | grep write || true"])
    assert done.output == b""


# search


async def test_search_lists_definitions_then_uses_then_tests(tools: Tools) -> None:
    done = await tools.do(SearchAction(query="Money"))
    paths = [line.split(":")[0] for line in done.text.split("\n\n")[-1].split("\n")]
    assert paths == ["app/money.py", "app/cart.py", "tests/test_money.py", "tests/test_money.py"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("sum_money(items)", "app/cart.py:5: return sum_money(items)"),
        ("MONEY", "Found in other case"),
        (r"cents - \w+", "Found as a regular expression:\napp/money.py:3"),
        (r"line \d{4} of", "Found as a regular expression:\nlong.txt:1000"),
        ("other add self", "Found by its words, files that share most of them first:\napp/money.py:2"),
        ("where are items summed in the cart?", "app/cart.py:4: def total(items):\napp/cart.py:5"),
        ("where is the weather?", "Nothing matches"),
        ("cart.py", "Files of that name:\napp/cart.py"),
        ("*.bin", "Files of that name:\nbinary.bin"),
        ("tests/test_", "Files of that name:\ntests/test_money.py"),
        ("-e evil", "Nothing matches"),
        ("[unclosed", "Nothing matches"),
        ("nowhere_at_all", "Nothing matches 'nowhere_at_all'"),
    ],
)
async def test_search_reads_a_query_in_the_strictest_way_that_finds(query: str, said: str, tools: Tools) -> None:
    assert said in (await tools.do(SearchAction(query=query))).text


async def test_search_is_capped_with_counts(tools: Tools) -> None:
    done = await tools.do(SearchAction(query="line"))
    assert "(… 2,992 more in long.txt)" in done.text
    assert len(done.text) < 3_000


async def test_search_shows_the_part_of_a_long_line_that_matches(tools: Tools) -> None:
    await tools.do(WriteAction(path="minified.js", content=f"{'a' * 5000}NEEDLE{'b' * 5000}\n"))
    done = await tools.do(SearchAction(query="NEEDLE"))
    assert "NEEDLE" in done.text
    assert len(done.text) < 400


async def test_a_search_that_takes_too_long_is_given_up(tools: Tools) -> None:
    done = await tools.do(SearchAction(query="(a+)+$x{1,9999}"), seconds=0.1)
    assert done.outcome == "failed"
    assert "stopped after 1 s" in done.text


async def test_generated_directories_are_named_but_neither_listed_nor_searched(tools: Tools) -> None:
    names = sorted({"venv", *LITTER_DIRECTORIES})
    for name in names:
        await write_file(tools.sandbox, f"{name}/inner/needle.txt", b"needle_of_a_build\n")
    assert "Nothing matches" in (await tools.do(SearchAction(query="needle_of_a_build"))).text
    assert "Nothing matches" in (await tools.do(SearchAction(query="needle.txt"))).text
    rows = (await tools.do(ViewAction(path="."))).text.split("\n")
    assert [name for name in names if f"{name}/ (not listed)" not in rows] == []


async def test_a_search_for_a_name_with_many_stars_ends(tools: Tools) -> None:
    await write_file(tools.sandbox, "a" * 60, b"")
    assert "Nothing matches" in (await tools.do(SearchAction(query="*a" * 30 + "b"))).text
    assert "Files of that name:\naaaa" in (await tools.do(SearchAction(query="*a" * 30))).text


# nothing of the host


@pytest.mark.parametrize("path", ["/proc/self/environ", "/proc/1/environ"])
async def test_the_environment_seen_is_the_sandbox_s(path: str, tools: Tools) -> None:
    done = await tools.do(ViewAction(path=path))
    assert not any(f"{name}=" in done.text for name in ("PYTEST_CURRENT_TEST", "VIRTUAL_ENV", "OLDPWD"))
    if done.outcome == "ok":
        assert "PATH=/env/bin" in done.text or "empty" in done.text


@pytest.mark.parametrize("path", ["/etc/shadow", "../../../etc/shadow", "/proc/1/root/etc/shadow"])
async def test_files_of_the_host_are_not_there(path: str, tools: Tools) -> None:
    assert (await tools.do(ViewAction(path=path))).outcome == "failed"


async def test_a_file_is_put_back(tools: Tools) -> None:
    await tools.do(BashAction(command="rm app/cart.py; echo 1 > binary.bin; echo 1 > app/new.py"))
    result = await tools.do(RestoreAction(path="/workspace/app"))
    assert (result.outcome, result.text) == ("ok", "As before your work: app/cart.py, app/new.py.")
    assert await tools.content("app/cart.py") == FILES["app/cart.py"]
    assert await tools.content("binary.bin") == b"1\n"
    again = await tools.do(RestoreAction(path="app"))
    assert (again.outcome, "no changes" in again.text) == ("failed", True)
    assert (await tools.do(RestoreAction(path="/etc/passwd"))).outcome == "failed"
