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
from typing import Any, Final, Protocol
from urllib.parse import parse_qs

import uvicorn
from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from app.config.settings import Settings
from app.core.clock import utc_now
from app.core.errors import ExitCode
from app.core.money import Totals
from app.jobs.inbox import BatchWriter, Delivery, Inbox, InboxError, InboxHealth, StoreOutcome
from app.jobs.job_queries import JobQueries
from app.jobs.operations import TOO_LONG, HealthMetrics
from app.jobs.queries import JobOverview, JobPages
from app.jobs.queue import JobQueue, QueueLimits
from app.jobs.schema import prepare_tables
from app.jobs.store import JobStore
from app.jobs.tables import DatabaseError, open_database
from app.jobs.triggers import JobMessages
from app.llm.sql_ledger import SqlLedger
from app.server.http_limits import bounded_server
from app.server.supervisor import address_of, listen
from app.server.web.sign_in import SignInClient
from app.server.web.site import SiteParts, site
from app.triggers import webhook_parser

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
    readiness, liveliness = Readiness(inbox, clock), Liveness(stalled, clock)

    async def webhook(request: Request) -> JSONResponse:
        return await endpoint.answer(request)

    async def livez(_: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def healthz(_: Request) -> JSONResponse:
        return await liveliness.answer()

    async def readyz(_: Request) -> JSONResponse:
        return await readiness.answer()

    probes = {"/livez": livez, "/healthz": healthz, "/readyz": readyz}
    routes = [Route("/webhook", webhook, methods=["POST"]), *(Route(path, answer) for path, answer in probes.items())]
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
            decoded = (
                await asyncio.to_thread(webhook_parser.decode, body)
                if len(body) > _LARGE
                else webhook_parser.decode(body)
            )
        except ValueError:
            raise DeliveryRefused(400, "not_json") from None
        if name == "ping":
            return "ping"
        reading = webhook_parser.read(name, decoded)
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


class Readiness:
    """Reports whether deliveries can be stored and are processed; queries the database at most once a second."""

    def __init__(self, inbox: DeliveryStore, clock: Callable[[], datetime]) -> None:
        self._inbox = inbox
        self._clock = clock
        self._lock = asyncio.Lock()
        self._last_check: datetime | None = None
        self._health: InboxHealth | None = None

    async def answer(self) -> JSONResponse:
        async with self._lock:
            if self._last_check is None or self._clock() - self._last_check >= FRESH:
                self._health = await self._ask()
                self._last_check = self._clock()
            health = self._health
        if health is None:
            return JSONResponse({"status": "not_ready", "database": "not_writable"}, status_code=503)
        age = (self._clock() - health.oldest).total_seconds() if health.oldest else 0.0
        late = age > LATE.total_seconds()
        body: dict[str, Any] = {
            "status": "late" if late else "ready",
            "database": "writable",
            "undone": health.undone,
            "oldest_undone_seconds": round(age, 1),
            "given_up": health.dead,
        }
        return JSONResponse(body, status_code=503 if late else 200)

    async def _ask(self) -> InboxHealth | None:
        try:
            return await asyncio.to_thread(self._inbox.health)
        except InboxError as error:
            log.error("not ready: %s", error.message)  # noqa: TRY400  # the message says it
            return None


class Liveness:
    """Reports whether jobs make progress; queries the database at most once a second."""

    def __init__(self, stalled: Callable[[], timedelta | None], clock: Callable[[], datetime]) -> None:
        self._stalled = stalled
        self._clock = clock
        self._lock = asyncio.Lock()
        self._last_check: datetime | None = None
        self._answer = JSONResponse({"status": "ok"})

    async def answer(self) -> JSONResponse:
        async with self._lock:
            if self._last_check is None or self._clock() - self._last_check >= FRESH:
                self._answer = await self._ask()
                self._last_check = self._clock()
            return self._answer

    async def _ask(self) -> JSONResponse:
        try:
            stalled = await asyncio.to_thread(self._stalled)
        except DatabaseError as error:
            log.error("the jobs cannot be read: %s", type(error).__name__)  # noqa: TRY400  # its text may tell
            return JSONResponse({"status": "unknown"}, 503)
        if stalled is None or stalled <= TOO_LONG:
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "stalled", "stalled_seconds": round(stalled.total_seconds())}, 503)


class ReceiverContext:
    """What the receiver's process works with."""

    def __init__(self, settings: Settings, clock: Callable[[], datetime] = utc_now) -> None:
        self.clock = clock
        self.engine = open_database(settings.database_url, settings.state)
        self.inbox = Inbox(self.engine, clock)
        self.queue = JobQueue(self.engine, clock)
        self.health = HealthMetrics(
            self.engine, clock, QueueLimits(jobs=settings.jobs, per_repository=settings.jobs_per_repository)
        )
        self.files = JobPages(
            overview=JobOverview(self.engine, clock),
            store=JobStore(self.engine, clock),
            job_queries=JobQueries(self.engine, clock),
            messages=JobMessages(self.engine, clock),
            totals=self._totals,
        )

    def sign_in(self, settings: Settings) -> SignInClient | None:
        """GitHub's part of the sign-in; None if no client is set."""
        if not settings.client_id:
            return None
        # 18 MB of GitHub's library, which no other part of the receiver needs
        from app.github.connection import GitHubHost  # noqa: PLC0415
        from app.github.user_sign_in import GitHubSignIn  # noqa: PLC0415

        host = GitHubHost(settings.github_api_url, settings.github_url, settings.proxy)
        return GitHubSignIn(host, settings.client_id, settings.client_secret, now=self.clock)

    def prepare(self) -> None:
        prepare_tables(self.engine)

    def close(self) -> None:
        self.engine.dispose()

    def _totals(self, job_id: str) -> Totals:
        return SqlLedger(self.engine, job_id, 0).totals()


def run_receiver(settings: Settings, listening: int | None = None) -> int:
    """Run until SIGTERM or SIGINT. `listening` is a socket that the supervisor opened and keeps."""
    receiver_context = ReceiverContext(settings)
    receiver_context.prepare()
    listener = socket.socket(fileno=listening) if listening is not None else listen(settings.host, settings.port)
    try:
        with listener:
            serve(receiver_context, settings, listener)
    finally:
        receiver_context.close()
    return ExitCode.OK


def serve(receiver_context: ReceiverContext, settings: Settings, listener: socket.socket) -> None:
    servers: list[uvicorn.Server] = []
    app = application(receiver_context, settings, ending=lambda: any(server.should_exit for server in servers))
    servers.append(bounded_server(app, settings.trusted_proxies))
    log.info("receiver ready at %s", address_of(listener))
    servers[0].run([listener])


def application(
    receiver_context: ReceiverContext,
    settings: Settings,
    *,
    ending: Callable[[], bool] = lambda: False,
    sign_in: SignInClient | None = None,
) -> FastAPI:
    """Webhooks and health for everybody; pages and API if there is a password or a sign-in.

    `sign_in` takes the place of the client that the settings name.
    """

    def stalled() -> timedelta | None:
        found = receiver_context.health.stalled()
        return timedelta(seconds=found.seconds) if found else None

    app = receiver(settings.webhook_secrets, receiver_context.inbox, receiver_context.clock, stalled=stalled)
    client = sign_in or receiver_context.sign_in(settings)
    if settings.web_token or client is not None:
        context, counts = receiver_context, app.state.counts
        parts = SiteParts(context.files, context.health, context.queue, client, counts, ending)
        app.mount("/", site(settings, parts))
    return app
