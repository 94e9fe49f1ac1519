"""Runs inside a set-up: repeats an install command without what its errors name.

At first without the exact versions, and then without the requirements: no index has them, they cannot be built here, or
they do not go with others. Requirement files are read, so that one wrong line does not take the others with it. Its
words are what ends the line about each requirement left out, the command, `--`, and pip's arguments. Standard library
only, Python 3.6 or newer.
"""

import os
import re
import subprocess
import sys

MAX_TRIES = 40
OPTION = re.compile(r"(?:-(r|c|e)|--(r|c|e)(?:equirement|onstraint|ditable))[\s=]*(.+)")
ABSENT_ONE = r"Because (\S+) was not found in the package registry(?: and ([\w.-]+)\S* depends)?"


class WantedRequirements:
    """pip's arguments: `kept` are requirements, `limits` constraint files, `places` projects of the tree."""

    def __init__(self, words: "list[str]") -> None:
        self.kept = []  # type: list[str]
        self.limits = []  # type: list[str]
        self.places = []  # type: list[str]
        while words:
            item = words.pop(0)
            self.add(item + " " + words.pop(0) if item in ("-r", "-c", "-e") else item, "", [])

    def add(self, item: str, place: str, seen: "list[str]") -> None:
        """`place` is the directory that a path in it starts from, `seen` are the files that it is in."""
        found = OPTION.match(item)
        kind, value = (found.group(1) or found.group(2), found.group(3)) if found else ("", item)
        path = os.path.normpath(os.path.join(place, value))
        if kind == "r" and path not in seen:
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read().replace("\\\n", " ")
            for each in text.splitlines():
                line = re.split(r"\s--?[a-z]", re.sub(r"(^|\s)#.*", "", each))[0].strip()
                if line:
                    self.add(line, os.path.dirname(path), [*seen, path])
        elif kind == "c":
            self.limits.extend(["-c", path])
        elif kind == "e" and "://" not in value:
            self.places.extend(["-e", value])
        elif kind in ("", "e") and not value.startswith("-"):
            self.kept.append(value)

    def wrong(self, output: str) -> "list[str]":
        """The requirements that no index has, or that cannot be built."""
        named = [each for pair in re.findall(ABSENT_ONE, output) for each in pair]
        if not re.search(r"Failed to fetch|timed? ?out", output, re.IGNORECASE):
            named += re.findall(r"Failed to (?:download and )?build:? `([^`]+)`", output)
        for line in output.splitlines():
            named += re.findall(r"`([^`]+)`", line) if "was included because" in line else []
        names = set(map(name_of, named))
        return [item for item in self.kept if name_of(item) in names or (address(item) and address(item) in output)]

    def required(self, output: str) -> "list[str]":
        """The first requirement that does not go with others."""
        names = [name_of(found) for found in re.findall(r"you require ([\w.-]+)", output)]
        return [item for item in self.kept if name_of(item) in names][:1]

    def leave_out(self, output: str, absent: str) -> bool:
        """Whether less is wanted after the errors of a try."""
        before = self.limits + self.kept
        found = self.wrong(output) or self.required(output)
        for item in found:
            at, loose = self.kept.index(item), unpinned(item)
            self.kept[at : at + 1] = [] if loose == item else [loose]
            if loose == item:
                print((address(item).partition("://")[2] or name_of(item)) + absent)
        if not found:
            self.kept, self.limits = list(map(unpinned, self.kept)), []
        return self.limits + self.kept != before


def name_of(text: str) -> str:
    found = re.match(r"[\w.-]*", text)
    return re.sub(r"[-_.]+", "-", found.group() if found else "").lower()


def address(text: str) -> str:
    found = re.search(r"https?://[^\s@#;]+|(?<=ssh://)[^\s#;]+", text)
    return found.group() if found else ""


def unpinned(text: str) -> str:
    return re.sub(r"\s*(===|==|~=)\s*[^;,\s]*", "", text)


def main(absent: str, *words: str) -> int:
    at = words.index("--")
    wanted = WantedRequirements(list(words[at + 1 :]))
    for _ in range(MAX_TRIES):
        command = [*words[:at], *wanted.limits, *wanted.places, *wanted.kept]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        output = done.stdout.decode("utf-8", "replace")
        print(output)
        if done.returncode == 0 or not wanted.leave_out(output, absent):
            break
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
