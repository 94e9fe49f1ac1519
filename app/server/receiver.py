"""The receiver: accepts webhooks and serves the pages, with the webhook secret and the database, but without GitHub."""

import asyncio
import hashlib
import hmac
import logging
import re
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import parse_qs

import uvicorn
from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from app.config.settings import Settings
from app.core.errors import ExitCode
from app.jobs.inbox import BatchWriter, Delivery, InboxError, InboxHealth, StoreOutcome
from app.jobs.operations import TOO_LONG
from app.jobs.schema import prepare_tables
from app.jobs.tables import DatabaseError
from app.server.context import ServerContext
from app.server.http_limits import bounded_server
from app.server.supervisor import address_of, listen
from app.server.web.site import site
from app.triggers import events

if TYPE_CHECKING:  # its library is imported only if people sign in with GitHub
    from app.github.user_sign_in import GitHubSignIn

_SHA256 = re.compile(r"sha256=([0-9a-f]{64})")


class SignatureCheck:
    """The signature of one body, computed while it arrives, for each valid secret."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._digests = [hmac.new(secret.encode(), digestmod=hashlib.sha256) for secret in secrets]

    def update(self, chunk: bytes) -> None:
        for digest in self._digests:
            digest.update(chunk)

    def matches(self, header: str) -> bool:
        """True if `X-Hub-Signature-256` matches. All secrets are compared, so timing does not reveal which one."""
        found = _SHA256.fullmatch(header)
        given = found[1] if found else ""
        right = False
        for digest in self._digests:
            right |= hmac.compare_digest(digest.hexdigest(), given)
        return right


MAX_BYTES: Final = 25 * 1024 * 1024
"""GitHub's own cap of a payload."""
MAX_BYTES_AT_ONCE: Final = 4 * MAX_BYTES
"""Of all bodies that are being received."""
SECONDS_TO_ARRIVE: Final = 10.0
LATE: Final = timedelta(minutes=10)
FRESH: Final = timedelta(seconds=1)
_LARGE: Final = 1024 * 1024
_JSON, _FORM = "application/json", "application/x-www-form-urlencoded"
_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
_EVENT = re.compile(r"[a-z0-9_]{1,64}")

log = logging.getLogger(__name__)


class DeliveryStore(Protocol):
    """What the receiver needs from an inbox."""

    def store(self, arrived: Sequence[Delivery]) -> list[StoreOutcome]: ...

    def health(self) -> InboxHealth: ...


