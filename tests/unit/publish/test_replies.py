"""Answers without a job: short, with the command to try, and harmless whatever they have to quote (S23, S24)."""

import pytest

from app.config.repository import SOURCE, parse_config
from app.core.errors import ConfigError
from app.publish import replies
from app.triggers.commands import COMMAND_HELP, COMMAND_NAMES, parse
from tests.unit.publish.test_markdown import CASES, check, shown


@pytest.mark.parametrize("case", CASES)
def test_quoted_text_is_escaped(case: str) -> None:
    for made in (
        replies.forge_refusal(case, case),
        replies.status("t1x9", "error", case),
        replies.unreadable_plan(case),
        replies.plan_edited_by_stranger(case),
        replies.unknown_runner(case, frozenset({"native"})),
        replies.broken_config(case, SOURCE),
    ):
        check(made)


@pytest.mark.parametrize("case", CASES)
def test_mistyped_command_is_quoted_escaped(case: str) -> None:
    for text in (f"/agent {case}", f"/agent fix --model {case}", f"/agent fix --modle {case}", f"/agent forget {case}"):
        command = parse(text)
        if command is not None and command.verb == "help":
            check(replies.unclear_command(command.problem, command.suggestion, commands=COMMAND_HELP))


@pytest.mark.parametrize("case", CASES)
def test_broken_file_is_quoted_escaped(case: str) -> None:
    try:
        parse_config(f'"{case}": {case}\n'.encode("utf-8", "replace"))
    except ConfigError as error:
        check(replies.broken_config(error.message, SOURCE))


def test_reply_shows_the_command_to_try() -> None:
    assert replies.reply("No job is paused.", "/agent status") == "No job is paused.\n\nTry `/agent status`.\n"
    assert replies.reply("No.") == "No.\n"
    assert replies.refused("It is closed; reopen it first.") == "Nothing was started: it is closed; reopen it first.\n"


def test_help_names_every_command() -> None:
    text = shown(replies.help_text(COMMAND_HELP))
    for verb in COMMAND_NAMES:
        assert f"/agent {verb}" in text


def test_unclear_command_gets_a_suggestion_and_the_command_list() -> None:
    text = replies.unclear_command("There is no command `stopp`.", "/agent stop", commands=COMMAND_HELP)
    assert text.startswith("There is no command `stopp`.\n\nTry `/agent stop`.\n\nThese are the commands:")
    assert replies.unclear_command("", commands=COMMAND_HELP).startswith("These are the commands:")


def test_status_reply_shows_the_state_and_a_link() -> None:
    link = "https://forge.example/ada/sample/issues/1#issuecomment-5"
    text = replies.status("t1x9", "working", "", link)
    assert text == f"Job `t1x9` is working.\n\nSee [its status]({link}).\n"
    assert replies.status("t1x9", "stopped", "Stopped by ada.") == ("Job `t1x9` was stopped.\n\nStopped by ada.\n")
