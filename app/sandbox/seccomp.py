"""Assembles the BPF program that bubblewrap loads, from a table of refused system calls.

The list follows what container runtimes refuse by default, and adds new user namespaces, `io_uring`, unusual socket
families and the terminal injection ioctls. `ptrace` stays allowed: it reaches only the sandbox's own processes.
"""

import errno
import platform
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from app.core.errors import SandboxError

# Classic BPF, from linux/bpf_common.h: class | size | mode, and class | operation | source.
LOAD_WORD = 0x20
JUMP_EQUAL = 0x15
JUMP_GREATER_EQUAL = 0x35
JUMP_ANY_BIT = 0x45
RETURN = 0x06

# linux/seccomp.h: return values, and the offsets in struct seccomp_data. The low word of an argument comes first on
# little-endian machines, as both of ours are.
ALLOW = 0x7FFF0000
KILL = 0x80000000
ERRNO = 0x00050000
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16

NEW_NAMESPACE = 0x7E020000
"""Every CLONE_NEW* flag of clone(2): mount, cgroup, uts, ipc, user, pid, net."""
NEW_TIME_NAMESPACE = 0x80
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
NETLINK_ROUTE = 0
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
X32_BIT = 0x40000000


class SyscallNumbers(NamedTuple):
    """A system call's number on x86_64 and aarch64; None if the architecture never had it."""

    x86_64: int | None
    aarch64: int | None


@dataclass(frozen=True, slots=True)
class Architecture:
    """How the kernel names a machine in `seccomp_data.arch`, and its column in the table."""

    name: str
    audit: int
    column: int
    x32: bool = False


ARCHITECTURES = {
    "x86_64": Architecture("x86_64", 0xC000003E, 0, x32=True),
    "aarch64": Architecture("aarch64", 0xC00000B7, 1),
}

CLONE = SyscallNumbers(56, 220)
UNSHARE = SyscallNumbers(272, 97)
SOCKET = SyscallNumbers(41, 198)
IOCTL = SyscallNumbers(16, 29)

# "No such call": C libraries and runtimes have a fallback for kernels without these, and use it.
MISSING = {
    # Its flags are behind a pointer that a filter cannot read; libc falls back to clone.
    "clone3": SyscallNumbers(435, 435),
    "io_uring_setup": SyscallNumbers(425, 425),
    "io_uring_enter": SyscallNumbers(426, 426),
    "io_uring_register": SyscallNumbers(427, 427),
}

FORBIDDEN = {
    # Namespaces do not separate kernel key rings.
    "add_key": SyscallNumbers(248, 217),
    "request_key": SyscallNumbers(249, 218),
    "keyctl": SyscallNumbers(250, 219),
    # Large attack surface, or a window for races.
    "bpf": SyscallNumbers(321, 280),
    "perf_event_open": SyscallNumbers(298, 241),
    "userfaultfd": SyscallNumbers(323, 282),
    "modify_ldt": SyscallNumbers(154, None),
    "lookup_dcookie": SyscallNumbers(212, 18),
    "fanotify_init": SyscallNumbers(300, 262),
    # Only we decide the layout of the file system.
    "mount": SyscallNumbers(165, 40),
    "umount2": SyscallNumbers(166, 39),
    "pivot_root": SyscallNumbers(155, 41),
    "chroot": SyscallNumbers(161, 51),
    "open_tree": SyscallNumbers(428, 428),
    "move_mount": SyscallNumbers(429, 429),
    "fsopen": SyscallNumbers(430, 430),
    "fsconfig": SyscallNumbers(431, 431),
    "fsmount": SyscallNumbers(432, 432),
    "fspick": SyscallNumbers(433, 433),
    "mount_setattr": SyscallNumbers(442, 442),
    "open_tree_attr": SyscallNumbers(467, 467),
    "open_by_handle_at": SyscallNumbers(304, 265),  # reads any file of a file system, whatever is mounted where
    "setns": SyscallNumbers(308, 268),
    # The machine itself: capabilities protect these already; this is a second layer.
    "kexec_load": SyscallNumbers(246, 104),
    "kexec_file_load": SyscallNumbers(320, 294),
    "init_module": SyscallNumbers(175, 105),
    "finit_module": SyscallNumbers(313, 273),
    "delete_module": SyscallNumbers(176, 106),
    "reboot": SyscallNumbers(169, 142),
    "swapon": SyscallNumbers(167, 224),
    "swapoff": SyscallNumbers(168, 225),
    "acct": SyscallNumbers(163, 89),
    "quotactl": SyscallNumbers(179, 60),
    "quotactl_fd": SyscallNumbers(443, 443),
    "settimeofday": SyscallNumbers(164, 170),
    "clock_settime": SyscallNumbers(227, 112),
    "sethostname": SyscallNumbers(170, 161),
    "setdomainname": SyscallNumbers(171, 162),
    "iopl": SyscallNumbers(172, None),
    "ioperm": SyscallNumbers(173, None),
    "vhangup": SyscallNumbers(153, 58),
    "syslog": SyscallNumbers(103, 116),
    # Obsolete calls that no current program uses.
    "nfsservctl": SyscallNumbers(180, 42),
    "uselib": SyscallNumbers(134, None),
    "ustat": SyscallNumbers(136, None),
    "sysfs": SyscallNumbers(139, None),
    "_sysctl": SyscallNumbers(156, None),
    "create_module": SyscallNumbers(174, None),
    "get_kernel_syms": SyscallNumbers(177, None),
    "query_module": SyscallNumbers(178, None),
}


