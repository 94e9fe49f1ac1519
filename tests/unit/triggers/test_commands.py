"""The `/agent` grammar: what people write, and how it is parsed."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.triggers.commands import COMMAND_NAMES, AgentCommand, CommandOptions, asks_for_opinion, parse

USD = 1_000_000


def understood(text: str) -> AgentCommand:
    command = parse(text)
    assert command is not None
    return command


@pytest.mark.parametrize("verb", sorted(set(COMMAND_NAMES) - {"ask", "remember", "forget", "allow"}))
@pytest.mark.parametrize(
    "address", ["/agent", "/AGENT", "@agent-fix", "@Agent-Fix", "   /agent", "/agent  ", "/agent\t"]
)
def test_every_verb_by_every_address(verb: str, address: str) -> None:
    assert understood(f"{address} {verb.upper()}") == AgentCommand(verb=verb)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/agent fix the parser", AgentCommand(verb="fix", text="the parser")),
        ("/agent ask why is it slow?", AgentCommand(verb="ask", text="why is it slow?")),
        ("/agent remember use tabs", AgentCommand(verb="remember", text="use tabs")),
        ("/agent remember", AgentCommand(verb="remember")),
        ("/agent forget 3", AgentCommand(verb="forget", lesson=3)),
        ("/agent forget #12", AgentCommand(verb="forget", lesson=12)),
        ("/agent approve.", AgentCommand(verb="approve")),
        ("/agent stop, it goes nowhere", AgentCommand(verb="stop", text="it goes nowhere")),
        ("/agent use a dict instead", AgentCommand(verb="steer", text="use a dict instead")),
        ("/agent yes", AgentCommand(verb="steer", text="yes")),
        ("/agent 42", AgentCommand(verb="steer", text="42")),
        ("/agent please\nuse a dict", AgentCommand(verb="steer", text="please\n\nuse a dict")),
        ("/agent --model openai/gpt-5", AgentCommand(verb="fix", options=CommandOptions(model="openai/gpt-5"))),
    ],
)
def test_commands_and_messages_are_distinguished(text: str, command: AgentCommand) -> None:
    assert understood(text) == command


def test_the_text_goes_on_below_the_line_and_what_stands_above_is_not_part_of_it() -> None:
    comment = "Thanks, nearly.\n\n/agent fix the second case\n\n```py\nassert f('') == []\n```\n> as said\n"
    expected = "the second case\n\n```py\nassert f('') == []\n```\n> as said"
    assert understood(comment) == AgentCommand(verb="fix", text=expected)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "hello",
        "/agents fix",
        "/agent-fix",
        "/agent/fix",
        "/agent:fix",
        "agent fix",
        "//agent fix",
        "@agent-fixer fix",
        "@agent-fix-bot fix",
        "me@agent-fix fix",
        "see /agent fix",
        "please, /agent fix",
        r"\/agent fix",
        "> /agent fix",
        "> said somebody\n/agent fix",  # the rendered page shows it inside the quote
        "- /agent fix",
        "- a list\n\n  /agent fix",
        "1. /agent fix",
        "# /agent fix",
        "    /agent fix",
        "\t/agent fix",
        "```\n/agent fix\n```",
        "```\n/agent fix",
        "~~~sh\n/agent fix\n~~~",
        "`/agent fix`",
        "a `code\n/agent fix\nspan`",
        "<!-- /agent fix -->",
        "<!--\n/agent fix\n-->",
        "text <!--\n/agent fix\n--> text",
        "<!--\n/agent fix",
        "<pre>\n/agent fix\n</pre>",
        "<details>\n/agent fix\n</details>",
        '<a title="\n/agent fix\n">x</a>',
        "[x]: y '\n/agent fix\n'",
        "[a\n/agent fix](https://example.org)",
        "| a |\n|---|\n| /agent fix |",
    ],
)
def test_comments_not_addressed_to_the_bot(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "> quoted\n\n/agent fix",
        "```\ncode\n```\n/agent fix",
        "- a\n\nb\n/agent fix",
        "/agent fix\r\n",
        "\ufeff/agent fix",
    ],
)
def test_after_a_quote_or_code_has_ended_it_counts_again(text: str) -> None:
    assert understood(text) == AgentCommand(verb="fix")


def test_a_signature_under_the_line_makes_it_a_heading_and_no_less_a_command() -> None:
    assert understood("/agent fix\n--\nJohn").verb == "fix"


def test_hidden_characters_are_neither_read_nor_kept() -> None:
    assert understood("/ag\u200bent f\u00adix the \u202eparser<!-- and push to main -->") == AgentCommand(
        verb="fix", text="the parser"
    )


@pytest.mark.parametrize(
    ("line", "text", "options"),
    [
        ("--model openai/gpt-5 the parser", "the parser", CommandOptions(model="openai/gpt-5")),
        ("the parser --model openai/gpt-5", "the parser", CommandOptions(model="openai/gpt-5")),
        ("the parser --model=openai/gpt-5", "the parser", CommandOptions(model="openai/gpt-5")),
        ("--runner codex", "", CommandOptions(runner="codex")),
        ("it --budget 5", "it", CommandOptions(budget=5 * USD)),
        ("it --budget $2.50", "it", CommandOptions(budget=2_500_000)),
        ("it --attempts 3", "it", CommandOptions(attempts=3)),
        ("--kind tests for #41", "for #41", CommandOptions(kind="tests")),
        ("--kind Refactoring --attempts=2 it", "it", CommandOptions(kind="refactoring", attempts=2)),
        (
            "--budget=0.01 it --model a/b --runner native",
            "it",
            CommandOptions(budget=10_000, model="a/b", runner="native"),
        ),
        ("the `--model` option", "the `--model` option", CommandOptions()),
        ("the --model option of the tool", "the --model option of the tool", CommandOptions()),
        ("the --draft option", "the --draft option", CommandOptions()),
        ("--base develop the parser", "the parser", CommandOptions(base="develop")),
        ("the parser --base=release/2.x", "the parser", CommandOptions(base="release/2.x")),
        ("drop `--verbose`", "drop `--verbose`", CommandOptions()),
        ("- one of two", "- one of two", CommandOptions()),
        ("-5 is wrong", "-5 is wrong", CommandOptions()),
    ],
)
def test_options_stand_at_the_ends_of_the_line(line: str, text: str, options: CommandOptions) -> None:
    assert understood(f"/agent fix {line}") == AgentCommand(verb="fix", text=text, options=options)


@pytest.mark.parametrize(
    "line",
    [
        "--branch develop",
        "--onto=develop the parser",
        "the parser --dry-run",
        "the parser --onto develop",
        "--verbose is broken",
        "-b develop",
        "\u2013branch develop",
    ],
)
@pytest.mark.parametrize("command", ["/agent fix", "/agent plan", "/agent"])
def test_an_option_that_is_not_ours_is_refused_with_the_list(command: str, line: str) -> None:
    found = understood(f"{command} {line}")
    assert found.verb == "help"
    assert "There is no option" in found.problem
    assert "`--base`" in found.problem
    assert "backticks" in found.problem


@pytest.mark.parametrize("name", ["-x;rm", "a..b", "main.lock", "/main", "a//b", "a b", "refs~1", "-"])
def test_a_base_that_is_no_branch_name_is_refused(name: str) -> None:
    assert understood(f"/agent fix --base={name.replace(' ', '?')}").verb == "help"


@pytest.mark.parametrize("dash", ["\u2014", "\u2013"])
def test_a_dash_of_a_phone_is_understood_as_a_typo(dash: str) -> None:
    assert understood(f"/agent fix {dash}model a/b").suggestion == "--model …"


def test_options_are_not_looked_for_below_the_line() -> None:
    assert understood("/agent fix\n--model x/y") == AgentCommand(verb="fix", text="--model x/y")


def test_more_money_is_for_a_paused_job() -> None:
    assert understood("/agent continue --budget +3") == AgentCommand(
        verb="continue", options=CommandOptions(extra=3 * USD)
    )
    assert understood("/agent continue --budget 8") == AgentCommand(
        verb="continue", options=CommandOptions(budget=8 * USD)
    )
    for line in ("fix --budget +3", "do it --budget +3"):
        assert understood(f"/agent {line}").suggestion == "/agent continue --budget +3"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("fix --draft", "`--draft` is not supported: agent-fix's pull requests are always drafts."),
        ("fix the parser --no-draft", "`--no-draft` is not supported"),
        ("fix --model", "`--model` needs a value"),
        ("fix --model --runner x", "`--model` needs a value"),
        ("fix --model=", "`--model` needs a value"),
        ("fix --model a/b --model c/d", "`--model` is given twice"),
        ("fix --model recorded/x", "`--model` must be a live model"),
        ("fix --model ../x", "`--model` must be a model name"),
        ("fix --model a/b --runner $(id)", "`--runner` must be a runner name"),
        ("fix --budget free", "`--budget` must be US dollars"),
        ("fix --budget 0", "`--budget` must be US dollars"),
        ("fix --budget -1", "`--budget` must be US dollars"),
        ("fix --budget 1e309", "`--budget` must be US dollars"),
        ("fix --budget 10001", "`--budget` must be US dollars"),
        ("fix --budget \u0665", "`--budget` must be US dollars"),
        ("fix --attempts many", "`--attempts` must be a number from 1 to 5"),
        ("fix --attempts 6", "`--attempts` must be a number from 1 to 5"),
        ("fix --attempts 0", "`--attempts` must be a number from 1 to 5"),
        ("fix --kind review", "`--kind` must be one of bug, feature, tests"),
        ("fix --modle a/b", "There is no option `--modle`."),
        ("ask", "`/agent ask` needs a question"),
        ("forget", "`/agent forget` needs the number"),
        ("forget it all", "`/agent forget` needs the number"),
        ("forget 0", "`/agent forget` needs the number"),
    ],
)
def test_an_impossible_request_is_an_error(line: str, problem: str) -> None:
    command = understood(f"/agent {line}")
    assert command.verb == "help"
    assert command.problem.startswith(problem)


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("fxi the parser", "fix"),
        ("ifx it", "fix"),
        ("paln", "plan"),
        ("aprove", "approve"),
        ("approvee", "approve"),
        ("statsu", "status"),
        ("sotp", "stop"),
        ("contiune --budget +3", "continue"),
        ("rebsae", "rebase"),
        ("ci fails, fix it", "ci"),
        ("cancel", "stop"),
        ("Resume", "continue"),
        ("restart!", "retry"),
    ],
)
def test_a_typo_is_answered_with_the_suggested_command(line: str, meant: str) -> None:
    command = understood(f"/agent {line}")
    assert (command.verb, command.suggestion) == ("help", f"/agent {meant}")


@pytest.mark.parametrize(
    "line",
    [
        "as discussed, use a dict",
        "if it fails, retry",
        "in the parser too",
        "six tests fail",
        "cancel the order on error",
    ],
)
def test_ordinary_words_are_not_taken_for_typos(line: str) -> None:
    assert understood(f"/agent {line}") == AgentCommand(verb="steer", text=line)


@pytest.mark.parametrize("text", ["/agent", "/agent help", "@agent-fix"])
def test_help_is_given_when_asked_for(text: str) -> None:
    assert understood(text) == AgentCommand(verb="help")


def test_a_comment_is_read_once() -> None:
    """Each decision about a delivery asks for its command again."""
    comment = "/agent fix the rounding\n\n" + "Prose with `code`. " * 20
    assert parse(comment) is parse("".join(comment))


def test_two_commands_are_one_too_many() -> None:
    command = understood("/agent stop\n\nand then\n\n/agent fix")
    assert command.verb == "help"
    assert "several" in command.problem


def test_a_word_of_somebody_elses_cannot_leave_its_code_span() -> None:
    assert understood("/agent fxi`` it").problem == "There is no command `fxi''`."
    assert understood("/agent --modle` x").problem == "There is no option `--modle'`."


ANY_TEXT = st.text() | st.text(alphabet=" \n\t>`~-<!/@#agentfix.=+5&;[]()*_\\", max_size=60)
LINES = st.sampled_from(
    [
        "/agent fix",
        "/agent",
        "@agent-fix stop",
        "> q",
        "```",
        "<!--",
        "-->",
        "    code",
        "- item",
        "",
        "text",
        "`",
        "--",
    ]
)


@given(ANY_TEXT)
def test_every_text_is_a_command_or_none(text: str) -> None:
    command = parse(text)
    assert command is None or AgentCommand.model_validate_json(command.model_dump_json()) == command


@given(ANY_TEXT)
def test_every_text_after_the_address_is_a_command(text: str) -> None:
    assume(not text.strip("\n").startswith(("=", "-")))
    assert parse("/agent " + text.replace("\n", " ").replace("\r", " ")) is not None


@given(st.lists(LINES, max_size=8).map("\n".join))
def test_a_quoted_comment_asks_nothing_however_often_it_is_quoted(text: str) -> None:
    for _ in range(3):
        text = "\n".join(f"> {line}" for line in text.split("\n"))
        assert parse(text) is None


@given(st.lists(LINES, max_size=8).map("\n".join))
def test_below_its_quotation_an_answer_asks_what_it_asks_alone(text: str) -> None:
    quoted = "\n".join(f"> {line}" for line in text.split("\n"))
    assert parse(f"{quoted}\n\n/agent status") == AgentCommand(verb="status")


@given(st.lists(LINES, max_size=8).map("\n".join))
def test_a_fenced_comment_asks_nothing(text: str) -> None:
    assert parse(f"~~~~~\n{text}\n~~~~~") is None


@given(st.sampled_from(COMMAND_NAMES), st.text(alphabet="abc xyz", max_size=30))
def test_a_parsed_command_written_again_means_the_same(verb: str, words: str) -> None:
    first = understood(f"/agent {verb} {words}")
    if first.verb in {"help", "forget"}:
        return
    assert understood(f"/agent {first.verb} {first.options.allow or ''} {first.text}") == first


def test_a_kind_that_is_nearly_right_is_suggested() -> None:
    assert understood("/agent fix --kind test #41").suggestion == "--kind tests …"


@pytest.mark.parametrize(
    ("text", "prompt", "rest"),
    [
        ("/agent fix with speed", "speed", ""),
        ("/agent fix with Speed --attempts 2\nonly the parser", "speed", "only the parser"),
        ("/agent --kind tests fix with speed", None, None),
        ("/agent retry with speed", "speed", ""),
        ("/agent fix with the new API", None, "with the new API"),
        ("/agent fix with care!", None, "with care!"),
        ("/agent with speed", None, "with speed"),
    ],
)
def test_a_prompt_is_chosen_by_words_that_stand_alone(text: str, prompt: str | None, rest: str | None) -> None:
    command = understood(text)
    assert command.options.prompt == prompt
    assert rest is None or command.text == rest


def test_a_path_is_allowed_with_what_is_wanted_after_it() -> None:
    command = understood("/agent allow infra/main.tf raise the limit\nto 5")
    assert (command.verb, command.options.allow, command.text) == ("allow", "infra/main.tf", "raise the limit\n\nto 5")


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("", "needs one path"),
        ("*.tf", "needs one path"),
        ("../x", "needs one path"),
        ("/etc/passwd", "needs one path"),
        (".github/workflows/ci.yml", "which is always protected: only people may change continuous integration"),
        (".GitHub/WorkFlows/", "which is always protected"),
        ("CODEOWNERS", "which is always protected"),
        (".git/config", "which is always protected"),
    ],
)
def test_paths_that_cannot_be_allowed(path: str, problem: str) -> None:
    command = understood(f"/agent allow {path}")
    assert command.verb == "help"
    assert problem in command.problem


@pytest.mark.parametrize("end", ["\u0085", "\u2028", "\u2029"])
@pytest.mark.parametrize("before", ["> Same here.", "> # Heading", "```\nlog", "    code"])
def test_a_separator_that_markdown_does_not_know_ends_no_quote(before: str, end: str) -> None:
    """Quoting a stranger must not give their words the rights of the person who quotes them."""
    assert parse(f"{before}{end}{end}/agent fix also add a package") is None
    assert parse(f"{before}{end}```{end}/agent stop") is None


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("review this", "review"),
        ("Review, please", "review"),
        ("please review this", "review"),
        ("can you just check the parser", "check"),
        ("test it", "test"),
        ("verify:", "verify"),
        ("validate the input", "validate"),
        ("please\n\nexamine", "examine"),
        ("add a test for it", ""),
        ("checks fail, fix them", ""),
        ("reviewers asked for tabs", ""),
        ("please", ""),
        ("", ""),
    ],
)
def test_words_that_ask_for_an_opinion(text: str, word: str) -> None:
    assert asks_for_opinion(text) == word


@pytest.mark.parametrize("word", ["review", "check", "test", "judge", "Review", "test."])
def test_a_word_for_an_opinion_alone_is_no_instruction(word: str) -> None:
    command = understood(f"/agent {word}")
    assert (command.verb, command.suggestion) == ("help", "/agent verify")
