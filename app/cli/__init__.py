"""The command line: parses arguments and calls the command. Imports nothing heavy, so that `--help` is instant."""

import argparse  # click and typer take eight times as long to import: docs/explanation/architecture.md
import gc
import io
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from app import __version__
from app.core.errors import AgentFixError, ExitCode
from app.core.sandbox_names import SANDBOXES, described

_UNKNOWN = re.compile(r"unrecognized arguments: (.*)", re.DOTALL)
_CHOICE = re.compile(
    r"argument (?P<what>.*?): invalid choice: (?P<given>'.*'|\".*\") \(choose from (?P<all>.*)\)", re.DOTALL
)
_MISSING = re.compile(r"the following arguments are required: (.*)", re.DOTALL)
_ONE_OF = re.compile(r"one of the arguments (\S+) .*is required", re.DOTALL)


class CommandParser(argparse.ArgumentParser):
    """Refuses wrong arguments in one line, with the nearest right one, and names the command for help."""

    _words: tuple[str, ...] = ()

    def parse_known_args(  # type: ignore[override]  # argparse has an overload for each kind of namespace
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Arguments that a subcommand does not know are its own error, so that its options are suggested."""
        self._words = tuple(sys.argv[1:] if args is None else args)
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        print(f"agent-fix: {self._sentence(message)}", file=sys.stderr)
        print(f"           `{self.prog} --help` lists commands and options.", file=sys.stderr)
        self.exit(ExitCode.USAGE)

    def _sentence(self, message: str) -> str:
        if "not allowed with argument" in message:  # perhaps the value of an option that does not exist
            options = (word.partition("=")[0] for word in self._words if word.startswith("--"))
            wrong = next((word for word in options if word not in self._option_string_actions), "")
            message = f"unrecognized arguments: {wrong}" if wrong else message
        if unknown := _UNKNOWN.fullmatch(message):
            word = unknown[1].split(" ")[0].partition("=")[0]
            if not word.startswith("-"):
                return f"`{self.prog}` takes no argument {shlex.quote(word)}."
            return f"There is no option {word}.{_meant(word, self._option_string_actions)}"
        if choice := _CHOICE.fullmatch(message):
            given, names = choice["given"][1:-1], re.findall(r"'([^']*)'", choice["all"])
            kind = "command" if choice["what"] in {"COMMAND", "ACTION"} else f"value for {choice['what']}"
            known = _meant(given, names) or f" Known: {', '.join(names)}."
            return f"There is no {kind} {shlex.quote(given)}.{known}"
        if missing := _MISSING.fullmatch(message) or _ONE_OF.fullmatch(message):
            return f"{missing[1]} is missing."
        return f"{message[:1].upper()}{message[1:]}."


def _meant(word: str, names: Sequence[str] | dict[str, argparse.Action]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415  # imported only for an error, so that the start is fast

    found = get_close_matches(word, list(names), n=2, cutoff=0.6)
    return f" Did you mean {' or '.join(found)}?" if found else ""


EXIT_CODES = """\
exit codes:
   0  the fix, or the verified change, is proved or tested (other commands: success)
   1  internal error of agent-fix
   2  wrong arguments
   3  interrupted; run the same command to continue
   4  another process works on this job
   5  invalid .github/agent-fix.yml           6  no usable sandbox
   7  the model cannot be used                8  the repository's set-up failed
   9  output or state cannot be written      10  the disk is full
  11  `doctor --github`: at least one line is not ok
  20  unproved: nothing is known to be broken, but too little shows that it works
  21  broken: verification failed; `fix` made no branch
  22  a limit was reached (money, minutes, steps); raise it to continue
  23  no change was made                     24  waiting for approval
  25  waiting for an answer                  26  stopped by `jobs cancel`
  27  not reproduced: no program that was tried shows the issue
  28  it works already: the reporter's own example prints what the issue asks for
  30-37  the repository: not one, no commits, bare, shallow, unknown base,
         unsupported
  40-44  the issue: unreadable, empty, binary, too large; plan file invalid
"""


COMMANDS = {
    "fix": "app.cli.fix:fix_command",
    "reproduce": "app.cli.fix:reproduce_command",
    "verify": "app.cli.fix:verify_command",
    "init": "app.cli.init:init_command",
    "setup": "app.cli.setup:setup_command",
    "serve": "app.cli.serve:serve_command",
    "action": "app.action.main:action_command",
    "sweep": "app.cli.sweep:sweep_command",
    "demo": "app.cli.demo:demo_command",
    "doctor": "app.cli.doctor:doctor_command",
    "jobs": "app.cli.jobs:jobs_command",
    "keys": "app.cli.keys:keys_command",
    "view": "app.cli.view:view_command",
    "report": "app.cli.outcome_report:report_command",
    "lessons": "app.cli.lessons:lessons_command",
    "runners": "app.cli.runners:runners_command",
    "completion": "app.cli.completion:completion_command",
    "config": "app.cli.config:config_command",
}
"""Each command's module and function."""
NEEDS = {"serve": "fastapi"}
"""A library without which the command's processes would only fail one after the other."""
OVERVIEW = """\
Fix an issue in a repository and prove it: red before, green after, run by the harness.

{commands}

Begin with:  agent-fix fix ISSUE.md --model PROVIDER/MODEL
`agent-fix help COMMAND` explains a command; `agent-fix --help` lists the exit codes.
"""

EXTRAS = {
    "apprise": "notify",
    "e2b": "e2b",
    "cryptography": "server",
    "fastapi": "server",
    "githubkit": "github",
    "hishel": "github",
    "httptools": "server",
    "jwt": "github",
    "prometheus_client": "server",
    "uvloop": "server",
}
"""The import name of each library that a fix does not need, and the extra that brings it."""

KINDS = ("bug", "feature", "tests", "refactoring", "dependencies", "ci")
"""Of `app.core.task`, those that need no pull request."""
COLLECT_AFTER = 20_000
"""New objects between two collections of garbage. With Python's 700 a third of the imports' time goes to looking
through what they leave, which is not garbage."""


_OTHER_WORDS: dict[str, Callable[[list[str]], list[str]]] = {
    "help": lambda rest: [*rest, "--help"] if rest else [],
    "version": lambda rest: ["--version", *rest],
}
"""What people type from habit, and what it stands for."""


def main(argv: Sequence[str] | None = None) -> int:
    """The console script. Returns the exit code; errors are shown as one line and a hint, never as a traceback."""
    make_streams_safe()
    commands = parser()
    given = list(sys.argv[1:] if argv is None else argv)
    if given and given[0] in _OTHER_WORDS:
        given = _OTHER_WORDS[given[0]](given[1:])
    arguments = commands.parse_args(given)
    gc.set_threshold(COLLECT_AFTER, 20, 20)
    try:
        if arguments.command is None:
            print(overview(commands), flush=True)
            return ExitCode.OK
        return int(_dispatch(arguments))
    except AgentFixError as error:
        return _refused(error)
    except BrokenPipeError:  # the reader (`| head`) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return ExitCode.OK
    except ModuleNotFoundError as error:
        if (missing := missing_extra(error)) is None:
            raise
        return _refused(missing)
    except KeyboardInterrupt:
        print("agent-fix: interrupted.", file=sys.stderr)
        return int(ExitCode.INTERRUPTED)


def overview(commands: argparse.ArgumentParser) -> str:
    """Each command with its help, in the parser's order."""
    listed = next(each._choices_actions for each in commands._actions if isinstance(each, argparse._SubParsersAction))
    lines = (f"  agent-fix {each.dest:<10} {each.help}" for each in listed if each.dest != "action")
    return OVERVIEW.format(commands="\n".join(lines))


def _refused(error: AgentFixError) -> int:
    from app.server.terminal import print_error  # noqa: PLC0415  # imported only for an error

    return print_error(error)


def missing_extra(error: ModuleNotFoundError) -> AgentFixError | None:
    """What to install for a library that is not there; None if no extra has it."""
    extra = EXTRAS.get((error.name or "").partition(".")[0])
    if extra is None:
        return None
    return AgentFixError(
        f"This command needs agent-fix[{extra}], which is not installed.",
        hint=f"In a checkout: pipx install --force '.[{extra}]', or pip install '.[{extra}]' into its environment.",
        code=ExitCode.USAGE,
    )


def make_streams_safe() -> None:
    """Open closed streams on the null device, and escape characters that the terminal's encoding lacks.

    Otherwise the next opened file would take a closed stream's number, and output would go into it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _dispatch(arguments: argparse.Namespace) -> int:
    """Run the command; its module is imported only now."""
    if (library := NEEDS.get(arguments.command)) and find_spec(library) is None:
        raise ModuleNotFoundError(name=library)
    module, function = COMMANDS[arguments.command].split(":")
    return int(getattr(import_module(module), function)(arguments))


def parser() -> argparse.ArgumentParser:
    """Every command and option."""
    root: argparse.ArgumentParser = CommandParser(
        prog="agent-fix",
        description="Fix an issue in a repository and prove it: red before, green after, run by the harness.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("-V", "--version", action="version", version=f"agent-fix {__version__}")
    commands = root.add_subparsers(dest="command", metavar="COMMAND")
    _add_demo_and_doctor(commands)
    _add_fix(commands)
    _add_reproduce(commands)
    _add_verify(commands)
    _add_repository_commands(commands)
    _add_jobs_and_view(commands)
    _add_other_commands(commands)
    _add_server_commands(commands)
    return root


Commands = argparse._SubParsersAction  # argparse has no public name for what it returns


_BASE = "commit, branch or tag to start from (default: the configuration's base, else HEAD)"


def _add_fix(commands: "Commands[argparse.ArgumentParser]") -> None:
    fix = commands.add_parser(
        "fix",
        help="fix an issue in a local repository",
        description="Plan, work in a sandbox, verify, and leave a branch and a rendered pull request. "
        "Run the same command again to continue an interrupted job.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_job(fix)
    task = fix.add_argument_group("task")
    task.add_argument("--runner", metavar="R", help="the coding agent (default: the repository's, then native)")
    task.add_argument("--kind", choices=KINDS, help="the kind of task (default: detected from labels, title and words)")
    task.add_argument("--prompt", metavar="NAME", help="use the repository's prompt NAME (.github/agent-fix/prompts)")
    task.add_argument(
        "--allow", action="append", default=[], metavar="PATH", help="let this job change this protected path"
    )
    task.add_argument("--fixed-by", metavar="COMMIT", help="only write tests for the fix in COMMIT")
    task.add_argument(
        "--attempts",
        type=int,
        default=1,
        metavar="N",
        help="make up to N independent attempts, until one is proved (default: 1)",
    )
    plan = fix.add_argument_group("plan").add_mutually_exclusive_group()
    plan.add_argument("--plan-only", action="store_true", help="make the plan, write OUT/plan.md, and stop")
    plan.add_argument("--plan", type=Path, metavar="FILE", help="use this (edited) plan")
    plan.add_argument("--approve", action="store_true", help="show the plan and ask before work starts")
    plan.add_argument("--no-plan", action="store_true", help="start without a plan")


def _add_reproduce(commands: "Commands[argparse.ArgumentParser]") -> None:
    reproduce = commands.add_parser(
        "reproduce",
        help="show an issue as a small program, and change nothing",
        description="Prints the smallest program that shows the issue, what it prints today, and what it should print; "
        "or what was tried, and what the reporter still has to tell. `fix --plan OUT/plan.md` goes on from there.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_job(reproduce, money=_A_FIFTH, work=_A_FIFTH)


_INTO = "what the change is to be merged into, such as main; it is compared with the commit at which it left that"
_MONEY = "the repository's, then AGENT_FIX_BUDGET, then 5"
_A_FIFTH = "a fifth of what `fix` has"


def _add_job(
    to: argparse.ArgumentParser, *, base: str = _BASE, judges: bool = False, money: str = "", work: str = ""
) -> None:
    """The options of every command that runs a job on an issue here; one that `judges` a change may do without one."""
    _add_repository(to, default=Path())
    issue = to.add_mutually_exclusive_group(required=not judges)
    issue.add_argument(
        "issue",
        nargs="?",
        default=argparse.SUPPRESS,
        metavar="ISSUE",
        help="a Markdown file with the title in its first line; - for stdin; on GitHub OWNER/NAME#N, an issue's URL, "
        "or N for an issue in the repository that `origin` points to",
    )
    issue.add_argument("--issue", metavar="ISSUE", help="the same")
    to.add_argument("--base", metavar="REF", required=judges, help=base)
    to.add_argument(
        "--model",
        metavar="M",
        help="a LiteLLM model name, or recorded/FILE (default: the repository's, then AGENT_FIX_MODEL)",
    )
    to.add_argument("--sandbox", choices=tuple(SANDBOXES), help=described())
    to.add_argument(
        "--out", type=Path, metavar="DIR", help="directory for the results (default: in the state directory)"
    )
    to.add_argument(
        "--reasoning",
        choices=("low", "medium", "high"),
        help="the model's reasoning effort (default: the repository's, then the provider's)",
    )
    to.add_argument("--record", type=Path, metavar="FILE", help="record the model's answers to FILE for recorded/FILE")
    to.add_argument("--events", type=int, metavar="FD", help=argparse.SUPPRESS)
    _add_json(to, default=False)
    loudness = to.add_mutually_exclusive_group()
    loudness.add_argument("-q", "--quiet", action="store_true", help="print only the result")
    loudness.add_argument(
        "-v", "--verbose", action="store_true", help="print every line as it comes, also on a terminal"
    )
    to.add_argument("--restart", action="store_true", help="start a new job even if an interrupted one could continue")
    _add_state(to)
    to.add_argument(
        "--images",
        action=argparse.BooleanOptionalAction,
        help="whether a vision model describes the images next to the issue's file to the agent",
    )
    limits = to.add_argument_group("limits")
    limits.add_argument("--budget", metavar="USD", help=f"maximum cost of model calls (default: {money or _MONEY})")
    turns, minutes = work or "the repository's, then 100", work or "the repository's, then 60"
    limits.add_argument("--max-steps", type=int, metavar="N", help=f"maximum model turns (default: {turns})")
    limits.add_argument("--max-minutes", type=float, metavar="N", help=f"maximum minutes of work (default: {minutes})")


def _add_verify(commands: "Commands[argparse.ArgumentParser]") -> None:
    verify = commands.add_parser(
        "verify",
        help="judge a change that somebody made, in a local repository",
        description="Programs and what they must print are written from the issue, without seeing the change, and run "
        "on base and change; a reviewer who sees it writes counter-examples; the suite runs on both. Nothing in the "
        "repository is changed. What the change is for is read from the issue, or else from its commits' messages.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verify.add_argument("--change", metavar="REF", default="HEAD", help="branch or commit to judge (default: HEAD)")
    _add_job(verify, base=_INTO, judges=True, money=_A_FIFTH)


def _add_repository_commands(commands: "Commands[argparse.ArgumentParser]") -> None:
    init = commands.add_parser(
        "init",
        help="write the workflow and the configuration for a repository on GitHub",
        description="Inspects the repository, asks for anything it cannot work out, and writes "
        ".github/workflows/agent-fix.yml and .github/agent-fix.yml. Existing files stay as they are. It then prints "
        "the remaining steps: the key, the model and the commit.",
    )
    _add_repository(init, default=Path())
    init.add_argument("--yes", action="store_true", help="do not ask; use what was detected")
    init.add_argument("--model", metavar="M", help="the model (default: AGENT_FIX_MODEL, or a question)")
    init.add_argument("--budget", metavar="USD", help="the highest cost of a job (default: 5, or a question)")
    init.add_argument(
        "--pull-request",
        action="store_true",
        help="open the files as a draft pull request with the token in GITHUB_TOKEN, and leave the work tree as it is",
    )
    _add_json(init, default=False)
    _add_state(init)

    setup = commands.add_parser(
        "setup",
        help="detect a repository's set-up and test commands by running candidates",
        description="Runs the commands found in CI files, tox, nox, make, scripts and manifests in the sandbox, and "
        "shows which set-up makes the most tests pass. Calls no model. Exits with 0 if at least 90 % of the tests "
        "pass, otherwise 8.",
    )
    setup.add_argument("--repo", type=Path, required=True, metavar="PATH", help="a local git repository")
    setup.add_argument("--base", metavar="REF", help="commit, branch or tag to examine (default: HEAD)")
    setup.add_argument("--sandbox", choices=tuple(SANDBOXES), help=described())
    setup.add_argument(
        "--seconds",
        type=_number(86_400, float),
        metavar="N",
        help="limit of the trials, and of each (default: a job's)",
    )
    setup.add_argument("--explain", action="store_true", help="show every candidate that was tried, and its commands")
    setup.add_argument("--write", action="store_true", help="add `setup:` and `test:` to .github/agent-fix.yml")
    _add_json(setup, default=False)
    _add_state(setup)


def _add_server_commands(commands: "Commands[argparse.ArgumentParser]") -> None:
    serve = commands.add_parser(
        "serve",
        help="run the GitHub App: webhooks, jobs, pull requests, dashboard",
        description="Starts receiver, worker and publisher, each with only the secrets it may hold, and restarts them. "
        "Settings come from the environment; missing ones are reported at the start.",
    )
    serve.add_argument(
        "--role", choices=("receiver", "worker", "publisher"), help="only this role; start the others elsewhere"
    )
    serve.add_argument("--setup", action="store_true", help="create the GitHub App in a browser, and store its key")
    serve.add_argument("--prepare", action="store_true", help=argparse.SUPPRESS)
    serve.add_argument("--listening", type=int, metavar="FD", help=argparse.SUPPRESS)
    serve.add_argument("--job", metavar="ID:EPOCH:OWNER", help=argparse.SUPPRESS)
    _add_state(serve)

    action = commands.add_parser(
        "action",
        help="run a step of the GitHub Action",
        description="receive and publish hold the token, solve holds the model's keys. All inputs come from the "
        "environment, as action.yml sets it.",
    )
    action.add_argument("step", choices=("receive", "progress", "solve", "publish"))

    sweep = commands.add_parser(
        "sweep",
        help="start jobs for labelled issues of a repository that nobody works on",
        description="Shows which issues get a job and why others do not. With a server's App the jobs are created; "
        "with a token, the issues are only listed; in a workflow, they are also set as the output `issues`.",
    )
    sweep.add_argument("--repo", type=_on_github, required=True, metavar="OWNER/NAME")
    sweep.add_argument(
        "--max", type=_number(1_000), default=5, metavar="N", help="start at most N jobs (default: %(default)s)"
    )
    sweep.add_argument(
        "--query",
        default="",
        metavar="Q",
        help="only issues matching this GitHub search, such as 'label:bug sort:reactions'",
    )
    sweep.add_argument(
        "--order", choices=("oldest", "priority"), help="which issues first (default: oldest, or the search's order)"
    )
    sweep.add_argument("--dry-run", action="store_true", help="only show")
    _add_json(sweep, default=False)
    _add_state(sweep)

    keys = commands.add_parser(
        "keys",
        help="create, list and delete keys for the server's API",
        description="Run this on a machine that can reach the server's database. A key is shown once; the database "
        "stores only its digest.",
    )
    _add_state(keys)
    actions = keys.add_subparsers(dest="action", metavar="ACTION")
    listing = actions.add_parser("list", help="list the keys, with their scopes (the default)")
    create = actions.add_parser("create", help="create a key and print it")
    create.add_argument("name")
    create.add_argument(
        "--scope",
        action="append",
        choices=("read", "write", "admin"),
        help="what it may do; may be repeated (default: read)",
    )
    delete = actions.add_parser("delete", help="delete a key; requests with it are refused immediately")
    delete.add_argument("name")
    for action in (listing, create, delete):
        _add_state(action, default=argparse.SUPPRESS)


def _add_demo_and_doctor(commands: "Commands[argparse.ArgumentParser]") -> None:
    demo = commands.add_parser(
        "demo",
        help="fix the bundled sample project with recorded model answers",
        description="Everything but the model is real: sandbox, tests, verification, git.",
    )
    demo.add_argument("--out", type=Path, default=Path("demo-out"), metavar="DIR", help="default: %(default)s")
    demo.add_argument("--model", metavar="M", help="use this model instead of the recorded answers")
    demo.add_argument("--record", type=Path, metavar="FILE", help="with --model: record its answers")
    _add_json(demo, default=False)

    doctor = commands.add_parser(
        "doctor",
        help="check this machine (git, model, sandbox, disk, clock), or a repository on GitHub",
        description="Checks git, disk, clock, and the model with its key if one is set. Tries to break each "
        "property of the sandbox and prints the exact repair for each failure. "
        "Then shows for every other kind of sandbox whether it works here, and if not, why. "
        "With --github it checks that repository instead, as the server's App or with the token in "
        "AGENT_FIX_GITHUB_TOKEN, GITHUB_TOKEN or GH_TOKEN: each line says ok, not ok or cannot tell, with the repair. "
        "It changes nothing there; the App's last ping is sent again. The exit code is 0, or 11 if a line "
        "says not ok.",
    )
    doctor.add_argument(
        "--github", type=_on_github, metavar="OWNER/NAME", help="check whether agent-fix can work in this repository"
    )
    doctor.add_argument("--model", metavar="M", help="the model to check (default: AGENT_FIX_MODEL)")
    doctor.add_argument(
        "--ask-model", action="store_true", help="have the model answer once; that costs a fraction of a cent"
    )
    doctor.add_argument("--sandbox", choices=tuple(SANDBOXES), help="default: AGENT_FIX_SANDBOX, or bubblewrap")
    _add_json(doctor, default=False)
    _add_state(doctor)


def _add_jobs_and_view(commands: "Commands[argparse.ArgumentParser]") -> None:
    jobs = commands.add_parser(
        "jobs",
        help="list, show, follow and cancel jobs, here or on a server",
        description="Without --server, the jobs of this machine. With it, those of a server, over its API, with the "
        "token in AGENT_FIX_API_TOKEN; only those jobs can be started and decided on with this command.",
    )
    _add_state(jobs)
    _add_json(jobs, default=False)
    _add_server(jobs)
    actions = jobs.add_subparsers(dest="action", metavar="ACTION")
    listing = actions.add_parser("list", help="the newest jobs (the default)")
    listing.add_argument("-n", type=_number(10_000), default=20, metavar="N", help="how many (default: %(default)s)")
    show = actions.add_parser("show", help="one job: plan, steps, cost, state")
    show.add_argument("job", help="the id or its first characters")
    show.add_argument("--patch", action="store_true", help="print its change for `git apply`, published or not")
    logs = actions.add_parser("logs", help="print a job's log")
    logs.add_argument("job", help="the id or its first characters")
    logs.add_argument("-f", "--follow", action="store_true", help="keep printing until the job ends")
    watch = actions.add_parser("watch", help="follow a job's log until it ends, by default the newest job's")
    watch.add_argument("job", nargs="?", default="", help="the id or its first characters")
    cancel = actions.add_parser("cancel", help="stop a job for good, wherever it runs")
    cancel.add_argument("job", help="the id or its first characters")
    start = actions.add_parser("start", help="with --server: start a job, and print its id")
    start.add_argument("target", metavar="OWNER/NAME[#N]", help="the repository, and the issue if it is one")
    start.add_argument("--text", metavar="FILE", help="open an issue with this text; `-` for standard input")
    start.add_argument("--search", metavar="Q", help="a job for each open issue that GitHub's search finds")
    start.add_argument(
        "--limit", type=_number(100), default=20, metavar="N", help="with --search (default: %(default)s)"
    )
    start.add_argument("--plan-only", action="store_true", help="make a plan, and wait for its approval")
    start.add_argument("--urgent", action="store_true", help="before jobs that are not urgent")
    for name, metavar in (("model", "M"), ("runner", "R"), ("budget", "USD"), ("base", "BRANCH")):
        start.add_argument(f"--{name}", metavar=metavar)
    plan = actions.add_parser("plan", help="with --server: print a job's plan, or store an edited one")
    plan.add_argument("--edit", metavar="FILE", help="the edited plan as JSON; `-` for standard input")
    approve = actions.add_parser("approve", help="with --server: approve a job's plan")
    approve.add_argument("--version", type=int, metavar="N", help="only if this is the newest version")
    answer = actions.add_parser("answer", help="with --server: answer a job's questions")
    proceed = actions.add_parser("continue", help="with --server: resume a paused job")
    proceed.add_argument("--budget", metavar="USD", help="the new budget; +3 for three dollars more")
    retry = actions.add_parser("retry", help="with --server: start a job again")
    for action in (plan, approve, answer, proceed, retry):
        action.add_argument("job", help="the id or its first characters")
    answer.add_argument("text", nargs="+", metavar="TEXT")
    for action in (listing, show, logs, watch, cancel, start, plan, approve, answer, proceed, retry):
        _add_state(action, default=argparse.SUPPRESS)
        _add_json(action)
        _add_server(action, default=argparse.SUPPRESS)

    view = commands.add_parser(
        "view",
        help="look at a job's steps in a browser",
        description="Writes the trajectory as one page that needs no network, prints its address, and opens it if "
        "there is a desktop.",
    )
    view.add_argument("what", metavar="JOB|FILE", help="a job's id, its first characters, or a trajectory or job file")
    view.add_argument("--out", type=Path, metavar="FILE", help="where to write the page (default: beside the results)")
    view.add_argument("--no-open", action="store_true", help="only write the page")
    _add_json(view, default=False)
    _add_state(view)


def _add_other_commands(commands: "Commands[argparse.ArgumentParser]") -> None:
    report = commands.add_parser(
        "report",
        help="what became of the pull requests, and what they cost",
        description="Shows how jobs ended, how many of their pull requests were merged, closed, or changed before "
        "merging, and the cost per merged pull request. Run it on a machine that can reach the database.",
    )
    report.add_argument("--days", type=_number(36_500), default=30, metavar="N", help="how far back (default: 30)")
    report.add_argument("--html", type=Path, metavar="FILE", help="write the report as a self-contained HTML page")
    _add_json(report, default=False)
    _add_state(report)

    lessons = commands.add_parser(
        "lessons",
        help="list, add and delete what later jobs in a repository are shown",
        description="Jobs learn lessons about a repository by themselves; this lists, adds and deletes them.",
    )
    _add_repository(lessons, default=Path())
    _add_state(lessons)
    _add_json(lessons, default=False)
    actions = lessons.add_subparsers(dest="action", metavar="ACTION")
    listing = actions.add_parser("list", help="list the lessons (the default)")
    remember = actions.add_parser("remember", help="add a lesson for later jobs")
    remember.add_argument("text", nargs="+", metavar="TEXT", help="one fact, at most 300 characters")
    forget = actions.add_parser("forget", help="delete a lesson")
    forget.add_argument("number", type=int, metavar="N")
    for action in (listing, remember, forget):
        _add_repository(action, default=argparse.SUPPRESS)
        _add_state(action, default=argparse.SUPPRESS)
        _add_json(action)

    config = commands.add_parser(
        "config",
        help="show which settings apply to a repository here, and where each comes from",
        description="Reads .github/agent-fix.yml of HEAD as a job would, and the environment.",
    )
    _add_repository(config, default=Path())
    _add_state(config)
    _add_json(config, default=False)

    runners = commands.add_parser(
        "runners",
        help="list the coding agents, and look for newer versions",
        description="Our own loop and other agents, each with its exact version. Set AGENT_FIX_RUNNERS to a directory "
        "with your own recipes.",
    )
    _add_json(runners, default=False)
    _add_state(runners)
    actions = runners.add_subparsers(dest="action", metavar="ACTION")
    listing = actions.add_parser("list", help="list the agents, and which can work here (the default)")
    check = actions.add_parser(
        "check",
        help="look for newer versions",
        description="Asks this machine's package clients for newer versions. Ends with 1 if something is newer, or "
        "cannot work here.",
    )
    check.add_argument("names", nargs="*", metavar="NAME", help="only these runners (default: all)")
    check.add_argument("--versions", action="store_true", help=argparse.SUPPRESS)  # until 0.2: it does nothing else
    for action in (listing, check):
        _add_json(action)
        _add_state(action, default=argparse.SUPPRESS)

    completion = commands.add_parser(
        "completion",
        help="print a script for completion with Tab in bash, zsh or fish",
        description="Prints a script. In ~/.bashrc or, after compinit, in ~/.zshrc: "
        'eval "$(agent-fix completion bash)". For fish: '
        "agent-fix completion fish > ~/.config/fish/completions/agent-fix.fish",
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))


def _number(most: int, kind: type[int] | type[float] = int) -> Callable[[str], float]:
    """A type for arguments: a number from 1 to `most`."""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = 0
        if not 1 <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {most:,}")
        return value

    return read


def _on_github(text: str) -> str:
    """A type for arguments: OWNER/NAME."""
    if not re.fullmatch(r"[^/\s]+/[^/\s]+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a repository: use OWNER/NAME")
    return text


def _add_repository(to: argparse.ArgumentParser, default: object) -> None:
    to.add_argument("--repo", type=Path, default=default, metavar="PATH", help="a local git repository (default: here)")


def _add_server(to: argparse.ArgumentParser, default: object = None) -> None:
    to.add_argument("--server", default=default, metavar="URL", help="the server's address, for its jobs")


def _add_state(to: argparse.ArgumentParser, default: object = None) -> None:
    to.add_argument(
        "--state", type=Path, default=default, metavar="DIR", help="where jobs are kept (default: the user's state)"
    )


def _add_json(to: argparse.ArgumentParser, default: object = argparse.SUPPRESS) -> None:
    to.add_argument(
        "--json", action="store_true", default=default, help="print JSON on stdout, and everything else on stderr"
    )
