"""Examples in Python: what they import, and that nothing of one remains for the next."""

from app.sandbox.bubblewrap.provider import BubblewrapProvider
from tests.support.examples import ExampleProject, example
from tests.support.sandbox_projects import WITH_PYTEST

CALC = {"calc/__init__.py": "def half(a):\n    return a // 2\n"}
FIX: dict[str, str | bytes | None] = {"calc/__init__.py": "def half(a):\n    return a / 2\n"}


async def test_python_shows_a_fix_and_keeps_the_rest(provider: BubblewrapProvider) -> None:
    shows = example("python", "import calc\nprint(calc.half(3))\n", "1.5\n")
    keeps = example("python", "import calc, sys\nprint(calc.half(0) == 0, sys.argv[1:], input())", "True ['-a b'] in\n")
    keeps = keeps.model_copy(update={"args": ("-a b",), "stdin": "in\n"})
    await ExampleProject(provider, CALC).story(shows, keeps, FIX)


ODD = {
    "src/packaging/__init__.py": "WHERE = 'the project'\n",
    "pyproject.toml": '[project]\nname = "packaging"\nversion = "1"\n',
    **dict.fromkeys(("types.py", "json.py", "email/__init__.py"), "raise SystemExit('the project was asked')\n"),
    **dict.fromkeys(("conftest.py", "sitecustomize.py", "usercustomize.py"), "raise SystemExit('it was loaded')\n"),
    "helpers.py": "import enum, json, email.message\nNAME = __name__\n",
}
PROGRAM = """
    import json, subprocess, sys, types, email
    import multiprocessing
    import packaging, helpers, beside

    def double(value):
        return 2 * value

    if __name__ == "__main__":
        print(packaging.WHERE, helpers.NAME, beside.TEXT, json.dumps({}))
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.map(double, [4]))
        code = "import packaging, types; print(packaging.WHERE)"
        print(subprocess.check_output([sys.executable, "-c", code], text=True, cwd="/").strip())
"""


async def test_python_finds_the_standard_library_then_the_project_then_packages(provider: BubblewrapProvider) -> None:
    printed = "the project helpers beside {}\n[8]\nthe project\n"
    one = example("python", PROGRAM, printed, files={"beside.py": "TEXT = 'beside'\n"})
    none = example("python", "import pluggy; print(pluggy.__name__)", "pluggy\n")
    for runs in await ExampleProject(provider, ODD, setup=WITH_PYTEST).run(one, none):
        assert [run.problem or run.stderr for run in runs] == ["", ""]
        assert {run.stdout for run in runs} <= {printed, "pluggy\n"}


async def test_nothing_of_a_program_remains_for_the_next(provider: BubblewrapProvider) -> None:
    writes = """
        import os, pathlib, beside
        pathlib.Path("left.txt").write_text("x")
        pathlib.Path("new/deep").mkdir(parents=True)
        pathlib.Path("calc/__init__.py").write_text("half = None")
        pathlib.Path("kept.txt").unlink()
        pathlib.Path.home().joinpath("left").touch()
        pathlib.Path(os.environ["TMPDIR"], "left").touch()
        print(beside.VALUE)
    """
    looks = """
        import os, pathlib, beside, calc
        print(sorted(path.name for path in pathlib.Path().iterdir() if path.name not in (".opened", __file__)))
        print(os.listdir(pathlib.Path.home()), os.listdir(os.environ["TMPDIR"]), beside.VALUE, calc.half(2))
        print(pathlib.Path("kept.txt").read_text())
    """
    project = ExampleProject(provider, {**CALC, "kept.txt": "kept"})
    first = example("python", writes, "1\n", files={"beside.py": "VALUE = 1\n"})
    second = example("python", looks, files={"beside.py": "VALUE = 2\n"})
    runs = await project.run(second, first, second)
    assert [run.stdout for run in runs[1]] == ["1\n", "1\n"], runs[1]
    assert [run.stdout for run in runs[0]] == [run.stdout for run in runs[2]]
    assert "[] [] 2 1\nkept\n" in runs[2][0].stdout


async def test_python_runs_that_do_not_end_well(provider: BubblewrapProvider) -> None:
    hangs = example("python", "import sys, time\nprint('begun', flush=True)\ntime.sleep(60)\n")
    fails = example("python", "import calc\nprint(1)\ncalc.third(3)\n")
    leaves = example("python", "import sys\nprint('x' * 100_000)\nsys.exit(3)\n", code=3)
    collides = example("python", "", files={"calc/__init__.py": ""})
    outside = example("python", "", files={"../x.py": ""})
    found = await ExampleProject(provider, CALC).run(hangs, fails, leaves, collides, outside, timeout=2.0)
    assert [(run.timed_out, run.stdout) for run in found[0]] == [(True, "begun\n")] * 2
    assert [(run.exit_code, run.stdout) for run in found[1]] == [(1, "1\n")] * 2
    assert all("AttributeError: module 'calc' has no attribute 'third'" in run.stderr for run in found[1])
    assert [(run.exit_code, len(run.stdout)) for run in found[2]] == [(3, 5_000)] * 2
    assert {run.problem for run in found[3]} == {
        "files: calc/__init__.py is in the project already; choose another name."
    }
    assert {run.problem for run in found[4]} == {"files: '../x.py' is not a path below the project's root."}
