"""Cases in which the model strays: silence, garbled calls, circles, floods, hung commands, endless submissions."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from app.agent.stop_rules import (
    CUT_OFF,
    EMPTY,
    FAILED_EDITS,
    FILTERED,
    REVERTED,
    SAME_STUCK,
    SILENT,
    SIMILAR_STUCK,
    STUCK,
    SUBMISSIONS,
    UNUSABLE,
)
from app.core.job import Budget
from tests.support.always_ends.answers import (
    FIX,
    LOOK,
    POSITIONS,
    SUBMIT,
    act,
    bash,
    edit,
    ever,
    once,
    say,
    submit,
    write,
)
from tests.support.always_ends.case_runner import ACCEPTED, REJECTED, RETURNED, Case
from tests.support.always_ends.endpoint import Play, always, first, in_turn
from tests.support.openai_endpoint import Reply

PLACES = list(POSITIONS.items())
LARGE = 200_000
DEEP = '{"command": ' * 3_000
ODD_CALLS: dict[str, Reply] = {
    "arguments that are no JSON": act(("bash", "{'command': ls}")),
    "arguments that are empty": act(("bash", "")),
    "arguments that are a list": act(("bash", '["ls"]')),
    "arguments that are null": act(("bash", "null")),
    "arguments that are a number": act(("bash", "7")),
    "arguments nested too deep": act(("bash", DEEP + "1" + "}" * 3_000)),
    "arguments with NaN": act(("bash", '{"command": "ls", "timeout": NaN}')),
    "arguments with half a character": act(("bash", '{"command": "\\ud800"}')),
    "arguments with NUL": act(("bash", '{"command": "ls\\u0000"}')),
    "a command that is a list": act(("bash", {"command": ["ls"]})),
    "a command that is null": act(("bash", {"command": None})),
    "a timeout that is words": bash("ls", timeout="soon"),
    "a timeout that is negative": bash("ls", timeout=-1),
    "a timeout of a year": bash("ls", timeout=31_536_000),
    "an argument that there is not": act(("view", {"path": "app.py", "offset": 3})),
    "a line that is a dictionary": act(("view", {"path": "app.py", "start": {"line": 1}})),
    "a missing argument": act(("edit", {"path": "app.py"})),
    "a command of 200 KB": bash("echo " + "x" * LARGE),
    "an edit of 400 KB": edit("a - b", "y" * 2 * LARGE),
    "a tool that there is not": act(("run_shell", {"command": "ls"})),
    "a tool without a name": act(("", {"command": "ls"})),
    "a tool whose name is 10 KB": act(("x" * 10_000, {"command": "ls"})),
    "a tool whose name is words": act(("run the command", {"command": "ls"})),
    "an id of 10 KB": act(("nothing", "{}"), ids="i" * 10_000),
    "an id with line ends": act(("nothing", "{}"), ids="a\nb"),
}
SILENCES: dict[str, tuple[Reply, str, int]] = {
    "an empty answer": (say(""), "gave no answer", EMPTY),
    "an answer of blanks": (say("  \n\n "), "gave no answer", EMPTY),
    "an answer cut off in its text": (say("I will now", finish="length"), "cut off", CUT_OFF),
    "an answer cut off in a call": (
        act(("bash", '{"command": "echo '), finish="length"),
        "cut off",
        CUT_OFF,
    ),
    "a whole call in an answer that was cut off": (
        act(("bash", {"command": "touch x"}), finish="length"),
        "cut off",
        CUT_OFF,
    ),
    "a filtered answer": (say("", finish="content_filter"), "content filter", FILTERED),
    "a call that was filtered": (act(("bash", {"command": "ls"}), finish="content_filter"), "content filter", FILTERED),
    "text without a call": (say("The work is done."), "", SILENT),
    "a refusal in words": (say("I'm sorry, but I can't help with that."), "", SILENT),
    "200 KB of text": (say("so on and on " * (LARGE // 13)), "", SILENT),
    "an end that nobody knows": (say("Well.", finish="because"), "", SILENT),
}


def cases() -> Iterator[Case]:
    for number, (name, reply) in enumerate(ODD_CALLS.items()):
        where, position = PLACES[number % len(PLACES)]
        if number % 2:
            yield Case(f"{name}, once, {where}", once(position, reply), "submitted", 6)
        yield Case(f"{name}, for ever, {where}", ever(position, always(reply)), "error", position + UNUSABLE)
    for number, (name, (reply, says, most)) in enumerate(SILENCES.items()):
        where, position = PLACES[(number + 1) % len(PLACES)]
        ends = "no_change" if not says and position < 2 else "error"
        yield Case(f"{name}, once, {where}", once(position, reply), "submitted", 6)
        yield Case(f"{name}, for ever, {where}", ever(position, always(reply)), ends, position + most, says=says)
    yield from _many_calls()
    yield from _floods()
    for family in (_mixtures, _circles, _edits, _submissions, _hanging):
        yield from (replace(case, wire=False) for case in family())


def _mixtures() -> Iterator[Case]:
    useless = [reply for reply, _, _ in SILENCES.values()]
    yield Case("every silence in turn", ever(1, in_turn(*useless)), "error|no_change", 1 + 6)
    odd = list(ODD_CALLS.values())
    yield Case("every odd call in turn", ever(1, in_turn(*odd)), "error", 1 + UNUSABLE)
    both = [reply for pair in zip(useless, odd, strict=False) for reply in pair]
    yield Case("silences and odd calls in turn", ever(2, in_turn(*both)), "error", 2 + 6)
    hopeful = [reply for number in range(60) for reply in (odd[number % len(odd)], bash(f"echo {number}"))]
    tried = Case("an odd call before every command", first(hopeful, always(LOOK)), "limit_reached", 15, "15 turns")
    yield replace(tried, budget=Budget(steps=15))


def _many_calls() -> Iterator[Case]:
    same_id = act(*[("bash", {"command": f"echo {number}"}) for number in range(3)], ids="c")
    yield Case("three calls with one id, once", once(1, same_id), "submitted", 6)
    yield Case("three calls with one id, for ever", ever(1, always(same_id)), "error", 1 + STUCK, says="loop")
    no_ids = act(*[("view", {"path": "app.py"})] * 3, ids="")
    yield Case("three calls without an id, once", once(1, no_ids), "submitted", 6)
    for count in (17, 200):
        views = act(*[("view", {"path": "app.py", "start": 1, "end": number + 1}) for number in range(count)])
        yield Case(f"{count} calls at once, once", once(1, views), "submitted", 6)
        yield Case(f"{count} calls at once, for ever", ever(1, always(views)), "error", 1 + STUCK, says="loop")
    bad = act(*[("nothing", "{}")] * 200)
    yield Case("200 calls of no tool, for ever", ever(2, always(bad)), "error", 2 + UNUSABLE)
    submissions = act(*[("submit", {"summary": "s", "reproduction": "r"})] * 200)
    yield Case("200 submissions at once, for ever", ever(2, always(submissions)), "error", 2 + UNUSABLE)


def _circles() -> Iterator[Case]:
    for period in (1, 2, 3):
        turns = [bash(f"echo {number}") for number in range(period)]
        calls = 1 + period * STUCK
        yield Case(f"a circle of {period}", ever(1, in_turn(*turns)), "error", calls, says="loop")
    failing = [bash("false"), act(("view", {"path": "nowhere"}))]
    yield Case("a circle of failures", ever(2, in_turn(*failing)), "error", 2 + 2 * STUCK, says="loop")
    nearly = {
        "the clock": "date +%s.%N",
        "a number": "echo $RANDOM",
        "an address": "printf 'object at 0x%x%x\\n' $RANDOM $RANDOM",
        "seconds": "echo took $RANDOM s",
        "a process": "echo pid $$",
    }
    for name, command in nearly.items():
        case = Case(f"the same command but for {name}", ever(1, always(bash(command))), "error", 1 + SIMILAR_STUCK)
        yield replace(case, says="loop")
    pair = in_turn(bash("echo $RANDOM"), bash("date +%N"))
    yield Case("two commands in turn but for numbers", ever(1, pair), "error", 1 + 2 * SIMILAR_STUCK, says="loop")
    back_and_forth = in_turn(edit("a + b", "a * b"), edit("a * b", "a + b"))
    yield Case("edits that undo each other", ever(2, back_and_forth), "error", 2 + 2 * STUCK, says="loop")
    watched = in_turn(edit("a + b", "a * b"), bash("cat app.py"), edit("a * b", "a + b"), bash("date +%N"))
    yield Case("edits that undo each other with looks between", ever(2, watched), "error", 25, says="undo")
    files = in_turn(write("scratch.txt", "x\n"), bash("rm scratch.txt; echo $RANDOM"))
    yield Case("a file that comes and goes", ever(2, files), "error", 2 + 2 * REVERTED + 1)


def _edits() -> Iterator[Case]:
    def wrong(number: int, _body: dict[str, Any]) -> Reply:
        return edit(f"nowhere {number}", "x")

    def unchanged(number: int, _body: dict[str, Any]) -> Reply:
        return edit("return", "return") if number % 2 else edit("def add(a, b):", "def add(a, b):")

    def broken(number: int, _body: dict[str, Any]) -> Reply:
        return edit("def add(a, b):", f"def add_{number}(a, b:")

    plays: dict[str, Play] = {"nowhere in the file": wrong, "that change nothing": unchanged, "that break": broken}
    for name, play in plays.items():
        for where, position in PLACES[:3]:
            yield Case(f"edits {name}, {where}", ever(position, play), "error", position + FAILED_EDITS)


def _submissions() -> Iterator[Case]:
    def fresh(number: int, _body: dict[str, Any]) -> Reply:
        return submit(f"fixed, {number}", f"true {number}") if number % 2 else write(f"f{number}.txt", "x\n")

    def words(number: int, _body: dict[str, Any]) -> Reply:
        return submit(f"fixed, I say it for the {number}th time", "true")

    def commands(number: int, _body: dict[str, Any]) -> Reply:
        return submit("fixed", f"true {number}")

    yield Case("the same broken submission", ever(2, always(SUBMIT)), "error", 2 + STUCK, reviews=(REJECTED,))
    yield Case("the same work in other words", ever(2, words), "error", 2 + SUBMISSIONS, reviews=(REJECTED,))
    yield Case("the same work, other reproductions", ever(2, commands), "error", 2 + SUBMISSIONS, reviews=(REJECTED,))
    changed = ever(2, fresh)
    yield Case("work that never passes", changed, "error", 2 + 2 * SUBMISSIONS, reviews=(REJECTED,))
    yield Case("work that is never proved", changed, "error", 2 + 2 * SUBMISSIONS, reviews=(RETURNED,))
    yield Case("reproductions that prove nothing", ever(2, commands), "error", 2 + SUBMISSIONS, reviews=(RETURNED,))
    mixed = (REJECTED, RETURNED) * SUBMISSIONS
    yield Case("work now broken, now not proved", changed, "error", 2 + 2 * SUBMISSIONS, reviews=mixed)
    yield Case("nothing changed, submitted", ever(1, always(SUBMIT)), "no_change", 3)
    yield Case("nothing changed, with looks between", ever(0, in_turn(SUBMIT, LOOK)), "no_change", 3)
    bare = submit("fixed", "")
    yield Case("no reproduction", ever(2, always(bare)), "submitted", 4, reviews=(ACCEPTED,))
    undone = (FIX, SUBMIT, edit("a + b", "a - b"), SUBMIT, SUBMIT)
    yield Case("a rejected change that is taken back", first(undone, always(SUBMIT)), "no_change", 5)


def _floods() -> Iterator[Case]:
    lines = bash("seq 1 40000")
    outputs = {
        "200 KB of lines": lines,
        "200 KB in one line": bash("head -c 200000 /dev/zero | tr '\\0' x"),
        "200 KB of random bytes": bash("head -c 200000 /dev/urandom"),
        "200 KB of the same line": bash("yes the same line | head -n 15000"),
        "200 KB of progress": bash("for i in $(seq 1 6000); do printf '%s%% of all is done now\\r' $i; done"),
        "200 KB of escapes": bash("for i in $(seq 1 9000); do printf '\\033[31m%s\\033[0m\\n' $i; done"),
    }
    for name, reply in outputs.items():
        most = SAME_STUCK if "random" in name else STUCK
        yield Case(f"{name}, once", once(1, reply), "submitted", 6)
        yield Case(f"{name}, for ever", ever(1, always(reply)), "error", 1 + most, says="loop")
    yield Case("16 floods at once", once(1, act(*[("bash", {"command": "seq 1 4000"})] * 16)), "submitted", 6)

    def growing(number: int, _body: dict[str, Any]) -> Reply:
        return write(f"f{number}.txt", f"{number} is a number\n" * (LARGE // 20))

    yield Case("files of 200 KB for ever", ever(1, growing), "limit_reached", 26, budget=Budget(steps=12))
    talk = act(("bash", {"command": "date +%N"}), content="so on and on " * (LARGE // 13))
    yield Case("200 KB of talk with a call", ever(1, always(talk)), "error", 1 + SIMILAR_STUCK)


def _hanging() -> Iterator[Case]:
    hung = {
        "a command that hangs": "sleep 1000",
        "a command that waits for input": "cat /dev/zero > /dev/null",
        "a command that ignores to be ended": "trap '' TERM INT HUP; sleep 1000; sleep 1000",
        "a process left behind": "sleep 1000 & echo begun",
        "a process that left its session": "setsid nohup sleep 1000 > /dev/null 2>&1 & sleep 1000",
    }
    for name, command in hung.items():
        boxed = "session" in name
        reply = bash(command, timeout=1)
        yield Case(f"{name}, once", once(2, reply), "submitted", 6, boxed=boxed)
        yield Case(f"{name}, for ever", ever(1, always(reply)), "error", 1 + STUCK, says="loop", boxed=boxed)
    killed = bash("kill -9 $$")  # with no limit of its own: it is not to be met on a busy machine
    yield Case("a command that kills itself, once", once(2, killed), "submitted", 6)
    yield Case("a command that kills itself, for ever", ever(1, always(killed)), "error", 1 + STUCK, says="loop")
    flood = bash("yes", timeout=1)
    yield Case("output without an end, once", once(2, flood), "submitted", 6, boxed=True)
    yield Case("output without an end, for ever", ever(1, always(flood)), "error", 1 + SAME_STUCK, boxed=True)
