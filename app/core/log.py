"""The process's log: one escaped line per record, without secrets, readable or as JSON."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal, TextIO

from app.core.redaction import Redactor
from app.core.text import clip, plain

Format = Literal["human", "json"]
MAX_CHARACTERS = 2_000
"""Of one message or field; a longer one is cut and says how long it was."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_BODIES = frozenset({"answer", "body", "completion", "content", "messages", "output", "prompt", "request", "response"})
_CHATTY = (
    "LiteLLM",
    "asyncio",
    "dbos",
    "e2b",
    "git",
    "githubkit",
    "httpcore",
    "httpx",
    "openai",
    "urllib3",
    "uvicorn.access",
)


def configure(
    *, level: int = logging.INFO, form: Format = "human", redactor: Redactor, stream: TextIO | None = None
) -> None:
    """Send every logger of the process to one stream (default: standard error) through the redactor. Idempotent.

    Third-party libraries are logged from WARNING up, because below it they log requests with headers and bodies.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines(redactor) if form == "json" else HumanLines(redactor))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    for name in _CHATTY:
        library = logging.getLogger(name)
        library.setLevel(max(level, logging.WARNING))
        library.handlers.clear()
        library.propagate = True


class _LineFormatter(logging.Formatter):
    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def _message(self, record: logging.LogRecord) -> str:
        return self._safe(clip(record.getMessage(), MAX_CHARACTERS))

    def _trace(self, record: logging.LogRecord) -> str:
        parts = [self.formatException(record.exc_info)] if record.exc_info else []
        parts += [self.formatStack(record.stack_info)] if record.stack_info else []
        return self._safe("\n".join(parts))

    def _fields(self, record: logging.LogRecord) -> dict[str, str | int | float | bool | None]:
        """The record's `extra` fields.

        Bodies are reduced to their length, because prompts contain other people's text.
        """
        fields: dict[str, str | int | float | bool | None] = {}
        for name, value in vars(record).items():
            if name in _STANDARD or name.startswith("_"):
                continue
            if name in _BODIES:
                fields[name] = f"<{len(str(value)):,} characters>"
            elif value is None or isinstance(value, int | float):
                fields[name] = value
            else:
                fields[name] = self._safe(clip(str(value), MAX_CHARACTERS))
        return fields

    def _safe(self, text: str) -> str:
        return plain(self._redactor.redact(text))


class JsonLines(_LineFormatter):
    """Formats a record as one JSON object per line: time, level, logger, message, fields, and any traceback."""

    def format(self, record: logging.LogRecord) -> str:
        shown: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._message(record),
        }
        shown |= {name: value for name, value in self._fields(record).items() if name not in shown}
        if trace := self._trace(record):
            shown["trace"] = trace
        return json.dumps(shown, ensure_ascii=False)


class HumanLines(_LineFormatter):
    """Formats a record as `12:34:56 warning jobs: message key=value`.

    Line ends inside are shown as `\\n`; a traceback is indented below.
    """

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        fields = "".join(f" {name}={_quoted(value)}" for name, value in self._fields(record).items())
        message = self._message(record).replace("\n", "\\n")
        line = f"{time} {record.levelname.lower()} {record.name}: {message}{fields}"
        trace = self._trace(record)
        return line + ("\n  " + trace.replace("\n", "\n  ") if trace else "")


def _quoted(value: object) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text or set(text) & set(' "=\n\t') else text
