"""The filter, executed by a small BPF machine for both architectures, so that every row of the table is tried."""

import errno
import struct

import pytest

from app.core.errors import SandboxError
from app.sandbox import seccomp
from app.sandbox.seccomp import ARCHITECTURES, FORBIDDEN, MISSING, Architecture, SyscallNumbers

REFUSED = seccomp.ERRNO | errno.EPERM
ABSENT = seccomp.ERRNO | errno.ENOSYS
NO_FAMILY = seccomp.ERRNO | errno.EAFNOSUPPORT
READ = SyscallNumbers(0, 63)


def decide(architecture: Architecture, number: int, *arguments: int, audit: int | None = None) -> int:
    """What the kernel would answer: runs the assembled program over one struct seccomp_data."""
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=IIQ6Q", number, architecture.audit if audit is None else audit, 0, *padded)
    code = [struct.unpack("=HBBI", chunk) for chunk in _chunks(seccomp.program(architecture.name))]
    accumulator, at = 0, 0
    for _ in range(len(code)):
        operation, if_true, if_false, operand = code[at]
        at += 1
        if operation == seccomp.RETURN:
            return int(operand)
        if operation == seccomp.LOAD_WORD:
            (accumulator,) = struct.unpack_from("=I", data, operand)
            continue
        taken = {
            seccomp.JUMP_EQUAL: accumulator == operand,
            seccomp.JUMP_GREATER_EQUAL: accumulator >= operand,
            seccomp.JUMP_ANY_BIT: bool(accumulator & operand),
        }[operation]
        at += if_true if taken else if_false
    raise AssertionError("the program fell off its end")


def _chunks(program: bytes) -> list[bytes]:
    return [program[at : at + 8] for at in range(0, len(program), 8)]


def _number(architecture: Architecture, numbers: SyscallNumbers) -> int:
    number = numbers[architecture.column]
    assert number is not None
    return number


@pytest.fixture(params=sorted(ARCHITECTURES))
def machine(request: pytest.FixtureRequest) -> Architecture:
    return ARCHITECTURES[str(request.param)]


def test_every_forbidden_call_is_refused_whatever_its_arguments(machine: Architecture) -> None:
    for name, numbers in FORBIDDEN.items():
        number = numbers[machine.column]
        if number is not None:
            assert decide(machine, number) == REFUSED, name
            assert decide(machine, number, 2**64 - 1, 1, 2, 3, 4, 5) == REFUSED, name


def test_calls_with_a_fall_back_do_not_exist(machine: Architecture) -> None:
    for name, numbers in MISSING.items():
        assert decide(machine, _number(machine, numbers)) == ABSENT, name


def test_ordinary_calls_are_allowed(machine: Architecture) -> None:
    assert decide(machine, _number(machine, READ), 3, 4096, 100) == seccomp.ALLOW


def test_every_unlisted_number_is_allowed(machine: Architecture) -> None:
    listed = {numbers[machine.column] for numbers in (*FORBIDDEN.values(), *MISSING.values(), seccomp.SOCKET)}
    for number in set(range(480)) - listed:
        assert decide(machine, number) == seccomp.ALLOW, number


def test_another_architecture_is_killed(machine: Architecture) -> None:
    i386 = 0x40000003
    assert decide(machine, _number(machine, READ), audit=i386) == seccomp.KILL


def test_x32_numbers_do_not_exist() -> None:
    x86 = ARCHITECTURES["x86_64"]
    assert decide(x86, 0x40000000 + 165) == ABSENT  # mount, by its x32 number


@pytest.mark.parametrize("flag", [0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000])
def test_no_namespace_is_ever_made(machine: Architecture, flag: int) -> None:
    sigchld = 17
    assert decide(machine, _number(machine, seccomp.CLONE), flag | sigchld) == REFUSED
    assert decide(machine, _number(machine, seccomp.UNSHARE), flag) == REFUSED


def test_threads_and_forks_are_made(machine: Architecture) -> None:
    thread = 0x3D0F00  # CLONE_VM | FS | FILES | SIGHAND | THREAD | SYSVSEM | SETTLS | PARENT_SETTID | CHILD_CLEARTID
    assert decide(machine, _number(machine, seccomp.CLONE), thread) == seccomp.ALLOW
    assert decide(machine, _number(machine, seccomp.CLONE), 17) == seccomp.ALLOW
    assert decide(machine, _number(machine, seccomp.UNSHARE), 0x400) == seccomp.ALLOW  # CLONE_FILES


def test_a_time_namespace_is_refused(machine: Architecture) -> None:
    assert decide(machine, _number(machine, seccomp.UNSHARE), 0x80) == REFUSED


def test_terminal_injection_is_refused_also_with_high_bits_set(machine: Architecture) -> None:
    ioctl = _number(machine, seccomp.IOCTL)
    for request in (seccomp.TIOCSTI, seccomp.TIOCLINUX):
        assert decide(machine, ioctl, 0, request) == REFUSED
        assert decide(machine, ioctl, 0, request | (1 << 32)) == REFUSED  # CVE-2019-10063: the kernel drops these
    assert decide(machine, ioctl, 0, 0x5413) == seccomp.ALLOW  # TIOCGWINSZ


def test_only_unix_inet_and_route_sockets(machine: Architecture) -> None:
    socket = _number(machine, seccomp.SOCKET)
    allowed = {seccomp.AF_UNIX, seccomp.AF_INET, seccomp.AF_INET6}
    for family in range(50):
        expected = seccomp.ALLOW if family in allowed | {seccomp.AF_NETLINK} else NO_FAMILY
        assert decide(machine, socket, family, 1, 0) == expected, family
    netlink_audit = 9
    assert decide(machine, socket, seccomp.AF_NETLINK, 3, netlink_audit) == NO_FAMILY


def test_jumps_fit_their_eight_bits(machine: Architecture) -> None:
    code = seccomp.assemble(machine)
    assert all(0 <= instruction.if_true < 256 and 0 <= instruction.if_false < 256 for instruction in code)
    assert len(code) < 4096  # BPF_MAXINSNS


def test_an_unknown_processor_is_an_error_with_a_hint() -> None:
    with pytest.raises(SandboxError, match="riscv64") as caught:
        seccomp.program("riscv64")
    assert "aarch64" in caught.value.hint