class BpfInstruction(NamedTuple):
    """struct sock_filter: the jumps are counted in instructions after this one."""

    code: int
    if_true: int
    if_false: int
    operand: int

    def packed(self) -> bytes:
        return struct.pack("=HBBI", *self)


@lru_cache
def program(machine: str | None = None) -> bytes:
    """The assembled filter for this machine's kernel (or for `machine`), as `bwrap --seccomp` reads it."""
    name = machine or platform.machine()
    if name not in ARCHITECTURES:
        raise SandboxError(
            f"There is no system call filter for the processor architecture {name}.",
            hint=f"Use a machine with {' or '.join(ARCHITECTURES)}, or another sandbox.",
        )
    return b"".join(instruction.packed() for instruction in assemble(ARCHITECTURES[name]))


def assemble(architecture: Architecture) -> list[BpfInstruction]:
    """The filter in order: the right architecture, the refused calls, the calls whose arguments matter, the rest."""
    code = [
        _load(ARCHITECTURE),
        BpfInstruction(JUMP_EQUAL, 1, 0, architecture.audit),
        _return(KILL),  # 32-bit calls have other numbers, so nothing below would apply to them
        _load(NUMBER),
    ]
    if architecture.x32:
        code += [BpfInstruction(JUMP_GREATER_EQUAL, 0, 1, X32_BIT), _refuse(errno.ENOSYS)]
    for calls, error in ((MISSING, errno.ENOSYS), (FORBIDDEN, errno.EPERM)):
        for numbers in calls.values():
            number = numbers[architecture.column]
            if number is not None:
                code += [BpfInstruction(JUMP_EQUAL, 0, 1, number), _refuse(error)]
    for numbers, block in (
        (CLONE, _refuse_flags(NEW_NAMESPACE)),
        (UNSHARE, _refuse_flags(NEW_NAMESPACE | NEW_TIME_NAMESPACE)),
        (IOCTL, _refuse_values(1, TIOCSTI, TIOCLINUX)),
        (SOCKET, _allow_families()),
    ):
        number = numbers[architecture.column]
        assert number is not None  # noqa: S101 - these four are in every column
        code += [BpfInstruction(JUMP_EQUAL, 0, len(block), number), *block]
    return [*code, _return(ALLOW)]


def _load(offset: int) -> BpfInstruction:
    return BpfInstruction(LOAD_WORD, 0, 0, offset)


def _load_argument(index: int) -> BpfInstruction:
    """Its low 32 bits, which is all the kernel uses for flags, ioctl requests and socket families."""
    return _load(ARGUMENTS + 8 * index)


def _return(value: int) -> BpfInstruction:
    return BpfInstruction(RETURN, 0, 0, value)


def _refuse(error: int) -> BpfInstruction:
    return _return(ERRNO | error)


def _refuse_flags(mask: int) -> list[BpfInstruction]:
    return [_load_argument(0), BpfInstruction(JUMP_ANY_BIT, 0, 1, mask), _refuse(errno.EPERM), _return(ALLOW)]


def _refuse_values(argument: int, *values: int) -> list[BpfInstruction]:
    block = [_load_argument(argument)]
    for value in values:
        block += [BpfInstruction(JUMP_EQUAL, 0, 1, value), _refuse(errno.EPERM)]
    return [*block, _return(ALLOW)]


def _allow_families() -> list[BpfInstruction]:
    """UNIX and INET inside an empty network namespace; NETLINK_ROUTE because libc lists interfaces with it."""
    block = [_load_argument(0)]
    for family in (AF_UNIX, AF_INET, AF_INET6):
        block += [BpfInstruction(JUMP_EQUAL, 0, 1, family), _return(ALLOW)]
    return [
        *block,
        BpfInstruction(JUMP_EQUAL, 0, 3, AF_NETLINK),
        _load_argument(2),
        BpfInstruction(JUMP_EQUAL, 0, 1, NETLINK_ROUTE),
        _return(ALLOW),
        _refuse(errno.EAFNOSUPPORT),
    ]
