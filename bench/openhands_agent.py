"""One task for the OpenHands SDK's default agent, in its own Python: openhands_agent.py TASK CHECKOUT MODEL URL KEY."""

import sys
from pathlib import Path

from openhands.sdk import LLM, Conversation  # type: ignore[import-not-found]
from openhands.tools.preset.default import get_default_agent  # type: ignore[import-not-found]
from pydantic import SecretStr


def main(task: str, checkout: str, model: str, url: str, key: str) -> None:
    llm = LLM(model=model, base_url=url, api_key=SecretStr(key), usage_id="agent", num_retries=0)
    agent = get_default_agent(llm=llm, cli_mode=True)
    conversation = Conversation(agent=agent, workspace=checkout, visualizer=None, max_iteration_per_run=1_000)
    conversation.send_message(Path(task).read_text("utf-8"))
    conversation.run()
    conversation.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
