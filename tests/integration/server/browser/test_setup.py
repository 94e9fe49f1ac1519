"""Set-up in a real browser: from an empty machine, through GitHub's pages, to the App's key in `app.env`."""

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
from playwright.sync_api import Browser, BrowserContext, Page, expect

from app.config.settings import read_app_file, settings_from
from app.core.errors import ExitCode
from tests.integration.server.browser.dashboard import OtherSite
from tests.support.github.running import RunningGitHub, running_github
from tests.support.loopback import free_port
from tests.support.server_process import running_server

TITLE = "Totals are a cent too low"
NAME = "agent-fix-ada"
ADDRESS = "https://agent-fix.example.org"
KEPT = (
    *("APP_ID", "PRIVATE_KEY", "WEBHOOK_SECRET", "CLIENT_ID", "CLIENT_SECRET"),
    *("PUBLIC_URL", "GITHUB_URL", "GITHUB_API_URL"),
)


@pytest.fixture
def github(tmp_path: Path) -> Iterator[RunningGitHub]:
    with running_github(tmp_path, {"money.py": "half = 0.5\n"}, TITLE, "Totals like 0.125 …") as running:
        yield running


def site(github: RunningGitHub) -> str:
    """The same server by a name that is another site than 127.0.0.1, as github.com is."""
    return github.address.replace("127.0.0.1", "localhost")


@dataclass
class SetUp:
    """`agent-fix serve --setup` on a machine that has nothing yet; `invitation` is the address that it printed."""

    process: subprocess.Popen[str]
    invitation: str
    state: Path

    @property
    def address(self) -> str:
        return self.invitation.partition("/setup")[0]

    def kept(self) -> dict[str, str]:
        """The values of `app.env`, after the program has ended by itself."""
        rest, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == ExitCode.OK
        assert "/installations/new" in rest
        assert (self.state / "app.env").stat().st_mode & 0o777 == 0o600
        return read_app_file(self.state, [f"AGENT_FIX_{name}" for name in KEPT])


@pytest.fixture
def setup(tmp_path: Path, github: RunningGitHub) -> Iterator[SetUp]:
    state = tmp_path / "state"
    command = [sys.executable, "-I", "-m", "app", "serve", "--setup", "--state", str(state)]
    ours = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "AGENT_FIX_PORT": str(free_port())}
    ours |= {"AGENT_FIX_GITHUB_API_URL": github.address, "AGENT_FIX_GITHUB_URL": site(github)}
    with subprocess.Popen(command, env=ours, stdout=subprocess.PIPE, text=True) as process:
        timer = threading.Timer(120, process.kill)
        timer.start()
        assert process.stdout is not None
        try:
            yield SetUp(process, next(line.strip() for line in process.stdout if "/setup?token=" in line), state)
        finally:
            timer.cancel()
            process.kill()


def heading(page: Page, text: str) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_text(text)


def fill_in(page: Page, address: str) -> None:
    page.get_by_label("Name of the App").fill(NAME)
    page.get_by_label("Public address of this server").fill(address)
    page.get_by_role("button", name="Continue").click()


def test_an_app_is_made_from_an_empty_machine(stranger: BrowserContext, setup: SetUp, github: RunningGitHub) -> None:
    page = stranger.new_page()
    page.goto(setup.invitation)
    heading(page, "Create your GitHub App")
    fill_in(page, ADDRESS)
    heading(page, "Create the App on GitHub")
    expect(page.get_by_text("contents, issues, pull requests, checks")).to_be_visible()
    page.get_by_role("link", name="Back").click()
    expect(page.get_by_label("Name of the App")).to_have_value(NAME)
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("button", name="Create on GitHub").click()
    heading(page, "Create GitHub App")
    page.get_by_role("button", name="Create GitHub App for ada").click()
    heading(page, "Your App is ready")
    page.get_by_role("link", name="Install it").click()
    heading(page, f"Install {NAME}")
    (manifest,) = github.fake_github.github.registrations.manifests
    assert manifest["hook_attributes"] == {"url": f"{ADDRESS}/webhook", "active": True}
    assert github.fake_github.github.registrations.origins == [
        setup.address
    ]  # as a page without any policy of ours would send it
    kept = setup.kept()
    assert kept["AGENT_FIX_PUBLIC_URL"] == ADDRESS
    settings = settings_from({**kept, "AGENT_FIX_MODEL": "openai/x"}, setup.state)
    settings.check("receiver", "worker", "publisher")
    now = datetime.now(UTC)
    claims = {"iss": str(settings.app_id), "iat": now - timedelta(seconds=30), "exp": now + timedelta(minutes=5)}
    signed = jwt.encode(claims, settings.private_key, "RS256")
    assert httpx.get(f"{github.address}/app", headers={"authorization": f"Bearer {signed}"}).status_code == 200


def test_an_app_without_webhooks(
    browser: Browser, setup: SetUp, github: RunningGitHub, other_site: OtherSite, tmp_path: Path
) -> None:
    """With a person who signs in to its dashboard, and detours: another program, a wrong address, nobody signed in."""
    registrations, fake_github = github.fake_github.github.registrations, github.fake_github
    context = browser.new_context()
    page = context.new_page()
    page.goto(setup.invitation)
    page.goto(other_site("127.0.0.1", to=f"{setup.address}/setup", referrer="unsafe-url", name=NAME, address=ADDRESS))
    with page.expect_response(f"{setup.address}/setup") as answer:
        page.get_by_role("button").click()
    heading(page, "This link does not work")
    sent = answer.value.request.all_headers()
    assert "agent_fix_setup" in sent["cookie"]  # cookies know no ports: `Sec-Fetch-Site` is what turned it away
    assert sent["sec-fetch-site"] == "same-site"
    page.goto(f"{setup.address}/setup")
    fill_in(page, setup.address)
    expect(page.get_by_role("alert")).to_contain_text("GitHub cannot reach")
    fill_in(page, "")
    expect(page.get_by_text("none; agent-fix checks GitHub")).to_be_visible()
    registrations.signed_in = False
    page.get_by_role("button", name="Create on GitHub").click()
    heading(page, "Sign in to GitHub")
    registrations.signed_in = True
    page.go_back()
    page.get_by_role("button", name="Create on GitHub").click()
    page.get_by_role("button", name="Create GitHub App for ada").click()
    heading(page, "Your App is ready")
    (manifest,) = registrations.manifests
    assert not {"hook_attributes", "default_events"} & manifest.keys()
    assert manifest["callback_urls"] == [f"{setup.address}/sign-in/done"]
    kept = setup.kept()
    assert "AGENT_FIX_PUBLIC_URL" not in kept
    fake_github.world.webhooks = False
    fake_github.world.label(fake_github.issue, fake_github.owner, "agent-fix")
    with running_server(tmp_path, {**kept, "AGENT_FIX_MODEL": "openai/none"}) as server:
        server.start("receiver")
        server.start("publisher")
        # Only here it has another port than the one where it was set up.
        fake_github.world.sign_in.callbacks = {f"{server.url}/sign-in/done"}
        fake_github.world.sign_in.person = fake_github.owner
        page.goto(server.url, timeout=90_000)
        page.get_by_role("link", name="Sign in with GitHub").click()
        heading(page, "Authorize agent-fix")
        page.get_by_role("button", name="Authorize").click()
        heading(page, "Jobs")
        server.wait(lambda: page.goto(server.url) and page.get_by_role("link", name=TITLE).count(), "the job")
        page.get_by_role("button", name="Sign out").click()
        heading(page, "Sign in")
        page.goto(server.url)
        heading(page, "Sign in")
        context.close()
