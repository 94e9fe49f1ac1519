"""Names of processes: what a row or a sandbox says of who owns it."""

import os
import subprocess
import sys

from app.core.processes import is_alive, is_gone, this_process


def test_reused_pid_is_not_the_owner() -> None:
    host, pid, start = this_process().rsplit(":", 2)
    since, _, world = start.partition("-")
    assert is_alive(f"{host}:{pid}:{start}")
    assert not is_alive(f"{host}:{pid}:{int(since) + 1}-{world}")
    assert is_alive(f"elsewhere:{os.getpid()}:1"), "of other machines nothing is known"


def test_only_visible_processes_can_be_known_to_be_gone() -> None:
    host, pid, start = this_process().rsplit(":", 2)
    since, _, world = start.partition("-")
    assert is_gone(f"{host}:{pid}:{int(since) + 1}-{world}")
    assert is_gone(f"{host}:{pid}:{int(since) + 1}-{world}:deliveries"), "a part of a process"
    assert not is_gone(f"{host}:{pid}:{start}:deliveries")
    assert not is_gone(f"{host}:{pid}:{int(since) + 1}-00000000"), "another kernel, or another container's numbering"
    assert not is_gone(f"elsewhere:{pid}:{int(since) + 1}-{world}")
    assert not is_gone("somebody")
    assert len(f"{'h' * 32}:{4_194_304}:{start}:deliveries") <= 80, "as long as its columns are"


ODD_HOST = """
import socket
socket.sethostname("b\u00fcro (1)/a")
from app.core.processes import is_gone, this_process
from app.sandbox.host_directories import check_key
check_key(this_process())
assert not is_gone(this_process())
"""


def test_every_name_of_a_machine_can_be_in_a_sandboxs_key() -> None:
    subprocess.run(["unshare", "--map-root-user", "--uts", sys.executable, "-c", ODD_HOST], check=True)


def test_without_proc_no_process_is_known_to_be_gone() -> None:
    """Not even this one, which lives."""
    known = "from app.core.processes import is_gone, this_process; assert not is_gone(this_process())"
    script = 'mount -t tmpfs none /proc && exec "$0" -c "$1"'
    words = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, sys.executable, known]
    subprocess.run(words, check=True)
