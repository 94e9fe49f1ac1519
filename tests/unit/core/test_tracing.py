"""Traces, as a receiver of OTLP over HTTP reads them with OpenTelemetry's own types."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from app.core.errors import AgentFixError
from app.core.tracing import is_asked_for, job_trace, span
from app.llm.errors import ModelError


class OtlpReceiver(ThreadingHTTPServer):
    """Accepts traces on 127.0.0.1."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.received: list[ExportTraceServiceRequest] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def spans(self) -> list[Span]:
        scopes = [scope for each in self.received for found in each.resource_spans for scope in found.scope_spans]
        return [one for scope in scopes for one in scope.spans]


class _Handler(BaseHTTPRequestHandler):
    server: OtlpReceiver

    def do_POST(self) -> None:
        assert self.path == "/v1/traces"
        assert self.headers["content-type"] == "application/x-protobuf"
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.received.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    server = OtlpReceiver()
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.endpoint)
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def attributes(found: Span) -> dict[str, object]:
    values = {each.key: each.value for each in found.attributes}
    return {key: getattr(value, str(value.WhichOneof("value"))) for key, value in values.items()}


async def test_a_job_is_one_tree_of_spans(receiver: OtlpReceiver) -> None:
    async def call(number: int) -> None:
        with span("chat m", {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}, "client") as traced:
            await asyncio.sleep(0)
            traced.add(
                {"gen_ai.usage.input_tokens": number, "gen_ai.response.finish_reasons": ("stop",), "nothing": None}
            )

    with job_trace("j1", {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint}, {"agent_fix.kind": "bug"}) as root:
        with span("step plan"):
            await asyncio.gather(call(1), asyncio.create_task(call(2)))
        root.add({"agent_fix.exit_status": "pr_opened"})
    by_name = {each.name: each for each in receiver.spans}
    job, step, chat = by_name["invoke_agent agent-fix"], by_name["step plan"], by_name["chat m"]
    assert len({each.trace_id for each in receiver.spans}) == 1
    assert (job.parent_span_id, step.parent_span_id, chat.parent_span_id) == (b"", job.span_id, step.span_id)
    assert (job.kind, chat.kind) == (Span.SPAN_KIND_INTERNAL, Span.SPAN_KIND_CLIENT)
    assert attributes(job) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "agent-fix",
        "gen_ai.conversation.id": "j1",
        "agent_fix.kind": "bug",
        "agent_fix.exit_status": "pr_opened",
    }
    tokens = [attributes(each)["gen_ai.usage.input_tokens"] for each in receiver.spans if each.name == "chat m"]
    assert sorted(map(str, tokens)) == ["1", "2"]
    resource = receiver.received[0].resource_spans[0].resource
    assert {each.key: each.value.string_value for each in resource.attributes}["service.name"] == "agent-fix"


def test_processes_that_continue_a_job_add_to_its_trace(receiver: OtlpReceiver) -> None:
    for _ in range(2):
        with job_trace("j1", {"OTEL_TRACES_EXPORTER": "otlp"}):
            pass
    with job_trace("j2", {"OTEL_TRACES_EXPORTER": "otlp"}):
        pass
    assert len(receiver.spans) == 3
    assert len({each.trace_id for each in receiver.spans}) == 2


def test_an_error_is_named_and_never_quoted(receiver: OtlpReceiver) -> None:
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint}
    with pytest.raises(AgentFixError), job_trace("j1", environment), span("chat m"):
        raise ModelError("somebody's words", kind="retry", reason="timeout")
    found = {each.name: each for each in receiver.spans}
    assert attributes(found["chat m"])["error.type"] == "timeout"
    with pytest.raises(AgentFixError), job_trace("j2", environment), span("chat n"):
        raise ModelError("", kind="retry", reason="ghp_Canary0123456789")
    found = {each.name: each for each in receiver.spans}
    assert attributes(found["chat n"])["error.type"] == "ModelError"
    assert found["chat m"].status.code == 2
    assert b"somebody's words" not in b"".join(each.SerializeToString() for each in receiver.received)


@pytest.mark.parametrize(
    ("environment", "asked"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "console, otlp"}, True),
    ],
)
def test_traces_are_asked_for_by_the_standard_variables(environment: dict[str, str], *, asked: bool) -> None:
    assert is_asked_for(environment) is asked


def test_nothing_is_imported_where_no_trace_is_asked_for() -> None:
    code = (
        "import sys\nfrom app.core.tracing import job_trace, span\n"
        "with job_trace('j1', {}) as root, span('x', {'gen_ai.tool.name': 'bash'}) as inner:\n    inner.add({'a': 1})\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
