"""Recorded answers: `--model recorded/FILE` plays them back, and `--record FILE` writes such a file.

The file is JSON Lines: first what was recorded, then one answer per line under the name of its durable step.
"""

import asyncio
import os
import threading
from dataclasses import fields
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from app.core.record import Record
from app.llm.base import Model, ModelAnswer, ModelInfo, ModelRequest, OnText
from app.llm.errors import ModelError
from app.llm.prices import DEFAULT_OUTPUT, DEFAULT_WINDOW
from app.llm.tokens import estimate_tokens

PREFIX = "recorded/"
PIECES = 4
"""Pieces in which an answer's text is streamed."""


class RecordingHeader(Record):
    """The first line. Sizes and prices (micro-dollars per million tokens) are those of the recorded model."""

    recording: Literal[1] = 1
    model: str
    note: str = ""
    context_window: int = DEFAULT_WINDOW
    max_output: int = DEFAULT_OUTPUT
    input_price: int = 0
    cached_price: int = 0
    output_price: int = 0
    vision: bool = False


_RECORDED = {each.name for each in fields(ModelInfo)} & RecordingHeader.model_fields.keys()


class RecordingLine(Record):
    """One answer. `key` is the step's name, so that a resumed job finds its position without extra state."""

    key: str = Field(min_length=1)
    answer: ModelAnswer


class RecordedModel:
    """Plays a recording: each step's answer by the step's name, whatever this process asked before."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._header, self._answers = _read(path)
        self._info = ModelInfo(f"{PREFIX}{self._header.model}", **self._header.model_dump(include=_RECORDED))

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def note(self) -> str:
        """The recording's description of itself."""
        return self._header.note

    def warm(self) -> None:
        """Do nothing: a recording needs no preparation."""

    async def check(self) -> None:
        if not self._answers:
            raise _broken(self._path, "has no answers")

    def count(self, request: ModelRequest) -> int:
        return estimate_tokens(request)

    async def complete(self, request: ModelRequest, *, key: str = "", on_text: OnText | None = None) -> ModelAnswer:
        answer = self._answers.get(key)
        if answer is None:
            last, called = next(reversed(self._answers), "none"), key or "a call without a name"
            raise ModelError(
                f"The recording {self._path.name} has no answer for {called}; its last is {last}.",
                kind="give_up",
                reason="recording_ended",
                hint="The job took other steps than the recorded one. Use a real model with --model.",
            )
        if on_text is not None:
            size = max(1, -(-len(answer.content) // PIECES))
            for start in range(0, len(answer.content), size):
                on_text(answer.content[start : start + size])
        return answer.model_copy(update={"model": answer.model or self._header.model})


class ModelRecorder:
    """Writes a model's answers to a file that RecordedModel plays; appends if the file exists.

    `of` is the model named in the file, if the answers of several models go to one file.
    """

    def __init__(self, model: Model, path: Path, *, note: str = "", of: ModelInfo | None = None) -> None:
        self._model = model
        self._path = path
        self._note = note
        self._of = of or model.info
        self._lock = threading.Lock()

    @property
    def info(self) -> ModelInfo:
        return self._model.info

    def warm(self) -> None:
        self._model.warm()

    async def check(self) -> None:
        """Check the file first, then the model: an answer that cannot be stored must not be bought."""
        try:
            await asyncio.to_thread(self._prepare)
        except OSError as error:
            message = f"The recording {self._path} cannot be written: {error.strerror}."
            raise ModelError(message, kind="give_up", reason="recording_unwritable") from error
        await self._model.check()

    def count(self, request: ModelRequest) -> int:
        return self._model.count(request)

    async def complete(self, request: ModelRequest, *, key: str = "", on_text: OnText | None = None) -> ModelAnswer:
        answer = await self._model.complete(request, key=key, on_text=on_text)
        await asyncio.to_thread(self._append, RecordingLine(key=key or "call", answer=answer))
        return answer

    def _prepare(self) -> None:
        """Create the file, or check that it is a recording of the same model; no other file is written to.

        A last line that a crash cut short is dropped.
        """
        with self._lock, self._path.open("a+b") as file:
            file.seek(0)
            kept = file.read()
            if not kept:
                file.write(self._header().model_dump_json().encode() + b"\n")
                return
            try:
                header = RecordingHeader.model_validate_json(kept.partition(b"\n")[0])
            except ValidationError as error:
                raise _broken(self._path, "is another kind of file") from error
            if header.model != self._of.name:
                raise _broken(self._path, f"is of {header.model}, not of {self._of.name}")
            file.truncate(kept.rfind(b"\n") + 1)

    def _append(self, line: RecordingLine) -> None:
        with self._lock, self._path.open("ab") as file:
            if file.tell() == 0:
                file.write(self._header().model_dump_json().encode() + b"\n")
            file.write(line.model_dump_json().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _header(self) -> RecordingHeader:
        info = self._of
        recorded = {name: getattr(info, name) for name in _RECORDED}
        return RecordingHeader(model=info.name, note=self._note, **recorded)


def _read(path: Path) -> tuple[RecordingHeader, dict[str, ModelAnswer]]:
    """Header and answers; of two answers with one key the later counts (the call was repeated)."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise _broken(path, f"cannot be read: {reason}") from error
    header, answers = None, dict[str, ModelAnswer]()
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            if header is None:
                header = RecordingHeader.model_validate_json(line)
            else:
                entry = RecordingLine.model_validate_json(line)
                answers.pop(entry.key, None)
                answers[entry.key] = entry.answer
        except ValidationError as error:
            raise _broken(path, f"is not a valid recording: line {number}: {error.errors()[0]['msg']}") from error
    if header is None:
        raise _broken(path, "is empty")
    return header, answers


def _broken(path: Path, what: str) -> ModelError:
    return ModelError(
        f"The recording {path} {what}.",
        kind="give_up",
        reason="bad_recording",
        hint="Record one with --record FILE.",
    )
