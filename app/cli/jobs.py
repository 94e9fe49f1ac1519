"""`agent-fix jobs`: lists jobs, follows their logs, and stops them; with --server those of a server, over its API."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict

import httpx

from app.cli.local_context import LocalContext
from app.cli.result_screen import local_condition, local_state
from app.config.roles import API_TOKEN
from app.config.settings import read_settings
from app.core.errors import AgentFixError, ExitCode
from app.core.model_usage import MicroUSD, usd
from app.core.state_words import WORDS, StateWords
from app.core.text import count, one_line, plain
from app.jobs.store import JobRow
from app.llm.ledger import price
from app.server.terminal import CANCELLED, TerminalProgress, end_process

REMOTE_ONLY = ("start", "plan", "approve", "answer", "continue", "retry")
"""Actions on jobs that wait for people, or that only a server can start."""
POLL_SECONDS = 0.3
CANCEL_SECONDS = 15.0
"""How long `cancel` waits for the process that works on the job."""
BEGINNING_SECONDS = 60.0
"""How long a new job may be without a process before `logs -f` takes that for dead."""
_SECONDS = httpx.Timeout(30.0)
_STREAM_SECONDS = httpx.Timeout(30.0, read=90.0)
_NEEDED = {"worker": "for a worker", "pull_requests": "until a pull request is merged or closed"}


def jobs_command(arguments: argparse.Namespace) -> int:
    if arguments.action in REMOTE_ONLY and not arguments.server:
        hint = "Pass it the address of the server: `agent-fix jobs --server URL …`."
        raise AgentFixError(f"`jobs {arguments.action}` works with a server.", code=ExitCode.USAGE, hint=hint)
    actions: dict[str, Callable[[LocalContext, argparse.Namespace], int]] = {
        "show": _show,
        "logs": _logs,
        "watch": _watch,
        "cancel": _cancel,
    }
    try:
        if arguments.server:
            code = _on_server(arguments)
        else:
            code = actions.get(arguments.action, _list)(LocalContext(read_settings(arguments.state)), arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        end_process(ExitCode.OK)  # the reader (`| head`) has seen enough
    return code


def _list(local_context: LocalContext, arguments: argparse.Namespace) -> int:
    rows = sorted(local_context.store.newest(getattr(arguments, "n", 20)), key=lambda row: not _words(row).needs_you)
    if arguments.json:
        print(json.dumps([_summary(local_context, row) for row in rows], indent=2))
        return ExitCode.OK
    if not rows:
        print("No jobs yet. `agent-fix fix --repo PATH --issue FILE` starts one.")
        return ExitCode.OK
    print(f"{'JOB':<14}{'STATE':<26}{'AGE':<8}{'VERDICT':<10}{'COST':<15}TITLE")
    now = datetime.now(UTC)
    for row in rows:
        summary = _summary(local_context, row)
        title = row.job.task.issue.title[:60]
        state, verdict = _shown_state(row), summary["verdict"] or "-"
        cost = price(local_context.totals(row.job.id))
        print(f"{row.job.id:<14}{state:<26}{_age(row.job.created_at, now):<8}{verdict:<10}{cost:<15}{title}")
    return ExitCode.OK


def _show(local_context: LocalContext, arguments: argparse.Namespace) -> int:
    row = local_context.store.find(arguments.job)
    if arguments.patch:
        digest = (row.result or {}).get("diff")
        if not digest:
            print(f"Job {row.job.id} has no change.", file=sys.stderr)
            return ExitCode.NO_CHANGE
        _print_patch(local_context.blob(row.job.id, digest))
        return ExitCode.OK
    log = list(local_context.store.progress_since(row.job.id))
    plan = next((line.text for line in reversed(log) if line.kind == "plan"), None)
    steps = list(dict.fromkeys(line.text.splitlines()[0] for line in log if line.kind == "step"))
    if arguments.json:
        details = {"task": row.job.task.model_dump(mode="json"), "budget": row.job.budget.model_dump(mode="json")}
        progress = {"model": row.job.model, "attempts": row.epoch, "plan": plan, "steps": steps, "result": row.result}
        print(json.dumps({**_summary(local_context, row), **details, **progress}, indent=2))
        return ExitCode.OK
    for name, value in _facts(local_context, row).items():
        print(f"{name:<11}{value}")
    if plan:
        print(f"\nplan\n{plan}")
    print(f"\nsteps ({len(steps)})")
    for text in steps:
        print(f"  {text}")
    return ExitCode.OK


def _facts(local_context: LocalContext, row: JobRow) -> dict[str, str]:
    job, summary, totals = row.job, _summary(local_context, row), local_context.totals(row.job.id)
    return {
        "job": job.id,
        "issue": job.task.issue.title,
        "repository": job.task.repository,
        "base": f"{job.task.base_ref} ({job.task.base[:10]})",
        "branch": summary["branch"] or "-",
        "model": job.model_text,
        "runner": job.runner,
        "state": _shown_state(row) + (f": {row.reason}" if row.reason else ""),
        "verdict": summary["verdict"] or "-",
        "cost": f"{price(totals)} of {usd(job.budget.usd)} in {count(totals.calls, 'model call')}",
        "begun": f"{job.created_at:%Y-%m-%d %H:%M:%S} UTC, started {count(row.epoch, 'time')}",
    }


def _logs(local_context: LocalContext, arguments: argparse.Namespace) -> int:
    row = local_context.store.find(arguments.job)
    terminal = TerminalProgress(sys.stdout)
    last_seq = 0
    while True:
        # The state is read before the log, so that no line written before the job's end is missed.
        row = local_context.store.find(row.job.id)
        for line in local_context.store.progress_since(row.job.id, after=last_seq):
            at = line.at.replace(tzinfo=UTC)
            if arguments.json:
                print(json.dumps({"at": at.isoformat(), "kind": line.kind, "text": line.text}), flush=True)
            else:
                terminal.stamp = f"{at.astimezone():%H:%M:%S} "
                terminal.report(line.kind, line.text)
            last_seq = line.seq
        if not arguments.follow or terminal.closed or _is_over(row):
            _print_state(local_context, row, as_json=arguments.json)
            return ExitCode.OK
        time.sleep(POLL_SECONDS)


def _watch(local_context: LocalContext, arguments: argparse.Namespace) -> int:
    arguments.job = arguments.job or next((row.job.id for row in local_context.store.newest(1)), "")
    arguments.follow = True
    return _logs(local_context, arguments)


def _print_state(local_context: LocalContext, row: JobRow, *, as_json: bool) -> None:
    """The state in which the log was read, and the reason for it."""
    summary = _summary(local_context, row)
    if as_json:
        print(json.dumps({"state": summary["state"], "reason": row.reason, "verdict": summary["verdict"]}))
        return
    verdict = f", {summary['verdict']}" if summary["verdict"] else ""
    print(plain(f"{_shown_state(row)}{verdict}{f': {row.reason}' if row.reason else ''}"))


def _is_over(row: JobRow) -> bool:
    """True if the log is complete, unless the command is given again."""
    beginning = row.state == "queued" and (datetime.now(UTC) - row.job.created_at).total_seconds() < BEGINNING_SECONDS
    return row.final or (row.live_owner is None and not beginning)


def _cancel(local_context: LocalContext, arguments: argparse.Namespace) -> int:
    row = local_context.store.find(arguments.job)
    resting = row.rest_pending and row.live_owner is not None
    if row.final and not resting:
        _answer(arguments, row, f"Job {row.job.id} has already ended: {_words(row).name}.")
        return ExitCode.OK
    local_context.store.request_stop(row.job.id)
    row = _when_left(local_context, row)
    if row.live_owner is not None:
        _answer(arguments, row, f"Job {row.job.id} was asked to stop; its process has not responded yet.")
        return ExitCode.OK
    if resting:
        _answer(arguments, row, f"The remaining tests of job {row.job.id} are stopped; branch and verdict stay.")
        return ExitCode.OK
    perhaps = f" Its branch {row.job.branch} may already exist." if row.state == "publishing" else ""
    if perhaps:
        local_context.store.enter(row.job.id, "stopped", CANCELLED)
    local_context.store.stop(row.job.id, CANCELLED)
    local_context.sweep()
    row = local_context.store.find(row.job.id)
    ended = "is stopped" if row.state == "stopped" else f"had already ended: {_words(row).name}"
    _answer(arguments, row, f"Job {row.job.id} {ended}.{perhaps}")
    return ExitCode.OK


def _answer(arguments: argparse.Namespace, row: JobRow, sentence: str) -> None:
    """What became of a request, as a sentence or as JSON."""
    document = {"job": row.job.id, "state": local_state(row.state), "reason": row.reason, "message": sentence}
    print(json.dumps(document, indent=2) if arguments.json else sentence)


def _when_left(local_context: LocalContext, row: JobRow) -> JobRow:
    """The job once no process works on it, or its current state after a while."""
    deadline = time.monotonic() + CANCEL_SECONDS
    while row.live_owner is not None and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        row = local_context.store.find(row.job.id)
    return row


class JobSummaryJson(TypedDict):
    """A job in a list. `cost` is in micro-dollars."""

    job: str
    title: str
    state: str
    reason: str
    verdict: str | None
    branch: str | None
    cost: MicroUSD
    created_at: str


def _words(row: JobRow) -> StateWords:
    return WORDS[local_condition(row.job, row.state)]


def _interrupted(row: JobRow) -> bool:
    """True for a job whose process died, as opposed to one in progress."""
    return not row.final and row.live_owner is None and row.state not in {"paused", "awaiting_approval"}


def _shown_state(row: JobRow) -> str:
    name = _words(row).name
    return f"{name} (interrupted)" if _interrupted(row) else name


def _summary(local_context: LocalContext, row: JobRow) -> JobSummaryJson:
    result, state = row.result or {}, local_state(row.state)
    return {
        "job": row.job.id,
        "title": row.job.task.issue.title,
        "state": f"{state} (interrupted)" if _interrupted(row) else state,
        "reason": row.reason,
        "verdict": (result.get("verification") or {}).get("verdict"),
        "branch": result.get("branch") or None,
        "cost": local_context.totals(row.job.id).cost,
        "created_at": row.job.created_at.isoformat(),
    }


def _age(since: datetime, now: datetime) -> str:
    seconds = int((now - since).total_seconds())
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _print_patch(diff: bytes) -> None:
    """A job's change as a diff for `git apply`, published or not."""
    if sys.stdout.isatty():  # raw bytes of a change could control the terminal
        print(plain(diff.decode("utf-8", "replace")))
    else:
        sys.stdout.buffer.write(diff)


