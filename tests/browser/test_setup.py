"""Set-up in a real browser: from an empty machine to the App's key in `app.env`."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import jwt
import pytest
from playwright.sync_api import BrowserContext, Page, expect

from app.errors import ExitCode
from app.settings import settings_from
from app.settings.appfile import read_app_file
from tests.fakes.github.ground import fake_github
from tests.fakes.github.registration import Registrations
from tests.fakes.github.running import RunningWorld
from tests.loopback import free_port, listening, serving

NAME = "agent-fix-ada"
NAMES = ("APP_ID", "PRIVATE_KEY", "WEBHOOK_SECRET", "PUBLIC_URL", "GITHUB_URL", "GITHUB_API_URL")


@dataclass
class GitHub:
    """`site` is the same server by a name that is another site than 127.0.0.1, as github.com is."""

    registrations: Registrations
    api: str

    @property
    def site(self) -> str:
        return self.api.replace("127.0.0.1", "localhost")


@pytest.fixture
def github(tmp_path: Path) -> Iterator[GitHub]:
    fake = fake_github(RunningWorld(tmp_path))
    with listening() as door, serving(fake, door) as address:
        yield GitHub(fake.registrations, address)


@dataclass
class SetUp:
    """`agent-fix serve --setup`, with the address that it printed."""

    process: subprocess.Popen[str]
    address: str
    state: Path

    def kept(self) -> dict[str, str]:
        """The values of `app.env`, after the program has ended by itself."""
        assert self.process.wait(60) == ExitCode.OK
        return read_app_file(self.state, [f"AGENT_FIX_{name}" for name in NAMES])


@pytest.fixture
def setup(tmp_path: Path, github: GitHub) -> Iterator[SetUp]:
    state = tmp_path / "state"
    command = [sys.executable, "-I", "-m", "app.cli", "serve", "--setup", "--state", str(state)]
    ours = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "AGENT_FIX_PORT": str(free_port())}
    ours |= {"AGENT_FIX_GITHUB_API_URL": github.api, "AGENT_FIX_GITHUB_URL": github.site}
    process = subprocess.Popen(command, env=ours, stdout=subprocess.PIPE, text=True)
    timer = threading.Timer(120, process.kill)
    timer.start()
    assert process.stdout is not None
    try:
        address = next(line.strip() for line in process.stdout if "/setup?token=" in line)
        yield SetUp(process, address, state)
    finally:
        timer.cancel()
        process.kill()
        process.wait()
        process.stdout.close()


def heading(page: Page, text: str) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_text(text)


def test_an_app_is_made_from_an_empty_machine(context: BrowserContext, setup: SetUp, github: GitHub) -> None:
    page = context.new_page()
    page.goto(setup.address)
    heading(page, "Make your GitHub App")
    page.get_by_label("Name of the App").fill(NAME)
    page.get_by_label("Address of this server").fill("https://agent-fix.test.org")
    page.get_by_role("button", name="Go on").click()
    heading(page, "One click at GitHub")
    page.get_by_role("button", name="Make it at GitHub").click()
    heading(page, "Create GitHub App")
    page.get_by_role("button", name="Create GitHub App for ada").click()
    heading(page, "The App is made")
    page.get_by_role("link", name="Install it").click()
    heading(page, f"Install {NAME}")
    (manifest,) = github.registrations.manifests
    assert manifest["hook_attributes"] == {"url": "https://agent-fix.test.org/webhook", "active": True}
    kept = setup.kept()
    assert kept["AGENT_FIX_PUBLIC_URL"] == "https://agent-fix.test.org"
    settings = settings_from({**kept, "AGENT_FIX_MODEL": "openai/x"}, setup.state)
    settings.check("receiver", "worker", "publisher")
    now = datetime.now(UTC)
    claims = {"iss": str(settings.app_id), "iat": now - timedelta(seconds=30), "exp": now + timedelta(minutes=5)}
    signed = jwt.encode(claims, settings.private_key, "RS256")
    assert httpx.get(f"{github.api}/app", headers={"authorization": f"Bearer {signed}"}).status_code == 200
