"""How people sign in to an App, and what their own tokens open; held to GitHub's documentation by the word.

github/docs, "Generating a user access token for a GitHub App" and "Troubleshooting OAuth app access token request
errors": a redirect has to equal a callback URL; a challenge has 43 characters of SHA-256; a code is good once, for ten
minutes; refusals of the exchange are answered with 200; without `Accept` the answer is a form and not JSON.
"""

import base64
import hashlib
import html
import secrets
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlencode

from githubkit_schemas.latest import models
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from app.github.calls import LIST_USER_INSTALLATIONS
from tests.support.github.authentication import AccessDenied
from tests.support.github.registration import page
from tests.support.github.server import FakeGitHub
from tests.support.github.views import installation_view, repo_view, role_view
from tests.support.github.world import Code, Installation, Repo, Token, User

CODE_LIVES = timedelta(minutes=10)
TOKEN_LIVES = timedelta(hours=8)
ASKED = ("client_id", "redirect_uri", "state", "code_challenge", "code_challenge_method")


def people_routes(github: Callable[[], FakeGitHub]) -> list[Route]:
    people = People(github)
    return [
        Route("/login/oauth/authorize", people.ask),
        Route("/login/oauth/authorize", people.authorize, methods=["POST"]),
        Route("/login/oauth/access_token", people.exchange, methods=["POST"]),
        Route("/user/installations", people.installations),
        Route("/user/installations/{id:int}/repositories", people.repositories),
        Route("/applications/{client}/token", people.revoke, methods=["DELETE"]),
    ]