def _on_server(arguments: argparse.Namespace) -> int:
    token = read_settings(arguments.state).api_token
    if not token:
        raise AgentFixError(
            f"{API_TOKEN} is not set.",
            code=ExitCode.USAGE,
            hint="Set it to the server's AGENT_FIX_WEB_TOKEN, or to a key that `agent-fix keys create` made.",
        )
    headers = {"authorization": f"Bearer {token}"}
    try:
        with httpx.Client(base_url=arguments.server.rstrip("/"), headers=headers, timeout=_SECONDS) as client:
            ServerJobs(client).carry_out(arguments)
            return ExitCode.OK
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, httpx.InvalidURL) as error:
        raise AgentFixError(
            f"The server at {plain(arguments.server)} did not answer like the agent-fix API.",
            code=ExitCode.USAGE,
            hint=f"Check the address after --server. ({type(error).__name__}: {one_line(str(error))[:200]})",
        ) from error


class ServerJobs:
    """The same for the jobs of a server, over its API; each action prints what became of it."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def carry_out(self, arguments: argparse.Namespace) -> None:
        """The requested action, by default the list of jobs."""
        if getattr(arguments, "job", None):
            arguments.job = self._find(arguments.job)
        actions = {
            "show": self._show,
            "logs": self._logs,
            "watch": self._watch,
            "cancel": self._cancel,
            "start": self._start,
            "plan": self._plan,
            "approve": self._approve,
            "answer": self._answer,
            "continue": self._continue,
            "retry": self._retry,
        }
        actions.get(arguments.action or "", self._list)(arguments)

    def _call(self, method: str, path: str, body: object = None, **query: str | int) -> Any:
        """The answer's JSON."""
        return self._request(method, path, json=body, params=query).json()

    def _request(self, method: str, path: str, **content: Any) -> httpx.Response:
        """Raises AgentFixError with the problem that the server names."""
        try:
            answer = self._client.request(method, f"/api/jobs{path}", **content)
        except httpx.HTTPError as error:
            raise _unreachable(self._client, error) from None
        _check(answer)
        return answer

    def _events_since(self, job: str, offset: int) -> Iterator[tuple[str, int, dict[str, Any]]]:
        """The events of a job from an offset until the stream ends: name, offset and data."""
        try:
            with self._client.stream(
                "GET", f"/api/jobs/{job}/events", params={"offset": offset}, timeout=_STREAM_SECONDS
            ) as answer:
                if answer.status_code != 200:
                    answer.read()
                _check(answer)
                yield from _parse_events(answer.iter_lines())
        except httpx.HTTPError as error:
            raise _unreachable(self._client, error) from None

    def _find(self, prefix: str) -> str:
        """The id of the one job that begins so, among the newest."""
        listed = self._call("GET", "", limit=200)["jobs"]
        ids = [job["id"] for job in listed if job["id"].startswith(prefix)]
        if len(ids) > 1 and prefix not in ids:
            raise AgentFixError(f"Several jobs have an id that begins with {prefix!r}.", code=ExitCode.USAGE)
        return prefix if prefix in ids or not ids else ids[0]

    def _list(self, arguments: argparse.Namespace) -> None:
        listed = self._call("GET", "", limit=getattr(arguments, "n", 20))["jobs"]
        if arguments.json:
            print(json.dumps(listed, indent=2))
            return
        if not listed:
            print("No jobs yet. `agent-fix jobs --server URL start OWNER/NAME#N` starts one.")
            return
        listed.sort(key=lambda job: not job["needs_you"])
        print(f"{'JOB':<14}{'STATE':<22}{'AGE':<8}{'VERDICT':<10}{'COST':<9}{'REPOSITORY':<28}TITLE")
        for job in listed:
            where = f"{job['repository']}#{job['number']}" if job["number"] else job["repository"]
            since = _age(datetime.fromisoformat(job["created_at"]), datetime.now(UTC))
            cost, verdict = f"${float(job['cost']):.2f}" if float(job["cost"]) else "-", job["verdict"] or "-"
            line = f"{job['id']:<14}{job['status']:<22}{since:<8}{verdict:<10}{cost:<9}{where:<28}{job['title'][:60]}"
            print(plain(line))

    def _show(self, arguments: argparse.Namespace) -> None:
        if arguments.patch:
            sys.stdout.flush()
            _print_patch(self._request("GET", f"/{arguments.job}/patch").content)
            return
        job = self._call("GET", f"/{arguments.job}")
        if arguments.json:
            print(json.dumps(job, indent=2))
            return
        waiting = job["queue"]
        facts = {
            "job": job["id"],
            "issue": job["title"],
            "repository": job["repository"] + (f"#{job['number']}" if job["number"] else ""),
            "branch": job["branch"] or "-",
            "model": job["model"] or "-",
            "runner": job["runner"],
            "state": job["status"] + (f": {job['reason']}" if job["reason"] else ""),
            "queue": f"place {waiting['place']} of {waiting['of']}, waiting {_NEEDED[waiting['waiting_for']]}"
            if waiting
            else "",
            "verdict": job["verdict"] or "-",
            "pull": job["pull_request"] or "-",
            "cost": f"{_price(job)} of ${job['limits']['usd']} in {job['usage']['calls']} model calls",
            "begun": job["created_at"],
        }
        for name, value in facts.items():
            if value:
                print(plain(f"{name:<11}{value}"))
        if job["plan"]:
            print(f"\nplan\n{plain(job['plan'])}")

    def _logs(self, arguments: argparse.Namespace) -> None:
        terminal = TerminalProgress(sys.stdout)
        for line in self._follow(arguments.job) if arguments.follow else self._log(arguments.job):
            if arguments.json:
                print(json.dumps({name: line[name] for name in ("at", "kind", "text")}), flush=True)
            else:
                terminal.report(line["kind"], line["text"])
            if terminal.closed:
                return
        if arguments.json:
            job = self._call("GET", f"/{arguments.job}")
            print(json.dumps({name: job[name] for name in ("state", "reason", "verdict")}))

    def _watch(self, arguments: argparse.Namespace) -> None:
        arguments.job = arguments.job or next((job["id"] for job in self._call("GET", "", limit=1)["jobs"]), "-")
        arguments.follow = True
        self._logs(arguments)

    def _log(self, job: str) -> Iterator[dict[str, Any]]:
        """A job's lines so far."""
        offset = 0
        while lines := (page := self._call("GET", f"/{job}/log", offset=offset))["lines"]:
            yield from lines
            if page["offset"] <= offset:
                raise ValueError("the server returned the same log offset twice")
            offset = page["offset"]

    def _follow(self, job: str) -> Iterator[dict[str, Any]]:
        """A job's lines until its end."""
        offset, ended = 0, False
        while not ended:  # the server ends a stream after about five minutes
            for name, at, data in self._events_since(job, offset):
                offset, ended = at or offset, name == "end"
                if name == "line":
                    yield data

    def _cancel(self, arguments: argparse.Namespace) -> None:
        answer = self._call("POST", f"/{arguments.job}/cancel")
        print(json.dumps(answer) if arguments.json else plain(f"Job {arguments.job} is {answer['status']}."))

    def _start(self, arguments: argparse.Namespace) -> None:
        repository, _, number = arguments.target.partition("#")
        body: dict[str, Any] = {"repository": repository}
        if number:
            body["issue"] = int(number) if number.isdecimal() else number
        if arguments.text is not None:
            body["text"] = _read_text(arguments.text)
        if arguments.search is not None:
            body |= {"search": arguments.search, "limit": arguments.limit}
        options = {
            name: getattr(arguments, name) for name in ("model", "runner", "budget", "base", "urgent", "plan_only")
        }
        self._print_id(
            arguments, self._call("POST", "", {**body, **{name: value for name, value in options.items() if value}})
        )

    def _plan(self, arguments: argparse.Namespace) -> None:
        plan = self._call("GET", f"/{arguments.job}/plan")
        if arguments.edit is not None:
            edited = _edited_plan(_read_text(arguments.edit))
            version = edited.get("version", plan["version"])
            plan = self._call("PUT", f"/{arguments.job}/plan", {"version": version, "plan": edited.get("plan", edited)})
        print(json.dumps({name: plan[name] for name in ("version", "who", "at", "plan")}, indent=2))

    def _approve(self, arguments: argparse.Namespace) -> None:
        body = {"version": arguments.version} if arguments.version else {}
        self._print_id(arguments, self._call("POST", f"/{arguments.job}/approve", body))

    def _answer(self, arguments: argparse.Namespace) -> None:
        self._print_id(arguments, self._call("POST", f"/{arguments.job}/answer", {"text": " ".join(arguments.text)}))

    def _continue(self, arguments: argparse.Namespace) -> None:
        money = arguments.budget or ""
        body = {"extra": money[1:]} if money.startswith("+") else {"budget": money} if money else {}
        self._print_id(arguments, self._call("POST", f"/{arguments.job}/continue", body))

    def _retry(self, arguments: argparse.Namespace) -> None:
        self._print_id(arguments, self._call("POST", f"/{arguments.job}/retry"))

    def _print_id(self, arguments: argparse.Namespace, answer: dict[str, Any]) -> None:
        print(json.dumps(answer) if arguments.json else plain(answer["id"]))