class DeliveryRefused(Exception):  # noqa: N818  # an answer
    """A request that is not stored, with its HTTP status and the word under which it is counted."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


def receiver(
    secrets: Sequence[str],
    inbox: DeliveryStore,
    clock: Callable[[], datetime],
    *,
    stalled: Callable[[], timedelta | None] = lambda: None,
) -> FastAPI:
    """Build the web application. Its answers are counted in `app.state.counts`, by word.

    `stalled` returns how long a job has been stalled.
    """
    endpoint = WebhookEndpoint(secrets, BatchWriter(inbox.store))

    async def livez(_: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    routes = [
        Route("/webhook", endpoint.answer, methods=["POST"]),
        Route("/livez", livez),
        Route("/healthz", Probe(partial(liveness, stalled), clock).answer),
        Route("/readyz", Probe(partial(readiness, inbox, clock), clock).answer),
    ]
    # Plain routes without declared bodies: nothing of a delivery is parsed before its signature is checked.
    app = FastAPI(routes=[*routes], docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.counts = endpoint.counts
    return app


class WebhookEndpoint:
    """Accepts deliveries; its counters and limits span all requests."""

    def __init__(self, secrets: Sequence[str], writer: BatchWriter, *, most_at_once: int = MAX_BYTES_AT_ONCE) -> None:
        self._secrets = tuple(secrets)
        self._writer = writer
        self._most_at_once = most_at_once
        self._arriving = 0
        self.counts: Counter[str] = Counter()

    async def answer(self, request: Request) -> JSONResponse:
        try:
            status, answer = 202, await self._take(request)
        except DeliveryRefused as refused:
            status, answer = refused.status, refused.why
            log.info("webhook refused: %s", answer, extra={"status": status})
        except InboxError as error:
            status, answer = 503, "not_stored"
            log.error("delivery not stored: %s", error.message)  # noqa: TRY400  # the message says it
        self.counts[answer] += 1
        return JSONResponse({"status": answer}, status_code=status, headers=_headers(status))

    async def _take(self, request: Request) -> str:
        form = _check_head(request)
        raw = bytearray()
        try:
            await self._receive(request, raw, form=form)
            name, ident = _names(request)
            return await self._understand(name, ident, _form_payload(raw) if form else bytes(raw))
        finally:
            self._arriving -= len(raw)

    async def _understand(self, name: str, ident: str, body: bytes) -> str:
        try:
            decoded = await asyncio.to_thread(events.decode, body) if len(body) > _LARGE else events.decode(body)
        except ValueError:
            raise DeliveryRefused(400, "not_json") from None
        if name == "ping":
            return "ping"
        reading = events.read(name, decoded)
        if isinstance(reading, str):
            return f"ignored_{reading}"
        stored = await self._writer.put(Delivery(ident, name, body))
        if stored == "conflict":
            log.warning("security: delivery id %s was repeated with another body", ident)
            raise DeliveryRefused(409, "conflict")
        return stored

    async def _receive(self, request: Request, raw: bytearray, *, form: bool) -> None:
        """Fill `raw` with the body and check its signature; never more than the cap of it in memory."""
        signature = SignatureCheck(self._secrets)
        try:
            async with asyncio.timeout(SECONDS_TO_ARRIVE):
                async for chunk in request.stream():
                    raw += chunk
                    self._arriving += len(chunk)
                    if len(raw) > MAX_BYTES:
                        raise DeliveryRefused(413, "too_large")
                    if self._arriving > self._most_at_once:
                        raise DeliveryRefused(503, "too_busy")
                    signature.update(chunk)
        except TimeoutError:
            raise DeliveryRefused(408, "too_slow") from None
        except ClientDisconnect:
            raise DeliveryRefused(400, "cut_off") from None
        if not signature.matches(request.headers["x-hub-signature-256"]):
            raise DeliveryRefused(415, "unsigned_form") if form else DeliveryRefused(401, "wrong_signature")


def _check_head(request: Request) -> bool:
    """Refuse a request by its headers if possible; True for a form."""
    headers = request.headers
    if "x-hub-signature-256" not in headers:
        raise DeliveryRefused(401, "no_signature")
    if len(headers.getlist("x-hub-signature-256")) > 1:
        raise DeliveryRefused(401, "two_signatures")
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise DeliveryRefused(400, "compressed")
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > MAX_BYTES:
        raise DeliveryRefused(413, "too_large")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in {_JSON, _FORM}:
        raise DeliveryRefused(415, "wrong_content_type")
    return kind == _FORM


def _names(request: Request) -> tuple[str, str]:
    event, ident = request.headers.get("x-github-event", ""), request.headers.get("x-github-delivery", "")
    if not _EVENT.fullmatch(event) or not _ID.fullmatch(ident):
        raise DeliveryRefused(400, "wrong_headers")
    return event, ident


def _form_payload(body: bytearray) -> bytes:
    """The JSON in the one field of a form."""
    try:
        fields = parse_qs(body.decode("ascii"), strict_parsing=True, max_num_fields=1)
    except ValueError:
        raise DeliveryRefused(400, "not_a_form") from None
    if list(fields) != ["payload"]:
        raise DeliveryRefused(400, "not_a_form")
    return fields["payload"][0].encode()


def _headers(status: int) -> dict[str, str]:
    return {"retry-after": "30"} if status == 503 else {}


class Probe:
    """Answers a health check; queries the database at most once a second."""

    def __init__(self, query: Callable[[], JSONResponse], clock: Callable[[], datetime]) -> None:
        self._query = query
        self._clock = clock
        self._lock = asyncio.Lock()
        self._last_check: datetime | None = None
        self._answer = JSONResponse({"status": "ok"})

    async def answer(self, _: Request) -> JSONResponse:
        async with self._lock:
            if self._last_check is None or self._clock() - self._last_check >= FRESH:
                self._answer = await asyncio.to_thread(self._query)
                self._last_check = self._clock()
            return self._answer


def readiness(inbox: DeliveryStore, clock: Callable[[], datetime]) -> JSONResponse:
    """Whether deliveries can be stored and are processed."""
    try:
        health = inbox.health()
    except InboxError as error:
        log.error("not ready: %s", error.message)  # noqa: TRY400  # the message says it
        return JSONResponse({"status": "not_ready", "database": "not_writable"}, status_code=503)
    age = (clock() - health.oldest).total_seconds() if health.oldest else 0.0
    late = age > LATE.total_seconds()
    body = {
        "status": "late" if late else "ready",
        "database": "writable",
        "undone": health.undone,
        "oldest_undone_seconds": round(age, 1),
        "given_up": health.dead,
    }
    return JSONResponse(body, status_code=503 if late else 200)


def liveness(stalled: Callable[[], timedelta | None]) -> JSONResponse:
    """Whether jobs make progress."""
    try:
        stalled_for = stalled()
    except DatabaseError as error:
        log.error("the jobs cannot be read: %s", type(error).__name__)  # noqa: TRY400  # its text may tell
        return JSONResponse({"status": "unknown"}, 503)
    if stalled_for is None or stalled_for <= TOO_LONG:
        return JSONResponse({"status": "ok"})
    return JSONResponse({"status": "stalled", "stalled_seconds": round(stalled_for.total_seconds())}, 503)


def run_receiver(settings: Settings, listening: int | None = None) -> int:
    """Run until SIGTERM or SIGINT. `listening` is a socket that the supervisor opened and keeps."""
    server_context = ServerContext(settings)
    prepare_tables(server_context.engine)
    listener = socket.socket(fileno=listening) if listening is not None else listen(settings.host, settings.port)
    servers: list[uvicorn.Server] = []
    app = application(server_context, ending=lambda: any(server.should_exit for server in servers))
    try:
        with listener:
            servers.append(bounded_server(app, settings.trusted_proxies))
            log.info("receiver ready at %s", address_of(listener))
            servers[0].run([listener])
    finally:
        server_context.engine.dispose()
    return ExitCode.OK


def application(
    server_context: ServerContext,
    *,
    ending: Callable[[], bool] = lambda: False,
    sign_in: "GitHubSignIn | None" = None,
) -> FastAPI:
    """Webhooks and health for everybody; pages and API if there is a password or a sign-in.

    `sign_in` takes the place of the client that the settings name. `ending` says that the process is about to end, so
    that streams end too.
    """
    settings = server_context.settings

    def stalled() -> timedelta | None:
        found = server_context.operations.stalled()
        return timedelta(seconds=found.seconds) if found else None

    app = receiver(settings.webhook_secrets, server_context.inbox, server_context.clock, stalled=stalled)
    client = sign_in or _sign_in_client(server_context)
    if settings.web_token or client is not None:
        app.mount("/", site(server_context, client, answers=app.state.counts, ending=ending))
    return app


def _sign_in_client(server_context: ServerContext) -> "GitHubSignIn | None":
    """GitHub's part of the sign-in; None if no client is set."""
    settings = server_context.settings
    if not settings.client_id:
        return None
    # 18 MB of GitHub's library, which no other part of the receiver needs
    from app.github.connection import GitHubHost  # noqa: PLC0415
    from app.github.user_sign_in import GitHubSignIn  # noqa: PLC0415

    host = GitHubHost.of(settings)
    return GitHubSignIn(host, settings.client_id, settings.client_secret, now=server_context.clock)
