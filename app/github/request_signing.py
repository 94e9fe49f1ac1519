"""Makes githubkit sign requests the right way. It decides by the path who signs, and gets some paths wrong.

A file, branch or label may be named like one of its routes: it takes `…/contents/installation` for a request of the App
and `…/applications/x/tokens` for one of an OAuth app, and cannot parse a path with a quoted `?` or `#`. So it is given
a route that leaves no doubt.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import httpx
from githubkit.auth import BaseAuthStrategy
from githubkit.core import GitHubCore

BY_APP = "app"
BY_INSTALLATION = ""


@dataclass
class RequestSigner(BaseAuthStrategy):
    """Wraps a strategy so that it signs every request as it would sign one to `route`."""

    strategy: BaseAuthStrategy
    route: str

    def get_auth_flow(self, github: GitHubCore[Any]) -> httpx.Auth:
        base = github.config.base_url
        plain = base.copy_with(raw_path=base.raw_path + self.route.encode())
        return _SigningAuth(self.strategy.get_auth_flow(github), plain)


class _SigningAuth(httpx.Auth):
    def __init__(self, inner: httpx.Auth, plain: httpx.URL) -> None:
        self._inner = inner
        self._plain = plain

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Request the token through `request`'s own connection, as githubkit does, then send the request."""
        shown = httpx.Request("GET", self._plain)
        flow = self._inner.async_auth_flow(shown)
        try:
            token_request = await anext(flow)
            while token_request is not shown:
                token_request = await flow.asend((yield token_request))
        finally:
            await flow.aclose()
        request.headers["Authorization"] = shown.headers["Authorization"]
        yield request
