"""Label, draft, comment, commit, close: the Action's own steps do the work, and what was made is told and removed."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.live.person import Person, Refused
from tests.support.sample_project import ISSUE, PROJECT

ENDING_SECONDS = 60
STEP_SECONDS = 900
HARMLESS = ("README", "LICENSE", ".gitignore", ".gitattributes", ".github")
"""Names in a repository that may be called scratch begin so."""
LABELS = ("agent-fix", "agent-in-progress", "agent-done", "agent-needs-human")
KEPT = ("PATH", "HOME", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTPS_PROXY", "https_proxy", "AGENT_FIX_SANDBOX")


class Wrong(Exception):  # noqa: N818  # an outcome
    """GitHub, or we, did something else than the story says."""


@dataclass
class Story:
    """`worker` is what agent-fix works as: an App's number and key, or a token of another account."""

    person: Person
    repository: str
    api: str
    site: str
    worker: Mapping[str, str]
    model_keys: str
    removals: list[tuple[str, Callable[[], object]]] = field(default_factory=list)

    def tell(self) -> None:
        """The whole story. What it made stands in `removals` as soon as it may be there."""
        facts = self.person.ask("GET")
        self._is_scratch()
        self._say(f"{self.repository}: {'private' if facts['private'] else 'public'}, asked as {self._login}")
        self._examine()
        self._push_project(facts["default_branch"])
        self._note_labels()
        number = self._open_issue()
        self._labelled(number)
        pull = self._draft(number)
        self._comment(pull)
        self._close(pull)

    def remove(self) -> bool:
        """Take back what was made, the newest first; whether all of it is gone."""
        gone = True
        while self.removals:
            what, undo = self.removals.pop()
            try:
                undo()
                self._say(f"removed: {what}")
            except (Refused, OSError, subprocess.SubprocessError) as error:
                gone = False
                self._say(f"NOT removed: {what}: {error}")
        return gone

    # The parts of the story, in order

    def _is_scratch(self) -> None:
        """Nothing that somebody works on is pushed over."""
        found = [each["name"] for each in self.person.ask("GET", "/contents")]
        if others := [name for name in found if not name.startswith(HARMLESS)]:
            told = ", ".join(sorted(others)[:5])
            raise Wrong(f"{self.repository} is no scratch repository: it has {told}. Name one with a README only.")

    def _examine(self) -> None:
        words = [sys.executable, "-I", "-m", "app", "doctor", "--github", self.repository]
        done = self._started(words, {**self._place, **self.worker})
        self._say(done.stdout.rstrip())

    def _push_project(self, branch: str) -> None:
        before, now = self.person.push(branch, PROJECT)
        self._made(f"a commit on {branch}", lambda: self.person.reset(branch, now, before))

    def _note_labels(self) -> None:
        before = {each["name"] for each in self.person.ask("GET", "/labels?per_page=100")}

        def delete() -> None:
            now = {each["name"] for each in self.person.ask("GET", "/labels?per_page=100")}
            for name in set(LABELS) & now - before:
                self.person.ask("DELETE", f"/labels/{name}")

        self.removals.append(("the labels that were not there before", delete))

    def _open_issue(self) -> int:
        issue = self.person.ask("POST", "/issues", title="half loses a cent", body=ISSUE)
        number = int(issue["number"])
        self._made(f"issue #{number} (GitHub keeps it, closed)", lambda: self._turn_off("issues", number))
        self.removals.append((f"branches and pull requests of #{number}", lambda: self._remove_work(number)))
        return number

    def _labelled(self, number: int) -> None:
        self.person.ask("POST", f"/issues/{number}/labels", labels=["agent-fix"])
        issue, label = self.person.ask("GET", f"/issues/{number}"), {"name": "agent-fix"}
        self._work("issues", {"action": "labeled", "issue": issue, "label": label})

    def _draft(self, number: int) -> dict[str, Any]:
        pulls = [each for each in self._pulls(number) if each["state"] == "open"]
        self._check(len(pulls) == 1, f"one pull request for #{number}, not {len(pulls)}")
        pull: dict[str, Any] = pulls[0]
        self._say(f"made: pull request #{pull['number']} on {pull['head']['ref']} (GitHub keeps it, closed)")
        self._check(pull["draft"] or pull["title"].startswith("Draft:"), "the pull request is a draft")
        self._check(f"Fixes #{number}" in pull["body"], "its text closes the issue")
        self._check("Verification" in pull["body"], "its text has the verification")
        labels = {each["name"] for each in self.person.ask("GET", f"/issues/{number}/labels")}
        self._check("agent-fix" not in labels and "agent-done" in labels, f"the labels of #{number} are told")
        said = self.person.ask("GET", f"/issues/{number}/comments")
        theirs = [each for each in said if each["user"]["id"] != self.person.account["id"]]
        self._check(len(said) == len(theirs) == 1, "one status comment of the bot")
        return pull

    def _comment(self, pull: Mapping[str, Any]) -> None:
        number, words = pull["number"], "/agent use a named constant for the divisor"
        comment = self.person.ask("POST", f"/issues/{number}/comments", body=words)
        self._say(f"made: a comment on #{number}: {words}")
        issue = self.person.ask("GET", f"/issues/{number}")
        self._work("issue_comment", {"action": "created", "issue": issue, "comment": comment})
        now = self.person.ask("GET", f"/pulls/{number}")
        self._check(now["head"]["sha"] != pull["head"]["sha"], "a second commit on the branch")
        commit = self.person.ask("GET", f"/commits/{now['head']['sha']}")
        self._check(commit["parents"][0]["sha"] == pull["head"]["sha"], "it is on top of the first")

    def _close(self, pull: Mapping[str, Any]) -> None:
        self._turn_off("pulls", pull["number"])
        state = self.person.ask("GET", f"/pulls/{pull['number']}")["state"]
        self._check(state == "closed", "the pull request is closed")

    # What they are made of

    @property
    def _login(self) -> str:
        return str(self.person.account["login"])

    @property
    def _place(self) -> dict[str, str]:
        known = {name: os.environ[name] for name in KEPT if name in os.environ}
        return {**known, "AGENT_FIX_GITHUB_API_URL": self.api, "AGENT_FIX_GITHUB_URL": self.site}

    def _work(self, event: str, payload: Mapping[str, Any]) -> None:
        """The Action's steps on this event, each with what it may hold, as `action.yml` starts them."""
        whole = {**payload, "repository": self.person.ask("GET"), "sender": self.person.account}
        with tempfile.TemporaryDirectory(prefix="agent-fix-live-") as directory:
            place = Path(directory)
            (place / "event.json").write_text(json.dumps(whole))
            common = {
                **self._place,
                "RUNNER_TEMP": directory,
                "GITHUB_OUTPUT": str(place / "output"),
                "GITHUB_REPOSITORY": self.repository,
                "GITHUB_EVENT_NAME": event,
                "GITHUB_EVENT_PATH": str(place / "event.json"),
                "GITHUB_SERVER_URL": self.site,
                "GITHUB_API_URL": self.api,
                "AGENT_FIX_MODEL": "openai/mind",
            }
            self._step("receive", {**common, "AGENT_FIX_GITHUB_TOKEN": "none", **self.worker})
            if "\ntrue\n" not in (place / "output").read_text().partition("work<<")[2].partition("job<<")[0]:
                raise Wrong(f"nothing was begun for {event}: what agent-fix works as has to be another account")
            solved = self._step("solve", {**common, "AGENT_FIX_MODEL_KEYS": self.model_keys})
            ended = {"AGENT_FIX_SOLVED": "failure" if solved else "success", "AGENT_FIX_GITHUB_TOKEN": "none"}
            self._check(self._step("publish", {**common, **ended, **self.worker}) == 0, f"{event} was worked on")

    def _step(self, name: str, environment: Mapping[str, str]) -> int:
        done = self._started([sys.executable, "-I", "-m", "app", "action", name], environment)
        shown = [line for line in done.stdout.splitlines() if line.strip() and not line.startswith("::")]
        self._say(f"  {name}: {shown[-1] if shown else done.stderr.strip()[-300:]}")
        return done.returncode

    def _started(self, words: list[str], environment: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
        with subprocess.Popen(
            words,
            env=dict(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, errors = process.communicate(timeout=STEP_SECONDS)
            finally:  # nothing that it started may still write when its directory is removed
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGINT)
                    self._wait_or_kill(process)
        return subprocess.CompletedProcess(words, process.returncode, output, errors)

    def _wait_or_kill(self, process: "subprocess.Popen[str]") -> None:
        try:
            process.communicate(timeout=ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)

    def _pulls(self, number: int) -> list[dict[str, Any]]:
        found = self.person.ask("GET", "/pulls?state=all&per_page=100")
        return [each for each in found if each["head"]["ref"].startswith(f"agent-fix/issue-{number}-")]

    def _remove_work(self, number: int) -> None:
        for pull in self._pulls(number):
            self._turn_off("pulls", pull["number"])
        for ref in self.person.ask("GET", f"/git/matching-refs/heads/agent-fix/issue-{number}-"):
            self.person.delete_branch(ref["ref"].removeprefix("refs/heads/"))

    def _turn_off(self, kind: str, number: int) -> None:
        self.person.ask("PATCH", f"/{kind}/{number}", state="closed")

    def _made(self, what: str, undo: Callable[[], object]) -> None:
        self.removals.append((what, undo))
        self._say(f"made: {what}")

    def _check(self, holds: bool, what: str) -> None:
        if not holds:
            raise Wrong(f"not so: {what}")
        self._say(f"ok: {what}")

    def _say(self, words: str) -> None:
        print(words, flush=True)


@contextmanager
def removed_afterwards(story: Story, hold_off: Callable[[], object]) -> Iterator[None]:
    """Whatever happens; `hold_off` keeps further interruptions away meanwhile."""
    try:
        yield
    finally:
        with suppress(ValueError):  # not in the main thread
            hold_off()
        if not story.remove():
            print("Remove what is left by hand.", flush=True)