def _price(job: dict[str, Any]) -> str:
    known = float(job["cost"]) or not job["usage"]["calls"]
    return f"${job['cost']}" if known else "price unknown"


def _read_text(path: str) -> str:
    """A file's text, or that of standard input for `-`."""
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text("utf-8")
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or NUL in the path
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise AgentFixError(f"{path} cannot be read: {reason}.", code=ExitCode.USAGE) from error


def _edited_plan(text: str) -> dict[str, Any]:
    try:
        edited = json.loads(text)
    except ValueError as error:
        raise AgentFixError(f"The edited plan is not JSON: {error}.", code=ExitCode.USAGE) from error
    if not isinstance(edited, dict):
        raise AgentFixError("The edited plan is not a JSON object.", code=ExitCode.USAGE)
    return edited


def _parse_events(lines: Iterator[str]) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """The events in the lines of a stream of server-sent events."""
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line:
            fields[name] = value
        elif "data" in fields:
            yield fields.get("event", ""), int(fields.get("id", "0")), json.loads(fields["data"])
            fields = {}
        else:
            fields = {}


def _check(answer: httpx.Response) -> None:
    if answer.is_success:
        return
    try:
        problem = answer.json()
    except ValueError:
        problem = {}
    wrong = "; ".join(f"{each['where']}: {each['problem']}" for each in problem.get("errors", []))
    message = " ".join(part for part in (problem.get("detail", ""), wrong) if part) or f"HTTP {answer.status_code}"
    code = ExitCode.USAGE if answer.status_code in {401, 403, 404, 409, 422} else ExitCode.INTERNAL
    raise AgentFixError(f"The server refused: {plain(message)}", code=code)


def _unreachable(client: httpx.Client, error: httpx.HTTPError) -> AgentFixError:
    return AgentFixError(
        f"The server at {client.base_url} cannot be reached: {type(error).__name__}.",
        code=ExitCode.USAGE,
        hint="Check the address after --server.",
    )
