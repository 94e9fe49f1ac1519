"""Projects that do not behave: a set-up that fails, tests that hang or never stop talking, no tests at all."""

from pathlib import Path

from app.config.repository import SOURCE
from tests.support import wallet_project
from tests.support.console import Console, branches
from tests.support.openai_endpoint import OpenAIEndpoint, answer
from tests.support.recorded_answers import RecordedAnswers, bash, write
from tests.support.repositories import git, make_repository, snapshot

SIXTY_KILOBYTES = 60_000


def test_a_set_up_that_fails_shows_the_end_of_its_output(console: Console, tmp_path: Path) -> None:
    noise = "printf 'a line\\n%.0s' $(seq 5000); printf '\\033[31mcompiler\\033[0m exploded\\n' >&2; exit 3"
    repository = make_repository(tmp_path / "wallet", {SOURCE: f'setup: "{_quoted(noise)}"\n'})
    before = snapshot(repository)
    finished = console.fix(repository, wallet_project.ISSUE, recording=wallet_project.mended())
    assert finished.code == 8, finished.said
    assert "ended with exit code 3" in finished.said
    assert "compiler exploded" in finished.said
    assert "\x1b" not in finished.said
    assert "`setup:` in .github/agent-fix.yml" in finished.said
    assert len(finished.said) < 10_000
    assert finished.job["exit_status"] == "error"
    assert snapshot(repository) == before


def test_a_set_up_that_asks_another_host_is_told_how_to_allow_it(console: Console, tmp_path: Path) -> None:
    fetch = "python3 -c 'import urllib.request as u; u.urlopen(\\\"https://elsewhere.example.com/\\\")'"
    repository = make_repository(tmp_path / "wallet", {SOURCE: f'setup: "{fetch}"\n'})
    before = snapshot(repository)
    finished = console.fix(repository, wallet_project.ISSUE, recording=wallet_project.mended())
    assert finished.code == 8, finished.said
    assert "refused: elsewhere.example.com (allow with `network:` in .github/agent-fix.yml)" in " ".join(
        finished.said.split()
    )
    assert "  | urllib.error.URLError: " in finished.stdout, "the output's end, line by line"
    assert snapshot(repository) == before


def _quoted(command: str) -> str:
    return command.replace("\\", "\\\\").replace('"', '\\"')


def test_tests_that_hang_are_stopped_and_the_nearest_still_run(console: Console, tmp_path: Path) -> None:
    hanging = (
        "import time, unittest\n\n\nclass Hangs(unittest.TestCase):\n    def test_a(self):\n        time.sleep(3600)\n"
    )
    repository = wallet_project.make_wallet(tmp_path / "wallet", {"tests/test_a_radio.py": hanging})
    finished = console.fix(repository, wallet_project.ISSUE, "--max-minutes", "0.6", recording=wallet_project.mended())
    assert finished.code == 0, finished.said
    assert "stopped at its limit of 9 s" in finished.stdout
    suite = finished.verification["suite"]
    assert "does not finish within 9 s" in suite["head"]["partial"]
    assert "the nearest to the change first" in suite["head"]["partial"]
    assert "2 tests had finished by then; the others were not run" in suite["head"]["partial"]
    assert (suite["base"]["count"]["passed"], suite["head"]["count"]["passed"]) == (2, 2)
    assert "does not finish within 9 s" in finished.pull_request


def test_tests_that_print_200_megabytes_do_no_harm(console: Console, tmp_path: Path) -> None:
    loud = (
        "import sys, unittest\n\n\nclass Loud(unittest.TestCase):\n    def test_loud(self):\n"
        "        for _ in range(200):\n            sys.stdout.write(('x' * 999 + '\\n') * 1000)\n"
    )
    repository = wallet_project.make_wallet(tmp_path / "wallet", {"tests/test_loud.py": loud})
    recording = wallet_project.planned().turn("All tests.", bash("python3 -m unittest tests.test_loud"))
    recording.turn("Mend it.", wallet_project.FIX, wallet_project.ADD_TEST).submit(
        wallet_project.SUMMARY, wallet_project.REPRODUCTION
    )
    finished = console.fix(repository, wallet_project.ISSUE, recording=recording)
    assert finished.code == 0, finished.said
    # results of single tests are not read from 200 megabytes of their output
    assert (finished.verification["verdict"], finished.verification["rules"]) == ("tested", ["suite_by_exit_code"])
    assert len(finished.observation(1)) < 11_000
    assert len(finished.said) < SIXTY_KILOBYTES
    assert all(path.stat().st_size < SIXTY_KILOBYTES for path in console.out.iterdir())
    kept = sum(path.stat().st_size for path in console.state.rglob("*") if path.is_file())
    assert kept < 20_000_000


