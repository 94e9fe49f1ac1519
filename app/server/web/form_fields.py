"""Reads the form that a browser sent."""

from urllib.parse import parse_qs

from starlette.requests import Request


async def form_fields(request: Request) -> dict[str, list[str]]:
    """All values of each field, empty ones too. Whoever lets requests in has checked the body's length."""
    return parse_qs((await request.body()).decode("ascii", "replace"), keep_blank_values=True)


async def single_fields(request: Request) -> dict[str, str]:
    """The first value of each field."""
    return {name: values[0] for name, values in (await form_fields(request)).items()}
