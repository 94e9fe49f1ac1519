"""What the log shows: one escaped line a record, fields, traces; never a secret, a prompt, or a control character."""

import base64
import io
import json
import logging
import warnings
from collections.abc import Iterator

import pytest

from app.core.log import Format, configure
from app.core.redaction import Redactor

SECRET = "".join(("gh", "p_", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"))


@pytest.fixture(autouse=True)
def _leave_logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)


def logged(form: Format = "json", level: int = logging.INFO) -> io.StringIO:
    stream = io.StringIO()
    configure(level=level, form=form, redactor=Redactor([SECRET]), stream=stream)
    return stream


def records(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_records_have_level_logger_message_and_fields() -> None:
    stream = logged()
    logging.getLogger("jobs").warning("took %d s", 3, extra={"job": "j-1", "steps": 4, "resumed": False, "cap": None})
    (record,) = records(stream)
    assert str(record.pop("time")).endswith("+00:00")
    assert record == {
        "level": "warning",
        "logger": "jobs",
        "message": "took 3 s",
        "job": "j-1",
        "steps": 4,
        "resumed": False,
        "cap": None,
    }


def test_text_records_are_readable_lines() -> None:
    stream = logged("human")
    logging.getLogger("jobs").info("ready\nsteady", extra={"job": "j-1", "title": 'a "b" c'})
    assert stream.getvalue()[8:] == ' info jobs: ready\\nsteady job=j-1 title="a \\"b\\" c"\n'


@pytest.mark.parametrize("form", ["human", "json"])
def test_secrets_are_redacted(form: Format) -> None:
    stream = logged(form)
    log = logging.getLogger("publish")
    log.info("token %s", SECRET)
    log.info("header", extra={"authorization": "Basic " + base64.b64encode(f"x:{SECRET}".encode()).decode()})
    log.info("half", extra={"value": SECRET[9:]})
    log.info("%s", {"nested": [SECRET]})
    try:
        int(SECRET)
    except ValueError:
        log.exception("failed")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(f"deprecated {SECRET}", stacklevel=1)
    written = stream.getvalue()
    assert not Redactor([SECRET]).found(written)
    assert "[redacted]" in written
    assert "ValueError" in written


@pytest.mark.parametrize("form", ["human", "json"])
def test_a_record_cannot_forge_another_or_reach_the_terminal(form: Format) -> None:
    stream = logged(form)
    text = "x\n12:00:00 error jobs: forged\r\x1b]52;c;aGk=\x07\x1b[31m\u202e\u2028::stop-commands::y"
    logging.getLogger("jobs").info(text, extra={"field": text})
    written = stream.getvalue()
    assert written.count("\n") == 1
    assert written.endswith("\n")
    assert not any(hidden in written for hidden in "\r\x1b\x07\u202e\u2028")


def test_message_bodies_are_logged_as_lengths() -> None:
    stream = logged()
    logging.getLogger("model").info("asked", extra={"prompt": "private " * 100, "messages": ["private"]})
    (record,) = records(stream)
    assert "private" not in stream.getvalue()
    assert record["prompt"] == "<800 characters>"


def test_long_texts_are_cut_with_a_count() -> None:
    stream = logged()
    logging.getLogger("jobs").info("y" * 5_000)
    (record,) = records(stream)
    assert str(record["message"]).endswith("y… (3,000 more characters)")
    assert len(str(record["message"])) < 2_100


def test_libraries_log_from_warning_level() -> None:
    stream = logged(level=logging.DEBUG)
    logging.getLogger("httpx").debug("POST with headers and body")
    logging.getLogger("LiteLLM").warning("careful")
    logging.getLogger("jobs").debug("ours")
    assert [record["message"] for record in records(stream)] == ["careful", "ours"]


def test_configuring_twice_logs_once() -> None:
    logged()
    stream = logged()
    logging.getLogger("jobs").info("once")
    assert len(records(stream)) == 1
