"""Reads who asks, what agent-fix works as and where; tells the story; removes what it made."""

import os
import signal
import sys
from types import FrameType

from tests.live.person import Person, Refused
from tests.live.story import Story, Wrong, removed_afterwards
from tests.support.conversation_model import ConversationModel
from tests.support.sample_project import think

USAGE = """make live tells one story on the real GitHub: label, draft, comment, commit, close. It needs

  LIVE_REPOSITORY=OWNER/NAME   a scratch repository with a README and nothing else
  GITHUB_TOKEN                 yours, with write access there: you label and comment
  AGENT_FIX_APP_ID and AGENT_FIX_PRIVATE_KEY of an App that is installed there, or AGENT_FIX_GITHUB_TOKEN of another
                               account with write access: as that agent-fix works; what it says itself starts nothing

GITHUB_API_URL and GITHUB_SERVER_URL name another GitHub. The model's answers are scripted and cost nothing.
"""


def main() -> int:
    given = {name: os.environ.get(name, "").strip() for name in ("LIVE_REPOSITORY", "GITHUB_TOKEN")}
    worker = {
        name: value
        for name in ("AGENT_FIX_APP_ID", "AGENT_FIX_PRIVATE_KEY", "AGENT_FIX_GITHUB_TOKEN")
        if (value := os.environ.get(name, "").strip())
    }
    if not all(given.values()) or not worker or given["LIVE_REPOSITORY"].count("/") != 1:
        print(USAGE, file=sys.stderr)
        return 2
    api = os.environ.get("GITHUB_API_URL", "https://api.github.com")
    site = os.environ.get("GITHUB_SERVER_URL", "https://github.com")
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        person = Person(api, site, given["LIVE_REPOSITORY"], given["GITHUB_TOKEN"])
        with ConversationModel(think) as model:
            keys = f"OPENAI_API_KEY=sk-scripted\nOPENAI_API_BASE={model.url}\n"
            story = Story(person, given["LIVE_REPOSITORY"], api, site, worker, keys)
            with removed_afterwards(story, _ignore_interrupts):
                story.tell()
    except (Wrong, Refused) as error:
        print(f"FAILED: {error}", flush=True)
        return 1
    except KeyboardInterrupt:
        print("Interrupted.", flush=True)
        return 130
    print("The whole story went as it should.", flush=True)
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _ignore_interrupts() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


sys.exit(main())
