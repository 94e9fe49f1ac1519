"""What `doctor` says about container engines: properties that hold, and the exact repair for those that do not."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from app.core.errors import SandboxError
from app.sandbox.base import ENV, DoctorCheck, SandboxSpec, SetupPlan
from app.sandbox.container.engine import ContainerEngine
from app.sandbox.container.provider import MIN_PYTHON, NEEDED, ContainerImage, ContainerProvider, missing_tools
from tests.support.containers.engines import LocalEngine, containers, engine, provided, provider
from tests.support.sandboxes import filler, opened, shell

WALLS = {"capabilities", "network", "host files", "system calls", "memory limit", "process limit", "time limit"}
Cli = Callable[..., ContainerProvider]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """An engine whose command line is a script."""

    def make(script: str, name: str = "docker") -> ContainerProvider:
        program = tmp_path / "bin" / name
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        environment = {"PATH": f"{program.parent}:/usr/bin:/bin"}
        return ContainerProvider(name, scope="s", caches=tmp_path, environment=environment, image="i:1", seconds=5)

    return make


async def only(provider: ContainerProvider) -> DoctorCheck:
    (check,) = await provider.check()
    assert not check.ok
    return check


async def test_an_engine_that_is_not_installed(tmp_path: Path) -> None:
    """And where nothing was used there is nothing to sweep."""
    for name, title in (("docker", "Docker"), ("podman", "Podman")):
        missing = ContainerProvider(name, scope="s", caches=tmp_path, environment={"PATH": str(tmp_path)})
        check = await only(missing)
        assert (check.name, check.detail) == ("engine", f"{title} is not installed: there is no `{name}`.")
        assert check.repair.startswith("Install ")
        with pytest.raises(SandboxError, match="not installed"):
            await missing.open(SandboxSpec("job-1", filler({})))
    assert await asyncio.to_thread(os.listdir, tmp_path) == []


async def test_a_daemon_that_is_not_reachable(cli: Cli) -> None:
    check = await only(cli("echo 'Cannot connect to the Docker daemon at unix:///x.' >&2; exit 1"))
    assert "not reachable" in check.detail
    assert "systemctl start docker" in check.repair


async def test_a_daemon_that_refuses_this_user(cli: Cli) -> None:
    check = await only(cli("echo 'permission denied while trying to connect to unix:///var/run/d.sock' >&2; exit 1"))
    assert "refuses this user" in check.detail
    assert "group `docker`" in check.repair


async def test_a_machine_of_podmans_that_is_not_started(cli: Cli) -> None:
    check = await only(cli("echo 'Error: unable to connect to Podman socket' >&2; exit 125", "podman"))
    assert "podman machine start" in check.repair


async def test_an_engine_that_does_not_answer(tmp_path: Path, cli: Cli) -> None:
    cli("exec sleep 60")
    slow = ContainerEngine("docker", {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}, tmp_path, seconds=0.2)
    with pytest.raises(SandboxError, match="did not answer within 0 s"):
        await slow.version()


async def test_an_engine_that_is_too_old(cli: Cli) -> None:
    script = """case $1 in version) echo '{"Server": {"Version": "19.3.1"}}' ;; *) echo '{}' ;; esac"""
    check = await only(cli(script))
    assert check.detail.startswith("Docker 19.3.1")
    assert check.repair.startswith("It must be 20.10 or newer.")


async def test_an_image_that_is_not_there(cli: Cli) -> None:
    script = """case $1 in
