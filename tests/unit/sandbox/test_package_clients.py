"""Asking package clients for their hosts: client programs made by the test answer, and no network is used."""

import asyncio
import json
import os
import stat
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from app.sandbox.setup.package_clients import (
    PackageClients,
    ask,
    ask_cargo,
    ask_clients,
    ask_maven,
    ask_node,
    ask_pip,
    asked_once,
    certificates,
    locate,
    merge,
    read_cargo,
    read_go,
    read_npm,
    read_pip,
    replacement,
)

INDEX = {"index": "https://packages.example.org/", "files": "files.example.org"}


class Machine:
    """A PATH with client programs of our own."""

    def __init__(self, directory: Path) -> None:
        self.bin = directory / "bin"
        self.bin.mkdir()
        self.home = directory / "home"
        self.home.mkdir()

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.home)}

    def client(self, name: str, script: str) -> Path:
        program = self.bin / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return program

    def answering(self, name: str, answer: object) -> Path:
        """A client that prints JSON and counts how often it was asked."""
        (self.home / f"{name}.json").write_text(json.dumps(answer))
        return self.client(name, f"echo asked >> {self.home}/{name}.log; cat {self.home}/{name}.json")

    def asked(self, name: str) -> int:
        log = self.home / f"{name}.log"
        return len(log.read_text().splitlines()) if log.exists() else 0


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def pip_says(settings: Mapping[str, str]) -> PackageClients:
    return read_pip({**INDEX, "settings": settings})


def test_pip_without_settings_uses_its_own_index() -> None:
    assert pip_says({}) == PackageClients(hosts=("https://packages.example.org", "https://files.example.org"))


def test_a_configured_index_stands_instead_of_pips_own() -> None:
    said = pip_says({"global.index-url": "https://mirror.corp.test:8443/pypi/simple"})
    assert said.hosts == ("https://mirror.corp.test:8443",)
    index = "https://mirror.corp.test:8443/pypi/simple"
    assert dict(said.environment) == {"PIP_INDEX_URL": index, "UV_DEFAULT_INDEX": index}


def test_the_environment_wins_over_a_commands_section_and_that_over_the_global_one() -> None:
    settings = {"global.index-url": "https://a.test/", "install.index-url": "https://b.test/"}
    assert pip_says(settings).hosts == ("https://b.test",)
    assert pip_says({**settings, ":env:.index-url": "https://c.test/"}).hosts == ("https://c.test",)


@pytest.mark.parametrize("name", ["index-url", "extra-index-url", "find-links"])
def test_credentials_never_come_along(name: str) -> None:
    said = pip_says({f"global.{name}": "https://me:hunter2@mirror.corp.test/simple"})
    assert "hunter2" not in repr(said)
    (problem,) = said.problems
    assert "https://mirror.corp.test" in problem.sentence
    assert "https://mirror.corp.test" not in said.hosts
    assert (problem.client, problem.fatal) == ("pip", name == "index-url")


def test_a_further_index_with_credentials_leaves_the_others_in_use() -> None:
    said = pip_says({"global.extra-index-url": "https://t0ken@a.test/simple https://b.test/simple"})
    assert dict(said.environment)["PIP_EXTRA_INDEX_URL"] == "https://b.test/simple"
    assert said.hosts == ("https://b.test", "https://packages.example.org", "https://files.example.org")


def test_a_local_index_is_shown_with_the_files_its_pages_link_to(tmp_path: Path) -> None:
    pages, files, wheels = tmp_path / "web" / "simple", tmp_path / "web" / "files", tmp_path / "wheels"
    for directory in (pages / "a", files, wheels):
        directory.mkdir(parents=True)
    (pages / "a" / "index.html").write_text(
        '<a href="../../files/a%2Db-1.whl#sha256=0">a</a><a href="https://x.test/y">'
    )
    said = pip_says({"global.extra-index-url": f"file://{pages}", "global.find-links": f"{wheels} /no/such"})
    assert said.directories == (pages, files, wheels)
    assert dict(said.environment)["PIP_FIND_LINKS"] == f"{wheels} /no/such"


