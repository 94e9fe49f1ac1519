"""The plan, which people can see, approve and edit before work begins."""

from pydantic import Field

from app.core.record import Record


class Plan(Record):
    """Structured output of the planning call; `reproduce` and `verify` are shell commands or empty."""

    summary: str = Field(description="One or two sentences: what is wrong and what will be changed.")
    hypotheses: tuple[str, ...] = Field(default=(), description="Likely causes, most likely first.")
    candidate_files: tuple[str, ...] = Field(default=(), description="Paths likely to change or to be read.")
    steps: tuple[str, ...] = Field(default=(), description="Short imperative steps, in order.")
    questions: tuple[str, ...] = Field(
        default=(),
        description="Only what the work cannot sensibly begin without and only people can answer; else empty.",
    )
    reproduce: str = Field(default="", description="A command that fails now and should pass afterwards.")
    verify: str = Field(default="", description="A command that shows nothing else broke.")
