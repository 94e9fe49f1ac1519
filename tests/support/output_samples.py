"""Outputs as programs really write them, and what has to be left of them: for the rules that make outputs small."""

from typing import NamedTuple


class Output(NamedTuple):
    """`kept` are lines that have to be shown; `gone` are parts of lines that must not be."""

    text: str
    kept: tuple[str, ...]
    gone: tuple[str, ...]


_NODE_TAP = "".join(
    f"# Subtest: adds {n}\n"
    f"{'not ok' if n == 7 else 'ok'} {n} - adds {n}\n"
    "  ---\n"
    f"  duration_ms: 0.{n}1\n"
    "  type: 'test'\n"
    + (
        "  location: '/workspace/sum.test.js:12:1'\n  failureType: 'testCodeFailure'\n  error: 'Expected 3, got 4'\n"
        if n == 7
        else ""
    )
    + "  ...\n"
    for n in range(1, 13)
)
_RECURSION = (
    "Traceback (most recent call last):\n"
    + ('  File "/workspace/walk.py", line 4, in walk\n    return walk(node.next)\n' * 30)
    + '  File "/workspace/walk.py", line 3, in walk\n    raise ValueError(node)\nValueError: None\n'
)

OUTPUTS: dict[str, Output] = {
    "pytest -v": Output(
        "============ test session starts ============\ncollected 60 items\n\n"
        + "".join(f"tests/test_money.py::test_adds[{n}] PASSED           [{n:3}%]\n" for n in range(58))
        + "tests/test_money.py::test_rounds FAILED           [ 98%]\n"
        "tests/test_money.py::test_splits SKIPPED (no cents)   [100%]\n\n"
        "=================== FAILURES ===================\n"
        "E       assert 1 == 2\n\ntests/test_money.py:31: AssertionError\n"
        "FAILED tests/test_money.py::test_rounds - assert 1 == 2\n",
        (
            "collected 60 items",
            "(… 58 lines on passing tests)",
            "tests/test_money.py::test_rounds FAILED           [ 98%]",
            "tests/test_money.py::test_splits SKIPPED (no cents)   [100%]",
            "tests/test_money.py:31: AssertionError",
        ),
        ("test_adds",),
    ),
    "pytest, dots": Output(
        "".join(f"tests/test_{n}.py .................... [{n:3}%]\n" for n in range(30))
        + "tests/test_x.py ....F..... [100%]\n",
        ("(… 30 lines on passing tests)", "tests/test_x.py ....F..... [100%]"),
        ("tests/test_3.py",),
    ),
    "unittest -v": Output(
        "".join(f"test_{n} (tests.test_money.MoneyTest.test_{n})\nAdds {n} cents. ... ok\n" for n in range(20))
        + "test_rounds (tests.test_money.MoneyTest.test_rounds)\nRounds half up. ... FAIL\n"
        + "".join(f"test_z{n} (tests.test_money.MoneyTest.test_z{n}) ... ok\n" for n in range(20))
        + "FAIL: test_rounds (tests.test_money.MoneyTest.test_rounds)\n",
        (
            "(… 20 lines on passing tests)",
            "test_rounds (tests.test_money.MoneyTest.test_rounds)",
            "Rounds half up. ... FAIL",
            "FAIL: test_rounds (tests.test_money.MoneyTest.test_rounds)",
        ),
        ("Adds 3 cents", "test_z3"),
    ),
    "jest": Output(
        "PASS src/money.test.ts (5.1 s)\n  Money\n"
        + "".join(f"    ✓ adds {n} ({n} ms)\n" for n in range(20))
        + "    ✕ rounds (3 ms)\n\n  ● Money > rounds\n\n    expect(received).toBe(expected)\n\n"
        "      at Object.<anonymous> (src/money.test.ts:14:20)\n"
        "      at Module._compile (node:internal/modules/cjs/loader:1105:14)\n"
        "      at Object.Module._extensions..js (node:internal/modules/cjs/loader:1159:10)\n"
        "      at Module.load (node:internal/modules/cjs/loader:981:32)\n"
        "      at node:internal/main/run_main_module:22:47\n",
        (
            "(… 20 lines on passing tests)",
            "    ✕ rounds (3 ms)",
            "      at Object.<anonymous> (src/money.test.ts:14:20)",
            "(… 4 frames of the runtime)",
        ),
        ("adds 3", "loader:1159"),
    ),
    "node --test": Output(
        f"TAP version 13\n{_NODE_TAP}1..12\n# fail 1\n",
        (
            "not ok 7 - adds 7",
            "  location: '/workspace/sum.test.js:12:1'",
            "  error: 'Expected 3, got 4'",
            "# fail 1",
        ),
        ("ok 3 - adds 3", "duration_ms: 0.31"),
    ),
    "cargo test": Output(
        "".join(f"   Compiling crate-{n} v1.{n}.0\n" for n in range(20))
        + "running 21 tests\n"
        + "".join(f"test money::tests::adds_{n} ... ok\n" for n in range(20))
        + "test money::tests::rounds ... FAILED\n\n---- money::tests::rounds stdout ----\n"
        "thread 'money::tests::rounds' panicked at src/money.rs:9:5:\n",
        (
            "(… 20 lines of package progress)",
            "(… 20 lines on passing tests)",
            "test money::tests::rounds ... FAILED",
            "thread 'money::tests::rounds' panicked at src/money.rs:9:5:",
        ),
        ("adds_3", "crate-3"),
    ),
    "go test -v": Output(
        "".join(f"=== RUN   TestAdd{n}\n--- PASS: TestAdd{n} (0.00s)\n" for n in range(20))
        + "=== RUN   TestRound\n    money_test.go:31: got 1, want 2\n--- FAIL: TestRound (0.00s)\nFAIL\n"
        + "".join(f"ok  \texample.com/shop/p{n}\t0.01{n}s\n" for n in range(9)),
        (
            "    money_test.go:31: got 1, want 2",
            "--- FAIL: TestRound (0.00s)",
            "(… 9 lines on passing tests)",
        ),
        ("TestAdd3", "shop/p3"),
    ),
    "pip install": Output(
        "".join(
            f"Collecting package-{n}==1.{n}\n  Downloading package_{n}-1.{n}-py3-none-any.whl (12 kB)\n"
            "     ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 12.0/12.0 kB 1.2 MB/s eta 0:00:00\n"
            for n in range(12)
        )
        + "ERROR: Could not find a version that satisfies the requirement nowhere\n",
        (
            "(… 36 lines of package progress)",
            "ERROR: Could not find a version that satisfies the requirement nowhere",
        ),
        ("package-3", "━━━"),
    ),
    "npm install": Output(
        "".join(f"npm warn deprecated left-pad@1.{n}.0: use String.prototype.padStart()\n" for n in range(9))
        + "npm http fetch GET 200 a\n\nadded 312 packages in 9s\nnpm error code ERESOLVE\n",
        ("(… 10 lines of package progress)", "added 312 packages in 9s", "npm error code ERESOLVE"),
        ("left-pad",),
    ),
    "webpack": Output(
        "".join(f"<s> [webpack.Progress] {n}% building {n}/400 modules\n" for n in range(90))
        + "ERROR in ./src/index.js 3:0-22\nModule not found: Error: Can't resolve './money'\n",
        ("(… 90 lines of package progress)", "ERROR in ./src/index.js 3:0-22"),
        ("30% building",),
    ),
    "a bar that is written anew": Output(
        "Fetching\n" + "\r".join(f"{n:3}% [{'=' * (n // 5):<20}]" for n in range(101)) + "\ndone\n",
        ("100% [====================]", "done"),
        (" 50%",),
    ),
    "percents line by line": Output(
        "".join(f"Epoch progress: {n}% done, {n}/200 batches\n" for n in range(200)) + "loss is nan\n",
        (
            "Epoch progress: 0% done, 0/200 batches",
            "(… 198 lines like these, but for the numbers)",
            "Epoch progress: 199% done, 199/200 batches",
            "loss is nan",
        ),
        (" 77%",),
    ),
    "a recursion": Output(
        _RECURSION,
        ("(… the 2 lines above 30 times)", "    raise ValueError(node)", "ValueError: None"),
        (),
    ),
    "a recursion between two functions in JavaScript": Output(
        "RangeError: Maximum call stack size exceeded\n"
        + "    at even (/workspace/n.js:2:10)\n    at odd (/workspace/n.js:6:10)\n" * 40,
        ("RangeError: Maximum call stack size exceeded", "(… the 2 lines above 40 times)"),
        (),
    ),
    "a listing of caches": Output(
        "./app/money.py\n"
        + "".join(f"./app/__pycache__/m{n}.cpython-311.pyc\n" for n in range(30))
        + "./.git/objects/ab/c\n./README.md\n",
        ("./app/money.py", "(… 31 paths in caches)", "./README.md"),
        ("m3.cpython",),
    ),
    "a listing of what is installed": Output(
        "".join(f"./node_modules/left-pad/f{n}.js\n" for n in range(300)) + "./src/index.js\n",
        ("(… 300 paths of installed packages)", "./src/index.js"),
        ("f3.js",),
    ),
    "a warning again and again, in colours": Output(
        "\x1b[33mwarning: slow path\x1b[0m\n" * 80 + "\x1b[31merror: stop\x1b[0m\n",
        ("warning: slow path", "(… the line above 80 times)", "error: stop"),
        ("\x1b",),
    ),
}

LEFT_ALONE: dict[str, str] = {
    "numbers in columns": "".join(f"{n} {n * n} {n * n * n}\n" for n in range(60)),
    "lines of a diff": "".join(f"-    total += {n}\n+    total -= {n}\n" for n in range(30)),
    "places found": "".join(f"app/money_{n}.py:{n}: split(total)\n" for n in range(60)),
    "a few files of a package": "".join(f".venv/lib/python3.11/site-packages/x/f{n}.py\n" for n in range(9)),
    "a list of Markdown": "".join(f"- item {n}\n  ---\n" for n in range(4)),
    "three frames": '  File "a.py", line 1, in f\n    g()\n  File "b.py", line 2, in g\n    raise E\n',
}
