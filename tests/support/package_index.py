"""A Python package index on a loopback port, of small wheels that say when they were uploaded."""

import base64
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.support.loopback import listening, serving


class Release(NamedTuple):
    """One module `NAME.py`, as a distribution of the same name; `uploaded` is a date.

    Without being `built` it is a source distribution whose build fails.
    """

    name: str
    version: str
    uploaded: str
    module: str = ""
    built: bool = True

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}{'-py3-none-any.whl' if self.built else '.tar.gz'}"

    @property
    def content(self) -> bytes:
        return self._wheel() if self.built else self._sources()

    def _sources(self) -> bytes:
        text = b'[build-system]\nrequires = []\nbuild-backend = "missing"\n'
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as writing:
            named = tarfile.TarInfo(f"{self.name}-{self.version}/pyproject.toml")
            named.size = len(text)
            writing.addfile(named, io.BytesIO(text))
        return archive.getvalue()

    def _wheel(self) -> bytes:
        about = f"{self.name}-{self.version}.dist-info"
        files = {
            f"{self.name}.py": self.module,
            f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {self.name}\nVersion: {self.version}\n",
            f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        record = [f"{path},sha256={_digest(text)},{len(text)}" for path, text in files.items()]
        files[f"{about}/RECORD"] = "\n".join([*record, f"{about}/RECORD,,"]) + "\n"
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as writing:
            for path, text in files.items():
                writing.writestr(path, text)
        return archive.getvalue()


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@contextmanager
def package_index(releases: Sequence[Release]) -> Iterator[str]:
    """The address of an index (PEP 691, with PEP 700's upload times)."""

    async def project(request: Request) -> Response:
        found = [release for release in releases if release.name == request.path_params["name"]]
        files = [
            {
                "filename": release.file,
                "url": f"../../files/{release.file}",
                "hashes": {"sha256": hashlib.sha256(release.content).hexdigest()},
                "upload-time": f"{release.uploaded}T00:00:00Z",
                "size": len(release.content),
            }
            for release in found
        ]
        named = {"name": request.path_params["name"], "versions": [release.version for release in found]}
        answer = {"meta": {"api-version": "1.1"}, **named, "files": files}
        kind = "application/vnd.pypi.simple.v1+json"
        return JSONResponse(answer, 200 if found else 404, media_type=kind)

    async def file(request: Request) -> Response:
        found = next(release for release in releases if release.file == request.path_params["file"])
        return Response(found.content, media_type="application/zip")

    routes = [Route("/simple/{name}/", project), Route("/files/{file}", file)]
    with listening() as listener, serving(Starlette(routes=routes), listener) as address:
        yield f"{address}/simple"