version) echo '{"Client": {"Version": "5.2.0"}}' ;;
info) echo '{"host": {"security": {"rootless": true}}}' ;;
*) echo 'Error: i:1: image not known' >&2; exit 125 ;;
esac"""
    found, check = await cli(script, "podman").check()
    assert found.detail == "Podman 5.2.0, rootless"
    assert (check.name, check.ok, check.detail) == ("image", False, "Podman does not have the image i:1.")
    assert "`podman pull i:1`" in check.repair
    assert "AGENT_FIX_CONTAINER_IMAGE" in check.repair


def test_programs_missing_from_an_image_are_named() -> None:
    whole = frozenset({*NEEDED, "gnu-find", "python-{}.{}".format(*MIN_PYTHON), "interpreter:/usr/bin/python3"})
    assert missing_tools(whole) == []
    assert missing_tools(whole - {"git", "/usr/bin/tar"}) == ["git", "/usr/bin/tar"]
    assert missing_tools(whole - {"gnu-find"}) == ["GNU find (findutils)"]
    assert missing_tools((whole - {"python-3.9"}) | {"python-3.8"}) == ["a complete Python 3.9 or newer"]
    assert missing_tools(whole - {"python-3.9"}) == ["a complete Python 3.9 or newer"]


def test_an_images_own_variables_are_kept_and_its_path_comes_after_the_set_ups() -> None:
    image = ContainerImage.from_inspect(
        "i", {"Id": "x", "Config": {"Env": ["PATH=/opt/bin:/bin", "JAVA_HOME=/opt/java", "HOME=/x"]}}
    )
    assert image.variables()["PATH"] == f"{ENV}/bin:/opt/bin:/bin"
    assert image.variables()["JAVA_HOME"] == "/opt/java"
    assert image.variables()["HOME"] == "/home/agent"
    assert ContainerImage.from_inspect("i", {"Id": "x"}).variables()["PATH"].startswith(f"{ENV}/bin:/usr/local/bin")


@pytest.mark.xdist_group("docker")
class TestDocker:
    async def test_the_engine_passes_every_check_and_nothing_is_left(
        self, docker: LocalEngine, provider: ContainerProvider
    ) -> None:
        checks = {check.name: check for check in await provider.check()}
        assert list(checks)[:3] == ["engine", "image", "start"]
        assert checks.keys() >= WALLS
        assert [check for check in checks.values() if not check.ok] == []
        assert containers(docker) == []

    async def test_an_image_that_lacks_programs(self, docker: LocalEngine, tmp_path: Path) -> None:
        docker.report("create", "--name", "agent-fix-poor", "--network", "none", "agent-fix-tests:1", "sh", "-c", POOR)
        docker.report("start", "--attach", "agent-fix-poor")
        docker.report("commit", "agent-fix-poor", "agent-fix-tests:poor")
        docker.report("rm", "agent-fix-poor")
        poor = provider(docker, tmp_path, "agent-fix-tests:poor")
        *_, check = await poor.check()
        with pytest.raises(SandboxError, match="the image lacks git /usr/bin/tar; see agent-fix doctor"):
            await poor.open(SandboxSpec("job-1", filler({})))
        docker.report("rmi", "agent-fix-tests:poor")
        assert check.detail == "agent-fix-tests:poor lacks git, /usr/bin/tar"
        assert "your own image" in check.repair


POOR = "rm /usr/bin/git /usr/bin/tar"


@pytest.mark.full
@pytest.mark.xdist_group("podman")
async def test_podman_does_the_same(tmp_path: Path) -> None:
    with provided("podman", tmp_path) as podman:
        setup = SetupPlan((f"echo made > {ENV}/made",), key="podman")
        first = await podman.open(SandboxSpec("job-1", filler({"a": b"a\n"}), setup))
        assert await shell(first, f"cat a {ENV}/made; echo b > a") == "a\nmade\n"
        await first.close()
        async with opened(podman, SandboxSpec("job-1", filler({"a": b"a\n"}), setup)) as again:
            assert await shell(again, "cat a") == "b\n"
        assert containers(engine("podman")) == []


@pytest.mark.full
@pytest.mark.xdist_group("podman")
async def test_podman_is_proved(tmp_path: Path) -> None:
    with provided("podman", tmp_path) as podman:
        assert [check for check in await podman.check() if not check.ok] == []
