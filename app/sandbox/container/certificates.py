"""Copies the certificates that this machine's package clients trust into a set-up, for proxies that open TLS."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from app.sandbox.machine.base import Machine

MAX_SIZE = 4 * 1024**2
PLACE = "/run/agent-fix-files"
SYSTEM_CERTIFICATES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/ssl/ca-bundle.pem"),
    Path("/etc/ssl/cert.pem"),
)
"""Where distributions and macOS keep the machine's trusted certificates."""
CERTIFICATE_VARIABLES = (
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"),
    *("CARGO_HTTP_CAINFO", "PIP_CERT"),
)
"""Variables that name what a client trusts; no repository can set them."""
CERTIFICATES = frozenset({*CERTIFICATE_VARIABLES, "SSL_CERT_DIR", "npm_config_cafile"})
"""Variables that name a file of this machine, which commands after the set-up cannot use."""


async def copy_certificates(
    machine: Machine, environment: Mapping[str, str], system: Sequence[Path] = SYSTEM_CERTIFICATES
) -> dict[str, str]:
    """A set-up's variables, with copies of the files that name certificates, or the system's if none is named."""
    variables = {name: value for name, value in environment.items() if name not in CERTIFICATES}
    for name in sorted(CERTIFICATES & environment.keys()):
        content = await asyncio.to_thread(_file, Path(environment[name]))
        if content is not None:
            variables[name] = f"{PLACE}/{name}"
            await machine.upload(variables[name], content)
    trusted = await asyncio.to_thread(_first, system)
    if trusted is not None:
        await machine.upload(f"{PLACE}/system", trusted)
        variables = {**dict.fromkeys(CERTIFICATE_VARIABLES, f"{PLACE}/system"), **variables}
    return variables


def _first(paths: Sequence[Path]) -> bytes | None:
    return next((content for path in paths if (content := _file(path)) is not None), None)


def _file(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.is_absolute() and path.is_file() and path.stat().st_size <= MAX_SIZE else None
    except (OSError, ValueError):
        return None