def test_a_local_index_that_holds_its_files_is_shown_alone(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "index.html").write_text('<a href="a-1.whl">a</a>')
    assert pip_says({"global.index-url": f"file://{tmp_path}"}).directories == (tmp_path,)


async def test_the_real_pip_answers() -> None:
    said = await ask_pip({"PATH": "/usr/bin:/bin", "PIP_CONFIG_FILE": os.devnull}, [sys.executable])
    assert len(said.hosts) >= 1
    assert all(host.startswith("https://") for host in said.hosts)


async def test_real_pips_settings_are_read(machine: Machine) -> None:
    settings = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "https://mirror.corp.test/simple"}
    said = await ask_pip({**machine.environment, **settings}, [sys.executable])
    assert said.hosts == ("https://mirror.corp.test",)


async def test_settings_in_the_shape_of_newer_pips_are_read(machine: Machine, tmp_path: Path) -> None:
    package = tmp_path / "lib" / "pip" / "_internal"
    (package / "models").mkdir(parents=True)
    for directory in (package.parent, package, package / "models"):
        (directory / "__init__.py").touch()
    (package / "models" / "index.py").write_text(
        "class PyPI:\n    url = 'https://packages.example.org/'\n    file_storage_domain = 'files.example.org'\n"
    )
    nested = {
        "/etc/pip.conf": {"global.index-url": "https://old.test/"},
        ":env:": {":env:.index-url": "https://new.test/"},
    }
    (package / "configuration.py").write_text(
        "class Configuration:\n    def __init__(self, isolated): pass\n    def load(self): pass\n"
        f"    def items(self): return {nested!r}.items()\n"
    )
    said = await ask_pip({**machine.environment, "PYTHONPATH": str(tmp_path / "lib")}, [sys.executable])
    assert said.hosts == ("https://new.test",)


async def test_an_interpreter_without_pip_is_passed_over(machine: Machine) -> None:
    without = machine.client("python-without", "exit 1")
    machine.answering("python3", {**INDEX, "settings": {}})
    assert (await ask_pip(machine.environment, [without, "python3"])).hosts[0] == "https://packages.example.org"
    assert await ask_pip(machine.environment, [without]) == PackageClients()


def test_npms_registries_are_read_with_those_of_scopes() -> None:
    settings = {
        "registry": "https://npm.example.org/",
        "@corp:registry": "https://npm.corp.test:4873/a",
        "@secret:registry": "https://u:hunter2@npm.corp.test/",
        "strict-ssl": False,
        "nodedir": None,
        "cafile": "/opt/ca.pem",
        "//npm.corp.test/:_authToken": "(protected)",
    }
    said = read_npm(settings)
    assert said.hosts == ("https://npm.example.org", "https://npm.corp.test:4873")
    assert dict(said.environment) == {
        "npm_config_registry": "https://npm.example.org/",
        "npm_config_@corp:registry": "https://npm.corp.test:4873/a",
        "npm_config_strict_ssl": "false",
        "npm_config_cafile": "/opt/ca.pem",
        "YARN_NPM_REGISTRY_SERVER": "https://npm.example.org",
    }
    assert said.directories == (Path("/opt/ca.pem"),)
    assert "hunter2" not in repr(said)
    assert [problem.fatal for problem in said.problems] == [False]


async def test_yarn_and_pnpm_add_their_own_registries(machine: Machine) -> None:
    machine.answering("npm", {"registry": "https://npm.example.org/"})
    machine.client("yarn", 'test "$3" = registry && echo https://yarn.example.org || echo undefined')
    machine.client("pnpm", "echo https://npm.example.org/")
    assert (await ask_node(machine.environment)).hosts == ("https://npm.example.org", "https://yarn.example.org")