class People:
    """Answers browsers on GitHub's site, and programs that hold a person's token."""

    def __init__(self, github: Callable[[], FakeGitHub]) -> None:
        self._github = github

    async def ask(self, request: Request) -> Response:
        """The page with the button, for whoever has a session here."""
        world, asked = self._github().world, request.query_params
        if asked.get("client_id") != world.sign_in.client:
            return page("Page not found", "", 404)
        if asked.get("redirect_uri", "") not in world.sign_in.callbacks:
            return page("Be careful!", "<p>The redirect_uri is not associated with this application.", 400)
        method, hashed = asked.get("code_challenge_method", ""), asked.get("code_challenge", "")
        if (method or hashed) and (method != "S256" or len(hashed) != 43):
            return page("Be careful!", "<p>Only S256 is supported.", 400)
        if world.sign_in.person is None:
            return RedirectResponse("/login", 302)
        hidden = "".join(
            f'<input type=hidden name={name} value="{html.escape(asked.get(name, ""))}">' for name in ASKED
        )
        return page("Authorize agent-fix", f"<form method=post>{hidden}<button>Authorize</button></form>")

    async def authorize(self, request: Request) -> Response:
        world = self._github().world
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        assert world.sign_in.person is not None
        code = secrets.token_hex(10)
        expires = world.now + CODE_LIVES
        challenge = form.get("code_challenge", "")
        world.sign_in.codes[code] = Code(world.sign_in.person, form["redirect_uri"], challenge, expires)
        back = {"code": code} | ({"state": form["state"]} if form.get("state") else {})
        return RedirectResponse(f"{form['redirect_uri']}?{urlencode(back)}", 302)

    async def exchange(self, request: Request) -> Response:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        answer = self._exchanged(form)
        if "application/json" in request.headers.get("accept", ""):
            return JSONResponse(answer)
        return Response(urlencode(answer), media_type="application/x-www-form-urlencoded")

    def _exchanged(self, form: dict[str, str]) -> dict[str, Any]:
        world = self._github().world
        if (form.get("client_id"), form.get("client_secret")) != (world.sign_in.client, world.sign_in.secret):
            return _refused("incorrect_client_credentials", "The client_id and/or client_secret passed are incorrect.")
        code = world.sign_in.codes.pop(form.get("code", ""), None)
        if code is None or code.expires_at <= world.now:
            return _refused("bad_verification_code", "The code passed is incorrect or expired.")
        if form.get("redirect_uri", code.redirect) != code.redirect:
            return _refused("redirect_uri_mismatch", "The redirect_uri MUST match the registered callback URL.")
        if code.challenge and code.challenge != _challenge(form.get("code_verifier", "")):
            return _refused("bad_verification_code", "The code passed is incorrect or expired.")
        text = f"ghu_{secrets.token_hex(18)}"
        world.tokens[text] = Token(0, frozenset(), {}, world.now + TOKEN_LIVES, user=code.user)
        return {
            "access_token": text,
            "expires_in": int(TOKEN_LIVES.total_seconds()),
            "refresh_token": f"ghr_{secrets.token_hex(38)}",
            "refresh_token_expires_in": 15_897_600,
            "scope": "",
            "token_type": "bearer",
        }

    async def installations(self, request: Request) -> Response:
        """Those with a repository that the person was given access to."""
        fake = self._github()
        try:
            user = self._user(request)
        except AccessDenied as refusal:
            return fake.refuse(refusal)
        found = [each for each in fake.world.installations.values() if self._open(each, user)]
        shown, links = _paged(request, found)
        views = [installation_view(each) for each in shown]
        return JSONResponse({"total_count": len(found), "installations": views}, headers=links)

    async def repositories(self, request: Request) -> Response:
        fake = self._github()
        try:
            user = self._user(request)
        except AccessDenied as refusal:
            return fake.refuse(refusal)
        installation = fake.world.installations.get(request.path_params["id"])
        if installation is None or not self._open(installation, user):
            return fake.refuse(AccessDenied(404, "Not Found"))
        if installation.suspended:
            return fake.refuse(AccessDenied(403, "This installation has been suspended"))
        found = self._open(installation, user)
        shown, links = _paged(request, found)
        views = [repo_view(each, models.Repository, role_view(each.collaborators[user.id])) for each in shown]
        body = {"total_count": len(found), "repository_selection": "selected", "repositories": views}
        return JSONResponse(body, headers=links)

    async def revoke(self, request: Request) -> Response:
        """For the App's client with its secret, which may revoke only what it was given."""
        fake, sign_in = self._github(), self._github().world.sign_in
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        wanted = base64.b64encode(f"{sign_in.client}:{sign_in.secret}".encode()).decode()
        if scheme.lower() != "basic" or given != wanted or request.path_params["client"] != sign_in.client:
            return fake.refuse(AccessDenied(401, "Bad credentials"))
        token = fake.world.tokens.get((await request.json())["access_token"])
        if token is None or token.revoked or token.user is None:
            return fake.refuse(AccessDenied(404, "Not Found"))
        token.revoked = True
        return Response(status_code=204)

    def _user(self, request: Request) -> User:
        """Whose token this is; an App's own token opens nothing here."""
        user = self._github().gate.use(request.headers.get("authorization", ""), LIST_USER_INSTALLATIONS).user
        if user is None:
            raise AccessDenied(
                403,
                "You must authenticate with an access token authorized to a GitHub App in order to list installations",
            )
        return user

    def _open(self, installation: Installation, user: User) -> list[Repo]:
        repos = (self._github().world.repos[number] for number in sorted(installation.repositories))
        return [each for each in repos if each.collaborators.get(user.id, "none") != "none"]


def _paged(request: Request, items: list[Any]) -> tuple[list[Any], dict[str, str]]:
    size, number = min(int(request.query_params.get("per_page", 30)), 100), int(request.query_params.get("page", 1))
    more = f'<{request.url.include_query_params(page=number + 1)}>; rel="next"'
    return items[(number - 1) * size : number * size], {"link": more} if number * size < len(items) else {}


def _refused(error: str, words: str) -> dict[str, Any]:
    return {"error": error, "error_description": words, "error_uri": "https://docs.github.example/troubleshooting"}


def _challenge(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
