"""A real kube-apiserver with etcd and the real controllers, on loopback ports; `make kubernetes-tools` builds them."""

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.installed_programs import ROOT

TOOLS = ROOT / ".cache" / "kubernetes"
CONTROLLERS = (
    "job-controller",
    "serviceaccount-controller",
    "namespace-controller",
    "garbage-collector-controller",
    "ttl-after-finished-controller",
    "root-ca-certificate-publisher-controller",
)


class ControlPlane:
    """Its API at `url`; `kubeconfig` makes a file with which somebody may use it."""

    def __init__(self, place: Path, port: int, token: str) -> None:
        self.place = place
        self.url = f"https://127.0.0.1:{port}"
        self.token = token
        self.ca = place / "certificates" / "apiserver.crt"

    def kubeconfig(self, name: str, token: str) -> Path:
        path = self.place / f"{name}.kubeconfig"
        cluster = {"server": self.url, "certificate-authority": str(self.ca)}
        context = {"cluster": "test", "user": name}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": "test", "context": context}],
            "current-context": "test",
        }
        path.write_text(yaml.safe_dump(document))
        return path

    def client(self) -> Any:
        """The official client, as the cluster's administrator."""
        from kubernetes import config

        return config.new_client_from_config(config_file=str(self.kubeconfig("admin", self.token)))


def program(name: str) -> str:
    found = TOOLS / name if (TOOLS / name).exists() else shutil.which(name)
    if not found:
        pytest.skip(f"NOT TESTED on a real Kubernetes API: {name} is missing (`make kubernetes-tools`)")
    return str(found)


@contextmanager
def control_plane(place: Path) -> Iterator[ControlPlane]:
    pytest.importorskip("kubernetes", reason="NOT TESTED on a real Kubernetes API: the package is not installed")
    etcd, apiserver, controllers = map(program, ("etcd", "kube-apiserver", "kube-controller-manager"))
    place.mkdir(parents=True, exist_ok=True)
    ports = free_ports(4)
    key, tokens = place / "sa.key", place / "tokens.csv"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    plane = ControlPlane(place, ports[2], secrets.token_hex(16))
    tokens.write_text(f"{plane.token},admin,admin,system:masters\n")
    storage = f"http://127.0.0.1:{ports[0]}"
    commands = [
        [
            etcd,
            f"--data-dir={place / 'etcd'}",
            f"--listen-client-urls={storage}",
            f"--advertise-client-urls={storage}",
            f"--listen-peer-urls=http://127.0.0.1:{ports[1]}",
            "--unsafe-no-fsync",
            "--logger=zap",
        ],
        [
            apiserver,
            f"--etcd-servers={storage}",
            f"--cert-dir={place / 'certificates'}",
            "--bind-address=127.0.0.1",
            f"--secure-port={ports[2]}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--watch-cache=true",
            "--v=1",
        ],
        [
            controllers,
            f"--kubeconfig={plane.place / 'admin.kubeconfig'}",
            f"--secure-port={ports[3]}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={place / 'controllers'}",
            f"--service-account-private-key-file={key}",
            f"--controllers={','.join(CONTROLLERS)}",
            "--leader-elect=false",
        ],
    ]
    plane.kubeconfig("admin", plane.token)
    running: list[subprocess.Popen[bytes]] = []
    try:
        for number, command in enumerate(commands):
            running.append(_start(command, place / f"{number}.log"))
            if number == 1:
                _wait_for(plane, running, place)
        yield plane
    finally:
        for process in reversed(running):
            process.kill()
            process.wait()


def _start(command: list[str], log: Path) -> "subprocess.Popen[bytes]":
    with log.open("wb") as output:
        return subprocess.Popen(
            command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env={"PATH": os.environ["PATH"]}
        )


def _wait_for(plane: ControlPlane, running: list["subprocess.Popen[bytes]"], place: Path) -> None:
    from kubernetes import client
    from urllib3.exceptions import HTTPError

    end = time.monotonic() + 120
    while True:
        logs = "\n".join(path.read_text(errors="replace")[-1_500:] for path in sorted(place.glob("*.log")))
        assert time.monotonic() < end, f"the API server is not ready:\n{logs}"
        assert all(process.poll() is None for process in running), logs
        try:
            if plane.ca.exists():
                client.CoreV1Api(plane.client()).read_namespace("kube-system")
                return
        except (HTTPError, client.ApiException, OSError):
            pass
        time.sleep(0.3)


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
