"""`agent-fix jobs --server URL`: the same commands for the jobs of a server, over its API."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from app.config.roles import API_TOKEN
from app.config.settings import read_settings
from app.core.errors import AgentFixError, ExitCode
from app.core.text import one_line, plain
from app.server.terminal import TerminalProgress


def age(since: datetime, now: datetime) -> str:
    seconds = int((now - since).total_seconds())
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def print_patch(diff: bytes) -> None:
    if sys.stdout.isatty():  # raw bytes of a change could control the terminal
        print(plain(diff.decode("utf-8", "replace")))
    else:
        sys.stdout.buffer.write(diff)


_SECONDS = httpx.Timeout(30.0)
_STREAM_SECONDS = httpx.Timeout(30.0, read=90.0)


class ServerApi:
    """A server's API, with a token."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def call(self, method: str, path: str, body: object = None, **query: str | int) -> Any:
        """The answer's JSON. Raises AgentFixError with the problem that the server names."""
        try:
            answer = self._client.request(method, f"/api/jobs{path}", json=body, params=query)
        except httpx.HTTPError as error:
            raise _unreachable(self._client, error) from None
        _check(answer)
        return answer.json()

    def content(self, path: str) -> bytes:
        try:
            answer = self._client.get(f"/api/jobs{path}")
        except httpx.HTTPError as error:
            raise _unreachable(self._client, error) from None
        _check(answer)
        return answer.content

    def events(self, job: str, offset: int) -> Iterator[tuple[str, int, dict[str, Any]]]:
        """The events of a job from an offset until the stream ends: name, offset and data."""
        try:
            with self._client.stream(
                "GET", f"/api/jobs/{job}/events", params={"offset": offset}, timeout=_STREAM_SECONDS
            ) as answer:
                if answer.status_code != 200:
                    answer.read()
                _check(answer)
                yield from _events(answer.iter_lines())
        except httpx.HTTPError as error:
            raise _unreachable(self._client, error) from None

    def find(self, prefix: str) -> str:
        """The id of the one job that begins so, among the newest."""
        listed = self.call("GET", "", limit=200)["jobs"]
        ids = [job["id"] for job in listed if job["id"].startswith(prefix)]
        if len(ids) > 1 and prefix not in ids:
            raise AgentFixError(f"Several jobs have an id that begins with {prefix!r}.", code=ExitCode.USAGE)
        return prefix if prefix in ids or not ids else ids[0]


def remote_jobs_command(arguments: argparse.Namespace) -> int:
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
            return run(ServerApi(client), arguments)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, httpx.InvalidURL) as error:
        raise AgentFixError(
            f"The server at {plain(arguments.server)} did not answer like the agent-fix API.",
            code=ExitCode.USAGE,
            hint=f"Check the address after --server. ({type(error).__name__}: {one_line(str(error))[:200]})",
        ) from error


def run(api: ServerApi, arguments: argparse.Namespace) -> int:
    actions: dict[str, Callable[[ServerApi, argparse.Namespace], None]] = {
        "show": _show,
        "logs": _logs,
        "cancel": _cancel,
        "start": _start,
        "plan": _plan,
        "approve": _approve,
        "answer": _answer,
        "continue": _continue,
        "retry": _retry,
    }
    if getattr(arguments, "job", None):
        arguments.job = api.find(arguments.job)
    actions.get(arguments.action or "", _list)(api, arguments)
    return ExitCode.OK


def _list(api: ServerApi, arguments: argparse.Namespace) -> None:
    listed = api.call("GET", "", limit=getattr(arguments, "n", 20))["jobs"]
    if arguments.json:
        print(json.dumps(listed, indent=2))
        return
    if not listed:
        print("No jobs yet. `agent-fix jobs --server URL start OWNER/NAME#N` starts one.")
        return
    print(f"{'JOB':<14}{'STATE':<22}{'AGE':<8}{'VERDICT':<10}{'COST':<9}{'REPOSITORY':<28}TITLE")
    for job in listed:
        where = f"{job['repository']}#{job['number']}" if job["number"] else job["repository"]
        since = age(datetime.fromisoformat(job["created_at"]), datetime.now(UTC))
        cost, verdict = f"${float(job['cost']):.2f}", job["verdict"] or "-"
        line = f"{job['id']:<14}{job['state']:<22}{since:<8}{verdict:<10}{cost:<9}{where:<28}{job['title'][:60]}"
        print(plain(line))


_NEEDED = {"worker": "for a worker", "pull_requests": "until a pull request is merged or closed"}


