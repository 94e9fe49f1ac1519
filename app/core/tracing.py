"""Records a job's trace for OpenTelemetry, by OTLP over HTTP, if OTEL_* variables ask for it.

    job ─► step ─► chat MODEL (a model call) | execute_tool NAME (the agent's command) | run (the harness's command)

Nothing of OpenTelemetry is imported otherwise.
Names and attributes follow OpenTelemetry's conventions for generative AI. No span contains text of a prompt, an answer,
a command or its output.
"""

import hashlib
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, Self

from app import __version__
from app.core.errors import AgentFixError

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

SpanKind = Literal["internal", "client"]
Value = str | int | float | bool | tuple[str, ...]
Attributes = Mapping[str, Value | None]
"""By OpenTelemetry's names. None and "" are left out."""
NO_ATTRIBUTES: Final[Attributes] = MappingProxyType({})
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
RESOURCE: Final = "OTEL_RESOURCE_ATTRIBUTES"
FLUSH_MILLISECONDS: Final = 5_000

_SLUG = re.compile(r"[a-z_]{1,30}")

_tracer: "ContextVar[Tracer | None]" = ContextVar("tracer", default=None)
logger = logging.getLogger(__name__)


class OpenSpan:
    """A span to which results are added; does nothing if no trace is recorded."""

    def __init__(self, span: "Span | None") -> None:
        self._span = span

    def add(self, attributes: "Attributes") -> None:
        if self._span is not None:
            for name, value in attributes.items():
                if value is not None and value != "":
                    self._span.set_attribute(name, value)

    def failed(self, kind: str) -> None:
        if self._span is not None:
            from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415

            self._span.set_attribute("error.type", kind)
            self._span.set_status(Status(StatusCode.ERROR, kind))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.failed(_kind_of(error))


@contextmanager
def span(name: str, attributes: Attributes = NO_ATTRIBUTES, kind: SpanKind = "internal") -> Iterator[OpenSpan]:
    """Record what happens until the block ends, below the span that is open here."""
    tracer = _tracer.get()
    if tracer is None:
        yield OpenSpan(None)
        return
    from opentelemetry.trace import SpanKind as OtelKind  # noqa: PLC0415

    chosen = OtelKind.CLIENT if kind == "client" else OtelKind.INTERNAL
    started = tracer.start_as_current_span(name, kind=chosen, record_exception=False, set_status_on_exception=False)
    with started as own, OpenSpan(own) as opened:
        opened.add(attributes)
        yield opened


@contextmanager
def job_trace(job: str, environment: Mapping[str, str], attributes: Attributes = NO_ATTRIBUTES) -> Iterator[OpenSpan]:
    """Record a job's trace, if it is asked for. All processes that work on one job add to the same trace."""
    if not is_asked_for(environment):
        yield OpenSpan(None)
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator  # noqa: PLC0415
    except ModuleNotFoundError as error:
        logger.warning("no trace is recorded: install agent-fix[otel] (%s is missing)", error.name)
        yield OpenSpan(None)
        return

    class JobIds(RandomIdGenerator):
        def generate_trace_id(self) -> int:
            return int.from_bytes(hashlib.sha256(job.encode()).digest()[:16], "big")

    protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environment.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if protocol and protocol.strip() != "http/protobuf":
        logger.warning("traces are sent by OTLP over HTTP (http/protobuf); %r is not supported", protocol)
    named = {"service.version": __version__}
    if not environment.get("OTEL_SERVICE_NAME") and "service.name=" not in environment.get(RESOURCE, ""):
        named["service.name"] = "agent-fix"
    provider = TracerProvider(resource=Resource.create(named), id_generator=JobIds(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    before = _tracer.set(provider.get_tracer("agent-fix", __version__))
    agent: Attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "agent-fix",
        "gen_ai.conversation.id": job,
    }
    try:
        with span("invoke_agent agent-fix", {**agent, **attributes}) as opened:
            yield opened
    finally:
        _tracer.reset(before)
        provider.force_flush(FLUSH_MILLISECONDS)
        provider.shutdown()


def is_asked_for(environment: Mapping[str, str]) -> bool:
    """By the standard variables: an endpoint, or `otlp` as the exporter of traces, and the SDK not disabled."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().casefold() == "true":
        return False
    if exporters := environment.get("OTEL_TRACES_EXPORTER", "").strip().casefold():
        return "otlp" in (name.strip() for name in exporters.split(","))
    return any(environment.get(name, "").strip() for name in ENDPOINTS)


def _kind_of(error: BaseException) -> str:
    """A low-cardinality name for the error. Only short lower-case words are passed on; an error's message may contain
    a secret."""
    reason = getattr(error, "reason", "")
    if isinstance(error, AgentFixError) and isinstance(reason, str) and _SLUG.fullmatch(reason):
        return reason
    return type(error).__name__
