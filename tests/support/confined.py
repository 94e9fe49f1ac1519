"""Starts a program as a container runtime would with a seccomp profile: `confined.py PROFILE PROGRAM …`."""

import ctypes
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from app.sandbox.seccomp import (
    ALLOW,
    ARCHITECTURES,
    ERRNO,
    FORBIDDEN,
    JUMP_EQUAL,
    KILL,
    LOAD_WORD,
    MISSING,
    RETURN,
    BpfInstruction,
)

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2


class Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def assembled(profile: dict[str, Any]) -> list[BpfInstruction]:
    """A list of refused calls, as libseccomp makes it of such a profile."""
    architecture = ARCHITECTURES[platform.machine()]
    code = [
        BpfInstruction(LOAD_WORD, 0, 0, 4),
        BpfInstruction(JUMP_EQUAL, 1, 0, architecture.audit),
        BpfInstruction(RETURN, 0, 0, KILL),
        BpfInstruction(LOAD_WORD, 0, 0, 0),
    ]
    for rule in profile["syscalls"]:
        for name in rule["names"]:
            number = {**FORBIDDEN, **MISSING}[name][architecture.column]
            if number is not None:
                code += [
                    BpfInstruction(JUMP_EQUAL, 0, 1, number),
                    BpfInstruction(RETURN, 0, 0, ERRNO | rule["errnoRet"]),
                ]
    return [*code, BpfInstruction(RETURN, 0, 0, ALLOW)]


def confine(profile: dict[str, Any]) -> None:
    code = assembled(profile)
    raw = ctypes.create_string_buffer(b"".join(each.packed() for each in code))
    program = Program(len(code), ctypes.addressof(raw))
    libc = ctypes.CDLL(None, use_errno=True)
    for words in (
        (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0),
    ):
        if libc.prctl(*words):
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    confine(json.loads(Path(sys.argv[1]).read_text("utf-8")))
    os.execv(sys.argv[2], sys.argv[2:])