def _show(api: ServerApi, arguments: argparse.Namespace) -> None:
    if arguments.patch:
        sys.stdout.flush()
        print_patch(api.content(f"/{arguments.job}/patch"))
        return
    job = api.call("GET", f"/{arguments.job}")
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
        "state": job["state"] + (f": {job['reason']}" if job["reason"] else ""),
        "queue": f"place {waiting['place']} of {waiting['of']}, waiting {_NEEDED[waiting['waiting_for']]}"
        if waiting
        else "",
        "verdict": job["verdict"] or "-",
        "pull": job["pull_request"] or "-",
        "cost": f"${job['cost']} of ${job['limits']['usd']} in {job['usage']['calls']} model calls",
        "begun": job["created_at"],
    }
    for name, value in facts.items():
        if value:
            print(plain(f"{name:<11}{value}"))
    if job["plan"]:
        print(f"\nplan\n{plain(job['plan'])}")


def _logs(api: ServerApi, arguments: argparse.Namespace) -> None:
    terminal, offset, ended = TerminalProgress(sys.stdout), 0, False
    if not arguments.follow:
        while lines := (page := api.call("GET", f"/{arguments.job}/log", offset=offset))["lines"]:
            for line in lines:
                terminal.report(line["kind"], line["text"])
            if page["offset"] <= offset:
                raise ValueError("the server returned the same log offset twice")
            offset = page["offset"]
        return
    while not ended and not terminal.closed:  # the server ends a stream after half an hour
        for name, at, data in api.events(arguments.job, offset):
            offset, ended = at or offset, name == "end"
            if name == "line" and not terminal.closed:
                terminal.report(data["kind"], data["text"])


def _cancel(api: ServerApi, arguments: argparse.Namespace) -> None:
    answer = api.call("POST", f"/{arguments.job}/cancel")
    print(json.dumps(answer) if arguments.json else plain(f"Job {arguments.job} is {answer['status']}."))


def _start(api: ServerApi, arguments: argparse.Namespace) -> None:
    repository, _, number = arguments.target.partition("#")
    body: dict[str, Any] = {"repository": repository}
    if number:
        body["issue"] = int(number) if number.isdecimal() else number
    if arguments.text is not None:
        body["text"] = sys.stdin.read() if arguments.text == "-" else Path(arguments.text).read_text("utf-8")
    if arguments.search is not None:
        body |= {"search": arguments.search, "limit": arguments.limit}
    options = {name: getattr(arguments, name) for name in ("model", "runner", "budget", "urgent", "plan_only")}
    _print_id(arguments, api.call("POST", "", {**body, **{name: value for name, value in options.items() if value}}))


def _plan(api: ServerApi, arguments: argparse.Namespace) -> None:
    plan = api.call("GET", f"/{arguments.job}/plan")
    if arguments.edit is not None:
        edited = _edited_plan(sys.stdin.read() if arguments.edit == "-" else Path(arguments.edit).read_text("utf-8"))
        version = edited.get("version", plan["version"])
        plan = api.call("PUT", f"/{arguments.job}/plan", {"version": version, "plan": edited.get("plan", edited)})
    print(json.dumps({name: plan[name] for name in ("version", "who", "at", "plan")}, indent=2))


def _edited_plan(text: str) -> dict[str, Any]:
    try:
        edited = json.loads(text)
    except ValueError as error:
        raise AgentFixError(f"The edited plan is not JSON: {error}.", code=ExitCode.USAGE) from error
    if not isinstance(edited, dict):
        raise AgentFixError("The edited plan is not a JSON object.", code=ExitCode.USAGE)
    return edited


def _approve(api: ServerApi, arguments: argparse.Namespace) -> None:
    body = {"version": arguments.version} if arguments.version else {}
    _print_id(arguments, api.call("POST", f"/{arguments.job}/approve", body))


def _answer(api: ServerApi, arguments: argparse.Namespace) -> None:
    _print_id(arguments, api.call("POST", f"/{arguments.job}/answer", {"text": " ".join(arguments.text)}))


def _continue(api: ServerApi, arguments: argparse.Namespace) -> None:
    money = arguments.budget or ""
    body = {"extra": money[1:]} if money.startswith("+") else {"budget": money} if money else {}
    _print_id(arguments, api.call("POST", f"/{arguments.job}/continue", body))


def _retry(api: ServerApi, arguments: argparse.Namespace) -> None:
    _print_id(arguments, api.call("POST", f"/{arguments.job}/retry"))


def _print_id(arguments: argparse.Namespace, answer: dict[str, Any]) -> None:
    print(json.dumps(answer) if arguments.json else plain(answer["id"]))


def _events(lines: Iterator[str]) -> Iterator[tuple[str, int, dict[str, Any]]]:
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
