"""Who signs a request. githubkit tells by the path, where a file, branch or label may be called like one of its routes.

It takes `…/contents/installation` for a question of the App itself, `…/applications/x/tokens` for one of an OAuth app,
and cannot read a path with a quoted `?` or `#` in it. So it is asked about a route that leaves no doubt.
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
    """Another strategy, which signs every request as it would one to `route`."""

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
        """The token is asked for through `request`'s own connection, as githubkit does; then it is sent."""
        shown = httpx.Request("GET", self._plain)
        flow = self._inner.async_auth_flow(shown)
        try:
            asked = await anext(flow)
            while asked is not shown:
                asked = await flow.asend((yield asked))
        finally:
            await flow.aclose()
        request.headers["Authorization"] = shown.headers["Authorization"]
        yield request
