"""Progress that keeps what was reported."""

from app.core.job import ProgressKind


class ListProgress:
    def __init__(self) -> None:
        self.said: list[tuple[ProgressKind, str]] = []

    def report(self, kind: ProgressKind, text: str) -> None:
        self.said.append((kind, text))

    def texts(self, kind: ProgressKind) -> list[str]:
        return [text for said, text in self.said if said == kind]