def test_gos_proxies_and_checksum_database_are_read() -> None:
    said = read_go({"GOPROXY": "https://a.test|https://b.test/x,direct", "GOSUMDB": "sum.test", "GOPRIVATE": ""})
    assert said.hosts == ("https://a.test", "https://b.test", "https://sum.test")
    assert dict(said.environment) == {"GOPROXY": "https://a.test|https://b.test/x,direct", "GOSUMDB": "sum.test"}
    assert read_go({"GOPROXY": "off", "GOSUMDB": "off"}).hosts == ()
    assert read_go({"GOPROXY": "file:///srv/go", "GOSUMDB": "n+k https://c.test/db"}).hosts == ("https://c.test",)
    assert read_go({"GOPROXY": "file:///srv/go", "GOSUMDB": "off"}).directories == (Path("/srv/go"),)
    assert "hunter2" not in repr(read_go({"GOPROXY": "https://u:hunter2@a.test", "GOSUMDB": "off"}))


def test_cargos_source_replacement_is_followed() -> None:
    configuration = {
        "source": {
            "crates-io": {"replace-with": "first"},
            "first": {"replace-with": "second"},
            "second": {"registry": "sparse+https://crates.corp.test/index/"},
        },
        "registries": {"my-own": {"index": "sparse+https://own.corp.test/"}},
    }
    said = read_cargo(configuration)
    assert 'registry = "sparse+https://crates.corp.test/index/"' in said.cargo_config
    assert dict(said.environment) == {"CARGO_REGISTRIES_MY_OWN_INDEX": "sparse+https://own.corp.test/"}
    assert replacement({"source": {"crates-io": {"replace-with": "crates-io"}}}) is None
    vendored = {"source": {"crates-io": {"replace-with": "v"}, "v": {"directory": "/srv/vendor"}}}
    assert read_cargo(vendored).directories == (Path("/srv/vendor"),)
    secret = {"source": {"crates-io": {"replace-with": "v"}, "v": {"registry": "sparse+https://u:hunter2@c.test/"}}}
    assert "hunter2" not in repr(read_cargo(secret))
    assert [problem.fatal for problem in read_cargo(secret).problems] == [True]


async def test_without_settings_the_index_of_cargo_is_found_by_a_refused_fetch(machine: Machine) -> None:
    """A cargo that goes where cargo goes, through the proxy it is given; the index itself does not exist."""
    machine.client("cargo", f'[ "$1" = --version ] || exec {sys.executable} -I -c "{KNOCK}" "$CARGO_HTTP_PROXY"')
    assert (await ask_cargo(machine.environment)).hosts == ("https://index.invalid",)


KNOCK = (
    "import socket, sys, urllib.parse; p = urllib.parse.urlsplit(sys.argv[1]);"
    "s = socket.create_connection((p.hostname, p.port));"
    "s.sendall(b'CONNECT index.invalid:443 HTTP/1.1' + bytes([13, 10, 13, 10])); s.recv(100)"
)


async def test_a_cargo_indexs_download_host_is_read_from_its_config(machine: Machine) -> None:
    body = json.dumps({"dl": "https://crates.example.org/api/{crate}"}).encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"GET /index/config.json ")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    machine.client("cargo", "exit 0")
    cargo = machine.home / ".cargo"
    cargo.mkdir()
    (cargo / "config.toml").write_text(
        f'[source.crates-io]\nreplace-with = "m"\n[source.m]\nregistry = "sparse+{address}/index/"\n'
    )
    async with server:
        assert (await ask_cargo(machine.environment)).hosts == (address, "https://crates.example.org")