BARE = {"greet.py": 'def greet(name):\n    return "Hello " + nmae\n'}
BARE_ISSUE = "# greet fails\n\n`greet('Ada')` raises NameError instead of saying hello.\n"
SAMPLE_HEAD = "import unittest\n\nfrom greet import greet\n\n\nclass Greets(unittest.TestCase):\n"
SAMPLE_TEST = f"{SAMPLE_HEAD}    def test_greets(self):\n        self.assertEqual(greet('Ada'), 'Hello Ada')\n"


def _without_tests(path: Path) -> Path:
    repository = wallet_project.make_wallet(path)
    git(repository, "rm", "-rq", ".")
    for name, text in BARE.items():
        (repository / name).write_text(text)
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "no tests")
    return repository


def _sample_answers() -> RecordedAnswers:
    return RecordedAnswers().plan().turn("Mend it.", write("greet.py", BARE["greet.py"].replace("nmae", "name")))


def test_without_any_tests_red_and_green_alone_are_not_called_proof(console: Console, tmp_path: Path) -> None:
    repository = _without_tests(tmp_path / "greet")
    recording = _sample_answers().turn("A test.", write("test_greet.py", SAMPLE_TEST))
    recording.submit("A misspelt name.", "python3 -m unittest test_greet").submit("The same.", "python3 -m unittest")
    finished = console.fix(repository, BARE_ISSUE, recording=recording)
    assert finished.code == 0, finished.said
    assert finished.verification["verdict"] == "tested"
    assert "No test command was found in the repository." in finished.stdout
    assert "No test command was found in the repository." in finished.pull_request
    assert finished.verification["reproduction"]["on_base"] == "red"


def test_with_nothing_to_show_the_verdict_is_unproved(console: Console, tmp_path: Path) -> None:
    repository = _without_tests(tmp_path / "greet")
    recording = _sample_answers().submit("A misspelt name.").submit("It cannot be shown.").submit("Really not.")
    finished = console.fix(repository, BARE_ISSUE, recording=recording)
    assert finished.code == 20, finished.said
    assert finished.verification["verdict"] == "unproved"
    assert "there is no reproduction" in finished.observation(2), "it is asked for once"
    assert "**Unproved.**" in finished.pull_request
    assert branches(repository) == ["agent-fix/greet-fails", "main"]


def test_a_missing_sandbox_is_named_wherever_the_result_is_shown(console: Console, tmp_path: Path) -> None:
    repository = wallet_project.make_wallet(tmp_path / "wallet")
    finished = console.fix(repository, wallet_project.ISSUE, "--sandbox", "none", recording=wallet_project.mended())
    assert finished.code == 0, finished.said
    assert (
        "warning  no sandbox: the repository's code and the model's commands run on this machine with your permissions"
        in finished.stdout
    )
    assert "**No sandbox.**" in finished.pull_request
    assert "/workspace" in finished.pull_request
    assert str(tmp_path) not in finished.pull_request
    assert finished.verification["isolated"] is False
    assert finished.job["warnings"]


def test_a_model_whose_answers_are_filtered_ends_the_job(console: Console, tmp_path: Path) -> None:
    repository = wallet_project.make_wallet(tmp_path / "wallet")
    before = snapshot(repository)
    filtered = answer("I can", finish="content_filter")
    with OpenAIEndpoint([filtered] * 3) as endpoint:
        console.environment |= {"OPENAI_API_KEY": "not-a-key", "OPENAI_API_BASE": endpoint.url}
        finished = console.fix(repository, wallet_project.ISSUE, "--model", "openai/gpt-4o", "--no-plan")
        asked = len(endpoint.requests)
    assert finished.code == 7, finished.said
    assert "content filter stopped the answer" in finished.stdout
    assert asked == 2, "once more, in other words, and no more"
    assert finished.job["exit_status"] == "error"
    assert snapshot(repository) == before
