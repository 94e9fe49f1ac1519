"""GitHub's web pages that register an App from a manifest, and the call that hands out its key once.

Rules, each as GitHub was seen to apply it:
- `url`, and `hook_attributes.url` wherever `hook_attributes` is there, even with `active: false`
  (docs "Registering a GitHub App from a manifest"; vikasprogrammer/agentric#317, alp82/curia#933)
- no webhook, then no events: "Hook url cannot be blank" (changelog of WASM 2.2.1)
- a webhook that is not on the public internet (github-community-projects/private-mirrors#387)
- events that need no subscription, or a permission that is not asked for (tuist/tuist#10709)
- who is not signed in goes to the login page, and the manifest is lost (AlexanderMattTurner/agent-glovebox#393)
"""

import html
import ipaddress
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from githubkit_schemas.latest import models
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.support.github.authentication import APP_ID, app_key
from tests.support.github.shapes import shaped
from tests.support.github.world import SignIn

LONGEST_NAME = 34
PERMISSION_OF = {
    "check_run": "checks",
    "check_suite": "checks",
    "issue_comment": "issues",
    "issues": "issues",
    "pull_request": "pull_requests",
    "pull_request_review": "pull_requests",
    "pull_request_review_comment": "pull_requests",
    "push": "contents",
    "repository": "metadata",
    "workflow_run": "actions",
}
"""docs "Webhook events and payloads": availability of each event for Apps."""
PAGE = "<!doctype html><html lang=en><title>{title}</title><h1>{title}</h1>{body}"


@dataclass
class Registrations:
    """What people registered in their browser; `signed_in` is whether that browser has a session."""

    signed_in: bool = True
    manifests: list[dict[str, Any]] = field(default_factory=list)
    """Those that GitHub accepted, oldest first."""
    origins: list[str | None] = field(default_factory=list)
    """The `Origin` that each form came with."""
    taken: set[str] = field(default_factory=set)
    codes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Unused codes with the manifest that each stands for, and `site`, where it was accepted."""

    def routes(self) -> list[Route]:
        return [
            Route("/settings/apps/new", self._review, methods=["POST"]),
            Route("/organizations/{organization}/settings/apps/new", self._review, methods=["POST"]),
            Route("/settings/apps", self._create, methods=["POST"]),
            Route("/login", self._login),
            Route("/apps/{slug}/installations/new", self._install),
            Route("/app-manifests/{code}/conversions", self._convert, methods=["POST"]),
        ]

    async def _review(self, request: Request) -> Response:
        self.origins.append(request.headers.get("origin"))
        if not self.signed_in:
            return RedirectResponse("/login", 302)
        form = parse_qs((await request.body()).decode())
        text = form.get("manifest", ["{}"])[0]
        problems = [*problems_of(json.loads(text))]
        if problems:
            errors = "".join(f"<li>{html.escape(problem)}</li>" for problem in problems)
            return page("Invalid GitHub App configuration", f"<ul>{errors}</ul>", 422)
        name = html.escape(json.loads(text)["name"])
        fields = {"manifest": text, "state": request.query_params.get("state", "")}
        hidden = "".join(f'<input type=hidden name={name} value="{html.escape(fields[name])}">' for name in fields)
        owner = html.escape(request.path_params.get("organization", "ada"))
        body = f"<label>GitHub App name <input name=name value='{name}'></label><button>Create GitHub App for {owner}"
        return page("Create GitHub App", f"<form method=post action=/settings/apps>{hidden}{body}</button></form>")

    async def _create(self, request: Request) -> Response:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        manifest = {**json.loads(form["manifest"]), "name": form["name"]}
        if form["name"] in self.taken:
            return page("Create GitHub App", "<p>Name has already been taken", 422)
        self.taken.add(form["name"])
        self.manifests.append(manifest)
        code = secrets.token_hex(20)
        self.codes[code] = {**manifest, "site": f"{request.url.scheme}://{request.url.netloc}"}
        back = urlencode({"code": code, "state": form["state"]})
        return RedirectResponse(f"{manifest['redirect_url']}?{back}", 302)

    async def _login(self, _: Request) -> Response:
        return page("Sign in to GitHub", "")

    async def _install(self, request: Request) -> Response:
        return page(f"Install {html.escape(request.path_params['slug'])}", "")

    async def _convert(self, request: Request) -> Response:
        manifest = self.codes.pop(request.path_params["code"], None)
        if manifest is None:
            return JSONResponse({"message": "Not Found", "documentation_url": "https://docs.github.example"}, 404)
        slug = manifest["name"].lower().replace(" ", "-")
        answer = shaped(
            models.AppManifestsCodeConversionsPostResponse201,
            id=APP_ID,
            slug=slug,
            name=manifest["name"],
            html_url=f"{manifest['site']}/apps/{slug}",
            client_id=SignIn.client,
            client_secret=SignIn.secret,
            pem=app_key()[0],
            webhook_secret=secrets.token_hex(20) if "hook_attributes" in manifest else None,
            permissions=manifest["default_permissions"],
            events=manifest.get("default_events", []),
        )
        return JSONResponse(answer, 201)


def problems_of(manifest: dict[str, Any]) -> Iterator[str]:
    """Why GitHub does not accept this manifest."""
    hook, events = manifest.get("hook_attributes"), manifest.get("default_events", [])
    permissions = manifest.get("default_permissions", {})
    if not manifest.get("url") or (hook is not None and not hook.get("url")):
        yield 'Error: "url" wasn\'t supplied.'
    if not 0 < len(manifest.get("name", "")) <= LONGEST_NAME:
        yield f"Name is too long (maximum is {LONGEST_NAME} characters)"
    callbacks = manifest.get("callback_urls", [])
    if len(callbacks) > 10 or not all(urlsplit(each).scheme in {"http", "https"} for each in callbacks):
        yield "Callback URLs must be at most ten valid URLs"
    if hook is not None and not _public(hook.get("url", "")):
        yield "Webhook URL is not supported because it isn't reachable over the public Internet"
    if hook is None and events:
        yield "Hook url cannot be blank"
    if unknown := [event for event in events if event not in PERMISSION_OF]:
        yield f"Default events unsupported: {', '.join(unknown)}"
    if refused := [event for event in events if permissions.get(PERMISSION_OF.get(event, "")) not in {"read", "write"}]:
        yield f"Default events are not supported by permissions: {', '.join(refused)}"


def _public(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return "." in host and not host.endswith((".localhost", ".local", ".internal"))


def page(title: str, body: str, status: int = 200) -> HTMLResponse:
    return HTMLResponse(PAGE.format(title=title, body=body), status)
