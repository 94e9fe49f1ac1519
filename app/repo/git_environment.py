"""The environment for git, which makes it ignore every hook and setting of a repository, user or machine."""

import json
import sys
from collections.abc import Mapping
from datetime import datetime

from app.core.task import Person

ENVIRONMENT: Mapping[str, str] = {
    "HOME": "/dev/null",  # never unset: without it git dies on a `~` in a repository's configuration
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
}
SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.askPass=",
    "core.sshCommand=false",
    "core.fsync=committed",
    "core.autocrlf=false",
    "core.symlinks=true",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "core.alternateRefsCommand=",
    "credential.helper=",
    "gc.auto=0",
    "maintenance.auto=false",
    "i18n.commitEncoding=UTF-8",
    "protocol.allow=never",
    "protocol.ext.allow=never",
    "submodule.recurse=false",
    # A repository of another user is only ever read by `upload-pack` and plumbing that executes nothing.
    "safe.directory=*",
)

ATTRIBUTES = "* -text -ident -filter -working-tree-encoding -eol -export-subst -export-ignore !diff !merge\n"
"""Beats every `.gitattributes` of a commit: stored bytes leave as they are, and no diff can be hidden."""


def identity_variables(author: Person, date: datetime) -> dict[str, str]:
    """Author and committer of a commit, as git's environment names them."""
    if date.tzinfo is None:
        raise ValueError("a commit's date needs a time zone")
    when = f"{int(date.timestamp())} {date.strftime('%z')}"
    fields = {"NAME": author.name, "EMAIL": author.email, "DATE": when}
    return {f"GIT_{role}_{field}": value for role in ("AUTHOR", "COMMITTER") for field, value in fields.items()}


_EXEC_WITH_STDIN_VARIABLES = (
    "import json, os, sys; os.environ.update(json.load(sys.stdin)); os.execv(sys.argv[1], sys.argv[1:])"
)


def secret_variables(variables: Mapping[str, str]) -> tuple[tuple[str, ...], bytes]:
    """A command prefix and its standard input that pass variables without showing them in a process list."""
    return (sys.executable, "-I", "-S", "-c", _EXEC_WITH_STDIN_VARIABLES), json.dumps(dict(variables)).encode()
