"""Reads one commit's files from the store, by plumbing that executes nothing."""

from collections.abc import Callable, Iterable, Mapping

from app.core.errors import ExitCode, RepositoryError
from app.core.tree import TreeEntry
from app.repo.git_format import TreeListing, parse_batch, parse_listing, shown_path

READ_TIMEOUT = 1_800.0
"""Seconds that reading many files may take."""


class GitTree:
    """One commit's files, read from the store (`app.core.tree.Tree`)."""

    def __init__(self, run: Callable[..., bytes], commit: str) -> None:
        self._run = run
        self._commit = commit
        self._listing: TreeListing | None = None

    @property
    def commit(self) -> str:
        return self._commit

    def entries(self) -> Mapping[str, TreeEntry]:
        return self._list().entries

    def gitlinks(self) -> Mapping[str, str]:
        return self._list().gitlinks

    def read(self, path: str) -> bytes:
        return self.read_many([path])[path]

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        known = self.entries()
        wanted = [path for path in dict.fromkeys(paths) if path in known]
        if not wanted:
            return {}
        request = "".join(f"{known[path].oid}\n" for path in wanted).encode("ascii")
        output = self._run("cat-file", "--batch", stdin=request, timeout=READ_TIMEOUT)
        return dict(zip(wanted, parse_batch(output), strict=True))

    def _list(self) -> TreeListing:
        if self._listing is None:
            output = self._run("ls-tree", "-r", "-l", "-z", "--full-tree", self._commit)
            self._listing = parse_listing(output)
            if missing := self._listing.missing:
                which = f"{len(missing)} files of commit {self._commit[:10]}"
                raise RepositoryError(
                    f"The contents of {which} are missing, such as {shown_path(missing[0])}.",
                    code=ExitCode.UNSUPPORTED_REPOSITORY,
                    hint="You can delete a copy in the state directory's `mirrors`; it is created again.",
                )
        return self._listing
