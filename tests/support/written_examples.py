"""Examples as a model hands them in with its plan."""

from typing import Any


def example(expression: str, printed: str, behaviour: str, quote: str = "", imports: str = "") -> dict[str, Any]:
    """A Python program that prints the value of an expression: with a quote, something else today."""
    return {
        "behaviour": behaviour,
        "because": {"quote": quote, "source": "issue" if quote else "today"},
        "kind": "shows" if quote else "keeps",
        "run": "python",
        "program": f"{imports}\nprint({expression})\n",
        "stdout": f"{printed}\n",
    }
