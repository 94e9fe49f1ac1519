"""A stand-in for scheduler and kubelet: runs the container of each pod as a child process and reports its end."""

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.kubernetes.control_plane import ControlPlane

NODE = "node-1"
STATE_DIRECTORY = "/var/lib/agent-fix"
"""Where the image keeps its state; here it is a directory of the pod's own."""


@dataclass
class RunningPod:
    """A pod's process, with the environment that its manifest gives it and nothing else."""

    name: str
    process: "subprocess.Popen[bytes]"
    started: str
    environment: dict[str, str] = field(repr=False)
    killed_at: float = 0.0


class Node:
    """One node with room for every pod of a namespace. `hold` leaves new pods pending."""

    def __init__(self, plane: ControlPlane, namespace: str, place: Path) -> None:
        from kubernetes import client

        self._api = client.CoreV1Api(plane.client())
        self._namespace = namespace
        self._place = place
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.hold = threading.Event()
        self.lost = threading.Event()
        self.pods: dict[str, RunningPod] = {}
        self.seen: list[dict[str, Any]] = []
        """The manifest of every pod that was started here."""
        self.environments: list[dict[str, str]] = []
        self.log = place / "pods.log"

    def __enter__(self) -> "Node":
        self._place.mkdir(parents=True, exist_ok=True)
        self._api.create_node({"metadata": {"name": NODE}})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(60)
        for pod in self.pods.values():
            pod.process.kill()
            pod.process.wait()

    def kill(self, name: str) -> None:
        """The container's process dies, as for want of memory."""
        self.pods[name].process.kill()

    def _work(self) -> None:
        while not self._ending.is_set():
            if not self.lost.is_set():
                listed = json.loads(self._api.list_namespaced_pod(self._namespace, _preload_content=False).data)
                for pod in listed["items"]:
                    self._tend(pod)
            self._ending.wait(0.1)

    def _tend(self, pod: dict[str, Any]) -> None:
        name, phase = pod["metadata"]["name"], pod["status"].get("phase")
        deleted = "deletionTimestamp" in pod["metadata"]
        if phase in {"Succeeded", "Failed"}:
            if deleted:
                self._remove(name)
        elif name not in self.pods:
            if deleted:
                self._remove(name)
            elif not self.hold.is_set():
                self._start(pod)
        else:
            running = self.pods[name]
            if deleted and not running.killed_at:
                running.killed_at = time.monotonic() + pod["metadata"].get("deletionGracePeriodSeconds", 30)
                running.process.send_signal(signal.SIGTERM)
            if running.killed_at and time.monotonic() >= running.killed_at:
                running.process.kill()
            if running.process.poll() is not None:
                self._report_end(running)

    def _start(self, pod: dict[str, Any]) -> None:
        name = pod["metadata"]["name"]
        if not pod["spec"].get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
            binding = {"metadata": {"name": name}, "target": target}
            self._api.create_namespaced_pod_binding(name, self._namespace, binding, _preload_content=False)
        (container,) = pod["spec"]["containers"]
        environment = self._environment(name, container)
        words = [sys.executable, "-I", "-m", "app", *container["args"]]
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                words, env=environment, cwd="/", stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        self.seen.append(pod)
        self.environments.append(environment)
        self.pods[name] = RunningPod(name, process, now(), environment)
        self._report(name, "Running", {"running": {"startedAt": self.pods[name].started}})

    def _environment(self, pod: str, container: dict[str, Any]) -> dict[str, str]:
        given: dict[str, str] = {}
        for source in container.get("envFrom", ()):
            secret = self._api.read_namespaced_secret(source["secretRef"]["name"], self._namespace)
            given |= {name: base64.b64decode(value).decode() for name, value in (secret.data or {}).items()}
        given |= {each["name"]: each["value"] for each in container.get("env", ())}
        home = self._place / pod
        assert STATE_DIRECTORY in {each["mountPath"] for each in container["volumeMounts"]}
        image = {"PATH": os.environ["PATH"], "HOME": str(home), "AGENT_FIX_STATE_DIR": str(home)}
        home.mkdir()
        return {**image, **given}

    def _report_end(self, running: RunningPod) -> None:
        code = running.process.returncode
        code = 128 - code if code < 0 else code
        terminated = {
            "exitCode": code,
            "reason": "Error" if code else "Completed",
            "startedAt": running.started,
            "finishedAt": now(),
        }
        self._report(running.name, "Failed" if code else "Succeeded", {"terminated": terminated})
        del self.pods[running.name]

    def _report(self, name: str, phase: str, state: dict[str, Any]) -> None:
        status = {
            "name": "job",
            "image": "agent-fix",
            "imageID": "",
            "ready": phase == "Running",
            "restartCount": 0,
            "state": state,
        }
        ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
        body = {"status": {"phase": phase, "conditions": [ready], "containerStatuses": [status]}}
        self._quietly(self._api.patch_namespaced_pod_status, name, self._namespace, body)

    def _remove(self, name: str) -> None:
        self._quietly(self._api.delete_namespaced_pod, name, self._namespace, grace_period_seconds=0)

    def _quietly(self, call: Any, *given: Any, **named: Any) -> None:
        from kubernetes.client import ApiException

        with suppress(ApiException):  # it is gone meanwhile, or another wrote; the next round sees
            call(*given, **named)


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
