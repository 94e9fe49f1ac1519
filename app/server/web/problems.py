"""Errors of the API as problem+json (RFC 9457)."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from app.server.web.api_models import Problem

PROBLEM_JSON: Final = "application/problem+json"
_DESCRIPTIONS: Final = {
    400: "The request is not valid JSON.",
    401: "There is no valid token.",
    403: "The key lacks the scope, or the request came from another site.",
    404: "There is no such job, or it has no such part.",
    409: "The job's state does not allow it, or the same Idempotency-Key is in use.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "The request is malformed, or its Idempotency-Key was used for another request.",
    429: "Too many wrong tokens came from this address.",
    503: "The database does not answer, or too many streams are open.",
}


def problem(
    status: int,
    detail: str = "",
    errors: list[dict[str, Any]] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """An error's answer."""
    body = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, errors=errors or [])
    return JSONResponse(body.model_dump(), status, headers, media_type=PROBLEM_JSON)


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a route for OpenAPI, with those that every route has."""
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {
        status: {"description": _DESCRIPTIONS[status], "content": {PROBLEM_JSON: schema}}
        for status in sorted({401, 403, 422, 429, 503, *statuses})
    }


def invalid(error: RequestValidationError) -> Response:
    found = error.errors()
    if any(each["type"] == "json_invalid" for each in found):
        return problem(400, "The body is not valid JSON.")
    parts = [{"where": _where(each["loc"]), "problem": each["msg"].removeprefix("Value error, ")} for each in found]
    return problem(422, "The request is malformed.", parts)


def _where(loc: tuple[int | str, ...]) -> str:
    """The part of the request, without the alternatives of its type that were tried."""
    return ".".join(str(part) for part in (loc if loc[0] == "body" else loc[:2]))


def problem_of_exception(error: HTTPException) -> Response:
    detail = "" if error.detail == HTTPStatus(error.status_code).phrase else error.detail
    return problem(error.status_code, detail, headers=error.headers)
