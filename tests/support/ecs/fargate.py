"""A stand-in for Fargate beside moto's ECS: runs each task's container as a child process and reports how it ended."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

REGION = "eu-central-1"
CLUSTER = "agent-fix"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": REGION}


class Fargate:
    """Moto's tasks with processes. `client` is the official one; moto holds the state."""

    def __init__(self, url: str, place: Path) -> None:
        self.url = url
        self.client = _client("ecs", url)
        self._place = place
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.environments: list[dict[str, str]] = []
        self.hold = threading.Event()
        self.log = place / "tasks.log"

    @property
    def environment(self) -> dict[str, str]:
        """What a worker needs to reach it."""
        return {**CREDENTIALS, "AWS_ENDPOINT_URL_ECS": self.url}

    def define(self, definition: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        """Register a task definition; `environment` stands for the values of its secrets."""
        self._place.mkdir(parents=True, exist_ok=True)
        self.client.create_cluster(clusterName=CLUSTER)
        self.client.register_task_definition(**definition)
        self.ec2: Any = _client("ec2", self.url)
        network = self.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        self.ec2.modify_vpc_attribute(VpcId=network, EnableDnsHostnames={"Value": True})
        self.subnet = self.ec2.create_subnet(VpcId=network, CidrBlock="10.0.1.0/24")["Subnet"]["SubnetId"]
        group = self.ec2.create_security_group(GroupName="jobs", Description="jobs", VpcId=network)
        self.security_group = group["GroupId"]
        (container,) = definition["containerDefinitions"]
        self._secrets = {each["name"]: environment[each["name"]] for each in container.get("secrets", ())}
        self._plain = {each["name"]: each["value"] for each in container.get("environment", ())}
        self._thread.start()

    def close(self) -> None:
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(60)
        for process in self.processes.values():
            process.kill()
            process.wait()

    def displace(self, arn: str, code: str = "SpotInterruption") -> None:
        """AWS takes the machine away: SIGTERM, and after a while SIGKILL."""
        task = self._task(arn)
        task.stop_code, task.desired_status = code, "STOPPED"

    def kill(self, arn: str) -> None:
        self.processes[arn].kill()

    def _tasks(self) -> list[Any]:
        from moto.ecs.models import ecs_backends

        backend = ecs_backends["123456789012"][REGION]
        return list(backend.tasks.get(CLUSTER, {}).values())

    def _task(self, arn: str) -> Any:
        return next(task for task in self._tasks() if task.task_arn == arn)

    def _work(self) -> None:
        while not self._ending.wait(0.1):
            for task in self._tasks():
                self._tend(task)

    def _tend(self, task: Any) -> None:
        arn = task.task_arn
        process = self.processes.get(arn)
        if process is None:
            if task.desired_status == "STOPPED":
                task.last_status = "STOPPED"
            elif self.hold.is_set():
                task.last_status = "PENDING"
            else:
                task.last_status = "RUNNING"
                self.processes[arn] = self._start(task)
            return
        if task.desired_status == "STOPPED" and process.poll() is None:
            task.last_status = "DEACTIVATING"
            process.send_signal(signal.SIGTERM)
        elif process.poll() is not None and task.last_status != "STOPPED":
            code = process.returncode
            task.containers = [{"name": "job", "lastStatus": "STOPPED", "exitCode": 128 - code if code < 0 else code}]
            task.stop_code = getattr(task, "stop_code", "") or "EssentialContainerExited"
            task.desired_status = task.last_status = "STOPPED"
        elif task.last_status != "STOPPED":
            task.last_status = "RUNNING"

    def _start(self, task: Any) -> "subprocess.Popen[bytes]":
        home = self._place / task.task_arn.rpartition("/")[2]
        home.mkdir()
        image = {"PATH": os.environ["PATH"], "HOME": str(home), "AGENT_FIX_STATE_DIR": str(home)}
        environment = {**image, **self._plain, **self._secrets}
        self.environments.append(environment)
        (override,) = task.overrides["containerOverrides"]
        words = [sys.executable, "-I", "-m", "app", *override["command"]]
        with self.log.open("ab") as log:
            return subprocess.Popen(words, env=environment, cwd="/", stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def _client(service: str, url: str) -> Any:
    import boto3

    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    return boto3.client(service, endpoint_url=url, region_name=REGION, **keys)


@contextmanager
def fargate(place: Path) -> Iterator[Fargate]:
    pytest.importorskip("moto", reason="NOT TESTED on ECS: the package moto is not installed")
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    found = Fargate(f"http://{host}:{port}", place)
    try:
        yield found
    finally:
        found.close()
        server.stop()
