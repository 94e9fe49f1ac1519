"""No effect of any kind carries one of our own secrets to GitHub (S11)."""

from datetime import UTC, datetime
from typing import Any, get_args

import pytest

from app.core.redaction import Redactor
from app.core.task import Person
from app.github.base import ReactionTarget
from app.publish.effects import CommitRecipe, Effect
from app.publish.secret_scan import HELD_BACK, SecretFound, SecretScan

SECRET = "sk-live-0123456789abcdefXYZ"
KINDS: tuple[Any, ...] = get_args(get_args(Effect)[0])
RECIPE = CommitRecipe(
    patch="d", message="m", author=Person(name="n", email="e@example.org"), date=datetime(2026, 1, 1, tzinfo=UTC)
)
OTHERS = {
    "recipe": RECIPE,
    "target": ReactionTarget(kind="issue", id=1),
    "content": "eyes",
    "channel": "webhook",
    "state": "no_change",
    "issue": 1,
    "comment": 1,
}
TEXTS = [
    (kind, name)
    for kind in KINDS
    for name, field in kind.model_fields.items()
    if field.annotation is str or str(field.annotation) == "tuple[str, ...]"
]


def made(kind: Any, name: str, value: str) -> Effect:
    required = [each for each, field in kind.model_fields.items() if field.is_required()]
    values = {each: OTHERS.get(each, "text") for each in required}
    several = kind.model_fields[name].annotation is not str
    return kind(**values | {name: (value,) if several else value})  # type: ignore[no-any-return]


@pytest.mark.parametrize(("kind", "name"), TEXTS, ids=lambda each: getattr(each, "__name__", each))
def test_every_text_of_every_effect_is_searched(kind: Any, name: str) -> None:
    scan = SecretScan(Redactor((SECRET,)))
    clean = made(kind, name, "what was run")
    assert scan.checked("job", clean) == clean
    try:
        published = scan.checked("job", made(kind, name, f"before {SECRET} after"))
    except SecretFound:
        return
    assert SECRET not in published.model_dump_json()


def test_the_texts_of_a_verdict_are_replaced() -> None:
    kind = next(kind for kind in KINDS if kind.__name__ == "UpdateVerdict")
    found = SecretScan(Redactor((SECRET,))).checked("job", made(kind, "verification", f"output: {SECRET}"))
    assert found.model_dump() == {
        "kind": "verdict",
        "branch": "text",
        "banner": HELD_BACK,
        "verification": HELD_BACK,
        "shorter": (),
    }


@pytest.mark.parametrize(("kind", "name"), TEXTS, ids=lambda each: getattr(each, "__name__", each))
def test_text_that_looks_like_a_secret_is_masked(kind: Any, name: str) -> None:
    if kind.__name__ in {"OpenDraftPullRequest", "OpenEarlyDraft", "PushCommits"}:
        return  # the process that wrote them masked it, because a commit's id depends on its message
    token = "ghp_" + "Zk9a" * 9
    published = SecretScan(Redactor()).checked("job", made(kind, name, f"before {token} after"))
    is_text = name == "shorter" or any(hasattr(limit, "max_length") for limit in kind.model_fields[name].metadata)
    assert (token in published.model_dump_json()) is not is_text
