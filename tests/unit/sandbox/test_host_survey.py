"""What of a machine a sandbox shows: toolchains wherever they are installed, an /etc of its own, and nothing broad."""

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.sandbox.bubblewrap.command import Mount, options
from app.sandbox.bubblewrap.provider import NEEDED, survey_host, synthetic_etc, usable_bwraps
from app.sandbox.bubblewrap.toolchains import find_toolchains, installed_nodes, installed_pythons

Tool = Callable[[str, str], Path]


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    """Installs a program that prints a line, below the test's directory."""

    def install(path: str, says: str) -> Path:
        program = tmp_path / path
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\necho '{says}'\n")
        program.chmod(0o755)
        return program

    return install


def shown(path: str, home: Path, *private: Path) -> tuple[set[Path], str]:
    found = find_toolchains({"PATH": path, "HOME": str(home)}, private)
    own = {Path(sys.base_prefix).resolve()}
    return {mount.source for mount in found.mounts} - own, "; ".join(found.left_out)


class TestToolchains:
    """Outside /tmp, which is the sandbox's own: a toolchain there could not be shown at its place."""

    @pytest.fixture
    def tmp_path(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="agent-fix-", dir="/var/tmp") as place:
            yield Path(place)

    def test_a_shim_stands_for_what_it_says(self, tmp_path: Path, tool: Tool) -> None:
        real = tool("versions/20/bin/node", "")
        shims = tool("shims/node", str(real)).parent
        assert shown(str(shims), tmp_path) == ({tmp_path / "versions" / "20"}, "")

    def test_rust_is_its_sysroot_and_never_cargos_home(self, tmp_path: Path, tool: Tool) -> None:
        sysroot = tool("rustup/toolchains/stable/bin/cargo", "").parents[1]
        tool("cargo/credentials.toml", "secret")
        path = tool("cargo/bin/rustc", str(sysroot)).parent
        assert shown(str(path), tmp_path) == ({sysroot}, "")

    def test_interpreters_of_pyenv_and_of_uv_are_found(self, tmp_path: Path, tool: Tool) -> None:
        old = tool(".pyenv/versions/3.7.17/bin/python3.7", "")
        new = tool(".local/share/uv/python/cpython-3.99.0-linux-x86_64-gnu/bin/python3.99", "")
        found = installed_pythons({"HOME": str(tmp_path)})
        assert (found["3.7"], found["3.99"]) == (old, new)
        assert next(iter(found)) == "3.7"
        elsewhere = {"PYENV_ROOT": str(tmp_path / ".pyenv"), "UV_PYTHON_INSTALL_DIR": "/nonexistent"}
        assert "3.99" not in installed_pythons(elsewhere)

    def test_nodes_of_version_managers_are_found_and_shown(self, tmp_path: Path, tool: Tool) -> None:
        old = tool(".nvm/versions/node/v9.11.2/bin/node", "")
        tool(".nvm/versions/node/v22.9.0/bin/node", "")
        new = tool(".volta/tools/image/node/22.10.0/bin/node", "")
        fnm = tool("fnm/node-versions/v24.0.1/installation/bin/node", "")
        environment = {"HOME": str(tmp_path), "FNM_DIR": str(tmp_path / "fnm"), "PATH": "/usr/bin"}
        assert list(installed_nodes(environment).items()) == [("9", old), ("22", new), ("24", fnm)]
        toolchains = find_toolchains(environment, ())
        assert {program.parent.parent for program in (old, new, fnm)} <= {mount.source for mount in toolchains.mounts}
        assert not any("node" in path for path in toolchains.path)

    def test_a_home_is_never_shown_whole(self, tmp_path: Path, tool: Tool) -> None:
        home = tmp_path / "home"
        node = tool("home/bin/node", str(home / "bin" / "node"))
        directories, left_out = shown(str(node.parent), home)
        assert directories == set()
        assert "Node" in left_out
        node = tool("home/.local/bin/node", str(home / ".local" / "bin" / "node"))
        assert shown(str(node.parent), home)[0] == set()

    def test_our_own_state_is_never_shown(self, tmp_path: Path, tool: Tool) -> None:
        node = tool("opt/bin/node", str(tmp_path / "opt" / "bin" / "node"))
        assert shown(str(node.parent), tmp_path / "home", tmp_path / "opt" / "state")[0] == set()
        assert shown(str(node.parent), tmp_path / "home", tmp_path / "state")[0] == {tmp_path / "opt"}

    @pytest.mark.parametrize("says", ["", "no such file", "/nonexistent/bin/node"])
    def test_a_tool_that_talks_nonsense_is_left_out(self, tmp_path: Path, tool: Tool, says: str) -> None:
        node = tool("opt/bin/node", says)
        assert shown(str(node.parent), tmp_path / "home")[0] == set()

    def test_a_tool_that_fails_is_left_out(self, tmp_path: Path, tool: Tool) -> None:
        node = tool("opt/bin/node", "")
        node.write_text("#!/bin/sh\nexit 3\n")
        assert shown(str(node.parent), tmp_path / "home")[0] == set()

    def test_tools_below_usr_need_nothing(self, tmp_path: Path) -> None:
        assert shown("/usr/bin:/bin", tmp_path / "home")[0] == set()


