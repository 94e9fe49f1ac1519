"""What a pull request shows of examples: program, before and after; all of them to be run again as copied."""

from app.core.examples import Because, JudgedExample, PlanExamples, ProgramRun, Review
from app.core.verification import Verification
from app.publish.verification_text import Caps, about_review, all_examples, example_table

CAPS = Caps(output=2_000, items=20, text=500)


def example(name: str, today: str, after: str, **changes: object) -> JudgedExample:
    values: dict[str, object] = {
        "name": name,
        "behaviour": f"Behaviour {name}.",
        "because": Because(quote="It must be so.", source="issue"),
        "run": "python",
        "program": f"print(f({name}))",
        "stdout": "right\n",
        "quoted": True,
        "base": (ProgramRun(stdout=f"{today}\n"),),
        "change": (ProgramRun(stdout=f"{after}\n"),),
    }
    return JudgedExample.model_validate(values | changes)


def facts(*examples: JudgedExample, review: Review | None = None) -> Verification:
    return Verification(verdict="tested", examples=PlanExamples(examples=examples), review=review)


def test_a_failing_example_comes_first_then_hidden_ones_that_turn() -> None:
    examples = (example("1", "wrong", "right"), example("2", "wrong", "right", hidden=True), example("3", "a", "b"))
    rows = example_table(facts(*examples), CAPS).splitlines()[2:]
    assert [row.partition(".")[0] for row in rows] == ["| Behaviour 3", "| Behaviour 2", "| Behaviour 1"]
    assert "`wrong` | `right` |" in rows[1]


def test_every_example_is_there_whole() -> None:
    text = all_examples(facts(example("1", "wrong", "right", disputed="The issue leaves that open.")), CAPS)
    assert "print(f(1))" in text
    assert "Because issue says: It must be so." in text
    assert "Disputed by the agent" in text


def test_reviewer_is_mentioned_whatever_became_of_it() -> None:
    assert about_review(facts()) == ""
    assert "No reviewer: it was off." in about_review(facts(review=Review(absent="it was off.")))
    assert "wrote none: All are the same." in about_review(facts(review=Review(nothing="All are the same.")))
    found = Review(examples=(example("r1", "right", "right"), example("r2", "right", "wrong")))
    assert about_review(facts(review=found)) == "A reviewer wrote 2 counter-examples; 1 of them hold."


def test_markup_of_a_program_or_its_output_is_text() -> None:
    hostile = example("1", "</details><img src=x>", "| a | b |\n```\n@everyone")
    text = example_table(facts(hostile), CAPS) + all_examples(facts(hostile), CAPS)
    assert "<img" not in text.replace("`</details><img src=x>`", "")
