"""Results of set-ups: built once per key, also with concurrent jobs, with a proxy as the only network."""

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from app.core.errors import SetupError
from app.sandbox.base import SandboxSpec, SetupPlan
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from app.sandbox.setup.package_clients import PackageClients
from app.sandbox.setup.plan import plan_setup
from tests.support.memory_tree import MemoryTree
from tests.support.sandboxes import filler, opened, shell

FILES = {"README.md": b"hello\n", "src/a.py": b"a = 1\n"}


class CachedProviders:
    """Providers over one cache, as several processes have it; counts how often a tree is filled."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.fills = 0

    @property
    def layers(self) -> list[Path]:
        return sorted(path for path in (self.directory / "caches" / "setup").iterdir() if path.suffix != ".lock")

    def provider(self) -> BubblewrapProvider:
        environment = {"PATH": os.defpath}
        return BubblewrapProvider(self.directory / "jobs", caches=self.directory / "caches", environment=environment)

    def spec(self, key: str, setup: SetupPlan) -> SandboxSpec:
        fill = filler(FILES)

        def counted(directory: Path) -> None:
            self.fills += 1
            fill(directory)

        return SandboxSpec(key, counted, setup)


@pytest.fixture
def services(tmp_path: Path) -> CachedProviders:
    return CachedProviders(tmp_path)


async def test_the_second_job_of_a_key_skips_it(services: CachedProviders) -> None:
    setup = SetupPlan(("date +%N > /env/when; mkdir modules; date +%N > modules/when",), key="k")
    seen = []
    for key in ("one", "two"):
        async with opened(services.provider(), services.spec(key, setup)) as sandbox:
            seen.append(await shell(sandbox, "cat /env/when modules/when"))
    assert seen[0] == seen[1]
    assert len(services.layers) == 1
    assert services.fills == 3  # one for the set-up's throw-away copy, one for each job


async def test_another_key_is_another_result(services: CachedProviders) -> None:
    for key in ("one", "two"):
        setup = SetupPlan((f"echo {key} > /env/which",), key=key)
        async with opened(services.provider(), services.spec(key, setup)) as sandbox:
            assert await shell(sandbox, "cat /env/which") == f"{key}\n"
    assert len(services.layers) == 2


PYPROJECT = b"""[build-system]
requires = ["uv_build<1"]
build-backend = "uv_build"
[project]
name = "a"
version = "1"
"""
HOSTILE = b"import pathlib; pathlib.Path('/env/hostile').write_text('hostile')\n"


async def no_indexes() -> PackageClients:
    return PackageClients()


async def test_a_branch_leaves_nothing_in_the_environment_that_it_shares_with_other_commits(tmp_path: Path) -> None:
    """A declared build executes and copies none of the tree, so its layer is for every commit with these manifests."""
    uv = Path(sys.executable).with_name("uv")
    base = {"pyproject.toml": PYPROJECT, "src/a/__init__.py": b""}
    names = ("src/a/__init__.py", "src/a/uv_build.py", "src/a.pth", "bin/pytest", "pip.conf", ".env")
    plans, found = [], []
    provider = CachedProviders(tmp_path).provider()
    for name, more in (("branch", names), ("base", ())):
        files = {**base, **dict.fromkeys(more, HOSTILE)}
        plan = await plan_setup(
            MemoryTree(files),
            commands=None,
            extra_hosts=(),
            clients=no_indexes,
            python=Path("python3"),
            scope="owner/a",
        )
        make, get_uv, install, *after = plan.commands
        assert get_uv.startswith("/env/bin/python -I -m pip install --quiet --target /tmp/uv uv")
        commands = (make, f"mkdir -p /tmp/uv/bin && ln -s {uv} /tmp/uv/bin/uv", install, *after)
        plans.append(replace(plan, commands=commands, groups=(), readable=(str(uv.parent),)))
        async with opened(provider, SandboxSpec(name, filler(files), plans[-1])) as sandbox:
            found.append(await shell(sandbox, "find /env -type f | sort; grep -rl hostile /env || true"))
            assert (
                await shell(sandbox, "/env/bin/python -c 'import a; print(a.__file__)'")
                == "/workspace/src/a/__init__.py\n"
            )
    assert plans[0].key == plans[1].key
    assert found[0] == found[1]
    assert "hostile" not in found[0]


async def test_two_at_once_build_it_once(services: CachedProviders) -> None:
    setup = SetupPlan(("date +%N > /env/when; sleep 0.3",), key="same")

    async def job(key: str) -> str:
        async with opened(services.provider(), services.spec(key, setup)) as sandbox:
            return await shell(sandbox, "cat /env/when")

    results = await asyncio.gather(*(job(f"job-{number}") for number in range(3)))
    assert len(set(results)) == 1
    assert services.fills == 4


async def test_a_failure_leaves_nothing_and_is_tried_again(services: CachedProviders) -> None:
    for _ in range(2):
        with pytest.raises(SetupError, match="exit code 3"):
            await services.provider().open(services.spec("fails", SetupPlan(("touch /env/half; exit 3",), key="k")))
        assert services.layers == []
    setup = SetupPlan(("ls -A /env > /env/found",), key="k")
    async with opened(services.provider(), services.spec("works", setup)) as sandbox:
        assert await shell(sandbox, "cat /env/found") == "found\n"


async def test_one_group_may_fail_where_another_does_not(services: CachedProviders) -> None:
    """A job goes on without it and says so, in each of its sandboxes; the next job tries again."""
    groups = (("echo python > /env/made",), ("echo no such lock >&2; exit 1", "echo never > /env/later"))
    setup = SetupPlan((*groups[0], *groups[1]), key="mixed", groups=groups)
    for key in ("one.work", "one.fresh", "two.work"):
        async with opened(services.provider(), services.spec(key, setup)) as sandbox:
            (told,) = sandbox.left_out
            assert await shell(sandbox, "ls /env; cat /env/made") == "made\npython\n"
            assert "exit code 1" in told
            assert "no such lock" in told
    assert [path.name.partition(".")[2] for path in services.layers] == ["one", "two"]


async def test_a_dependency_that_no_index_has_is_reported_to_every_job_and_not_tried_again(
    services: CachedProviders,
) -> None:
    line = "@secret/tool cannot be had here, and is left out"
    forged = "`code` cannot be had here, and is left out"
    setup = SetupPlan((f"echo '{line}'; echo '{forged}'; echo 'and {line}'; date +%N > /env/when",), key="absent")
    seen = set()
    for key in ("one.work", "two.work"):
        async with opened(services.provider(), services.spec(key, setup)) as sandbox:
            assert sandbox.left_out == (line,)
            seen.add(await shell(sandbox, "cat /env/when"))
    assert len(seen) == 1


async def test_if_every_group_fails_the_setup_fails(services: CachedProviders) -> None:
    groups = (("exit 3",), ("exit 4",))
    setup = SetupPlan((*groups[0], *groups[1]), key="mixed", groups=groups)
    with pytest.raises(SetupError, match="exit code 3"):
        await services.provider().open(services.spec("one", setup))
    assert services.layers == []


async def test_cancelling_leaves_nothing(services: CachedProviders) -> None:
    begun = asyncio.Event()
    setup = SetupPlan(("echo begun; sleep 300",), key="k")
    opening = asyncio.create_task(
        services.provider().open(services.spec("job", setup), on_output=lambda _: begun.set())
    )
    await begun.wait()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert services.layers == []


async def test_files_of_a_killed_builder_are_removed(services: CachedProviders) -> None:
    setup = SetupPlan(("echo made > /env/x",), key="k")
    async with opened(services.provider(), services.spec("one", setup)):
        (layer,) = services.layers
    layer.rename(layer.with_name(f"{layer.name}.building"))
    async with opened(services.provider(), services.spec("two", setup)) as sandbox:
        assert await shell(sandbox, "cat /env/x") == "made\n"
    assert services.layers == [layer]


async def test_a_job_has_what_the_commands_created_in_the_tree_and_at_home_but_no_temporary_files(
    services: CachedProviders,
) -> None:
    setup = SetupPlan(
        ("touch trace; mkdir modules; touch modules/m ~/h /tmp/t; echo x > README.md; git init -q .",), key="k"
    )
    async with opened(services.provider(), services.spec("job", setup)) as sandbox:
        assert await shell(sandbox, "cat README.md; ls -A; ls ~ /tmp") == (
            "hello\nREADME.md\nmodules\nsrc\ntrace\n/home/agent:\nh\n\n/tmp:\n"
        )


async def test_node_modules_is_writable_and_the_next_sandbox_has_it_as_it_was(services: CachedProviders) -> None:
    """As vitest's type check does, and its cache. What is installed in /env is reset after each command."""
    setup = SetupPlan(("mkdir node_modules; echo made | tee node_modules/a > /env/a",), key="k")
    runner = "cd node_modules && cat a && mkdir .vite && echo changed > a && rm a && ls -A && echo changed > /env/a"
    for key in ("one", "two"):
        async with opened(services.provider(), services.spec(key, setup)) as sandbox:
            assert await shell(sandbox, runner) == "made\n.vite\n"
            assert await shell(sandbox, "ls -A node_modules; cat /env/a") == ".vite\nmade\n"