def test_certificates_are_shown_where_they_exist(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.touch()
    said = certificates({"SSL_CERT_FILE": str(bundle), "REQUESTS_CA_BUNDLE": "/no/such", "CURL_CA_BUNDLE": "relative"})
    assert said == PackageClients(environment=(("SSL_CERT_FILE", str(bundle)),), directories=(bundle,))


async def test_all_clients_are_asked_once_and_only_when_needed(machine: Machine) -> None:
    machine.answering("python3", {**INDEX, "settings": {":env:.cert": "/etc/ssl/certs/x.pem"}})
    machine.answering("npm", {"registry": "https://npm.example.org/"})
    machine.answering("go", {"GOPROXY": "https://go.example.org,direct", "GOSUMDB": "off"})
    machine.client("mvn", "exit 3")
    clients = asked_once(machine.environment, machine.bin / "python3")
    assert machine.asked("npm") == 0
    first, second = await asyncio.gather(clients(), clients())
    assert first is second
    assert [machine.asked(name) for name in ("python3", "npm", "go")] == [1, 1, 1]
    assert set(first.hosts) == {
        *("https://packages.example.org", "https://files.example.org"),
        *("https://npm.example.org", "https://go.example.org"),
    }
    assert first.directories == (), "what every sandbox shows is not shown again"


async def test_a_machine_without_clients_has_no_hosts(machine: Machine) -> None:
    nothing = {"PATH": str(machine.bin), "HOME": str(machine.home)}
    assert await ask_clients(nothing, machine.bin / "python3") == PackageClients()


async def test_a_client_that_hangs_is_given_up_and_ended(machine: Machine) -> None:
    slow = machine.client("slow", f"echo $$ > {machine.home}/pid; exec sleep 600")
    assert await ask([str(slow)], machine.environment, seconds=0.3) is None
    pid = int(await asyncio.to_thread((machine.home / "pid").read_text))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_clients_settings_do_not_depend_on_where_the_caller_stands(machine: Machine) -> None:
    where = machine.client("where", "pwd")
    assert await ask([str(where)], machine.environment) == "/\n"


@pytest.mark.parametrize("url", ["", "ssh://git@x.test/a", "https://", "http://[::1", "https://x.test:port/"])
def test_addresses_that_lead_nowhere_have_no_location(url: str) -> None:
    found = locate(url)
    assert (found.origin, found.path) == ("", None)


def test_the_first_to_set_a_variable_wins() -> None:
    parts = [PackageClients(environment=(("A", "1"),)), PackageClients(environment=(("A", "2"), ("B", "3")))]
    assert merge(parts).environment == (("A", "1"), ("B", "3"))


MIRRORS = "<settings xmlns='urn:settings'><mirrors><mirror><id>a</id>{}</mirror></mirrors></settings>"


@pytest.mark.parametrize(
    ("mirror", "hosts"),
    [
        ("<mirrorOf>*</mirrorOf><url>https://mirror.corp.test/maven</url>", ("https://mirror.corp.test",)),
        ("<mirrorOf>special</mirrorOf><url>https://mirror.corp.test/maven</url>", ("https://own.test",)),
        ("<mirrorOf>central</mirrorOf><url>https://me:hunter2@mirror.corp.test/m</url>", ()),
    ],
)
async def test_mavens_mirror_stands_instead_of_the_repository_it_names(
    machine: Machine, tmp_path: Path, mirror: str, hosts: tuple[str, ...]
) -> None:
    home = tmp_path / "maven"
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    (home / "bin" / "mvn").write_text("")
    (home / "bin" / "mvn").chmod(0o755)
    (machine.bin / "mvn").symlink_to(home / "bin" / "mvn")
    model = (
        "<project><repositories><repository><url>https://own.test/maven2</url></repository></repositories></project>"
    )
    with zipfile.ZipFile(home / "lib" / "maven-model-builder-3.9.jar", "w") as archive:
        archive.writestr("org/apache/maven/model/pom-4.0.0.xml", model)
    (machine.home / ".m2").mkdir()
    (machine.home / ".m2" / "settings.xml").write_text(MIRRORS.format(mirror))
    said = await ask_maven(machine.environment)
    assert said.hosts == hosts
    assert "hunter2" not in repr(said)
    assert [problem.client for problem in said.problems] == ([] if hosts else ["maven"])