class TestEtc:
    def test_no_account_or_key_of_the_host(self, tmp_path: Path) -> None:
        host = tmp_path / "etc"
        (host / "ssl" / "private").mkdir(parents=True)
        (host / "ssl" / "certs").mkdir()
        (host / "ssl" / "openssl.cnf").write_text("conf")
        (host / "ssl" / "private" / "key.pem").write_text("secret")
        (host / "passwd").write_text("alice:x:1001:1001::/home/alice:/bin/sh\n")
        (host / "shadow").write_text("secret")
        (host / "resolv.conf").write_text("nameserver 192.0.2.1\n")
        mounts = synthetic_etc(tmp_path / "caches", 1000, host)
        etc = mounts[0].source
        assert [mount.target for mount in mounts] == ["/etc", "/etc/ssl/certs"]
        content = {
            str(path.relative_to(etc)): path.read_text()
            for path in etc.rglob("*")
            if path.is_file() and not path.is_symlink()
        }
        assert "alice" not in content["passwd"]
        assert "agent:x:1000:1000" in content["passwd"]
        assert content["resolv.conf"] == ""
        assert content["ssl/openssl.cnf"] == "conf"
        assert not [name for name, text in content.items() if "secret" in text or "shadow" in name]
        assert all(path.stat().st_mode & 0o004 for path in etc.rglob("*") if not path.is_symlink())

    def test_a_synthetic_etc_is_made_once_and_again_when_the_host_changes(self, tmp_path: Path) -> None:
        host = tmp_path / "etc"
        host.mkdir()
        first = synthetic_etc(tmp_path / "caches", 1000, host)
        assert synthetic_etc(tmp_path / "caches", 1000, host) == first
        (host / "services").write_text("http 80/tcp\n")
        assert synthetic_etc(tmp_path / "caches", 1000, host) != first
        assert len(list((tmp_path / "caches").iterdir())) == 2


class TestBinary:
    HELP = " ".join(NEEDED)

    def test_a_suitable_system_binary_comes_first(self, tool: Tool) -> None:
        own = tool("bin/bwrap", self.HELP)
        assert usable_bwraps(str(own.parent))[0] == own

    @pytest.mark.parametrize("says", ["", "--args --seccomp", HELP.replace("--disable-userns", "")])
    def test_an_old_one_is_passed_over(self, tool: Tool, says: str) -> None:
        own = tool("bin/bwrap", says)
        assert usable_bwraps(str(own.parent))[0] != own

    def test_a_setuid_one_is_passed_over(self, tool: Tool) -> None:
        own = tool("bin/bwrap", self.HELP)
        own.chmod(0o4755)
        assert usable_bwraps(str(own.parent))[0] != own

    def test_the_bundled_one_works(self) -> None:
        assert usable_bwraps("/nonexistent")[0].name == "bwrap"


class TestProfile:
    def test_directories_above_a_mount_are_open_to_all(self, tmp_path: Path) -> None:
        machine = survey_host(tmp_path / "caches", {}, ())
        words = options(machine, [Mount(tmp_path, "/a/b/c"), Mount(tmp_path, "/a/b/c/d/e")], {})
        made = [words[at + 3] for at in range(len(words) - 3) if words[at : at + 3] == ["--perms", "0755", "--dir"]]
        assert [path for path in made if path.startswith("/a")] == ["/a", "/a/b"]

    def test_variables_are_only_those_given(self, tmp_path: Path) -> None:
        machine = survey_host(tmp_path / "caches", {"SECRET": "x"}, ())
        words = options(machine, [], {"ONE": "1"})
        assert "--clearenv" in words
        assert [words[at + 1] for at, word in enumerate(words) if word == "--setenv"] == ["ONE"]
        assert "SECRET" not in machine.environment()