async def test_a_file_may_be_part_of_the_result(services: CachedProviders) -> None:
    setup = SetupPlan(("echo generated > src/version.py",), key="k")
    async with opened(services.provider(), services.spec("job", setup)) as sandbox:
        assert await shell(sandbox, "cat src/version.py src/a.py") == "generated\na = 1\n"


async def test_the_first_failing_line_ends_a_command(services: CachedProviders) -> None:
    with pytest.raises(SetupError, match="exit code 1"):
        await services.provider().open(services.spec("job", SetupPlan(("false | cat\ntouch /env/never",), key="k")))


async def test_a_host_that_is_not_listed_is_refused_and_named(services: CachedProviders) -> None:
    fetch = "import urllib.request as u; u.urlopen('http://elsewhere.invalid/x')"
    with pytest.raises(SetupError, match=r"refused: elsewhere\.invalid") as caught:
        await services.provider().open(
            services.spec("job", SetupPlan((f'python3 -c "{fetch}"',), key="k", hosts=("other.invalid",)))
        )
    assert "network:" in caught.value.message


async def test_the_proxy_cannot_be_bypassed(services: CachedProviders) -> None:
    direct = "import socket; socket.create_connection(('192.0.2.1', 80), 1)"
    with pytest.raises(SetupError, match="unreachable"):
        await services.provider().open(
            services.spec("job", SetupPlan((f'python3 -c "{direct}"',), key="k", hosts=("other.invalid",)))
        )


async def _listening(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])


async def test_a_listed_host_is_reached(services: CachedProviders) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\npackage")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = await _listening(server)
    fetch = f"import urllib.request as u; print(u.urlopen('http://localhost:{port}/x').read())"
    setup = SetupPlan(
        (f'NO_PROXY= no_proxy= python3 -c "{fetch}" > /env/got',), key="k", hosts=(f"http://localhost:{port}",)
    )
    try:
        async with opened(services.provider(), services.spec("job", setup)) as sandbox:
            assert await shell(sandbox, "cat /env/got") == "b'package'\n"
    finally:
        server.close()


async def test_paths_of_the_machine_that_commands_may_read(services: CachedProviders, tmp_path: Path) -> None:
    index = tmp_path / "index"
    index.mkdir()
    (index / "package").write_text("bytes")
    setup = SetupPlan(
        (f"cp {index}/package /env/; ! touch {index}/x",), key="k", readable=(str(index), "/no/such/path")
    )
    async with opened(services.provider(), services.spec("job", setup)) as sandbox:
        assert await shell(sandbox, f"cat /env/package; ls {index} 2>&1 || true") == (
            f"bytesls: cannot access '{index}': No such file or directory\n"
        )
