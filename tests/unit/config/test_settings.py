"""The environment: what it may say, what is told of what is wrong, and which role gets what of it."""

import os
from pathlib import Path

import pytest

from app.config.roles import ALLOWED_VARIABLES, ROLES, Role
from app.config.settings import (
    Settings,
    SettingsError,
    read_app_file,
    read_server_settings,
    read_settings,
    settings_from,
    webhook_secrets,
    write_app_file,
)
from app.core.errors import AgentFixError
from app.core.redaction import Redactor
from tests.support.github.authentication import app_key

SECRET = "a webhook secret of length"
TOKEN = "a-token-for-the-web-1234"
PLACE = Path("/nowhere")


def private_key() -> str:
    """As GitHub gives it out."""
    return app_key()[0].replace("PRIVATE KEY", "RSA PRIVATE KEY")


def server(**changes: str) -> dict[str, str]:
    """A server's environment; names without their prefix, unless they have one of their own."""
    ours = {
        "APP_ID": "77",
        "PRIVATE_KEY": private_key(),
        "WEBHOOK_SECRET": SECRET,
        "WEB_TOKEN": TOKEN,
        "MODEL": "openai/x",
        "DATABASE_URL": "postgresql://user:hunter3hunter3@host/name",
    }
    named = {f"AGENT_FIX_{name}": value for name, value in {**ours, **changes}.items()}
    machine = {"PATH": "/bin", "HOME": "/home/u", "LANG": "C.UTF-8", "TZ": "UTC", "HTTPS_PROXY": "http://proxy:3128"}
    model = {"OPENAI_API_KEY": "sk-model-key-0123456789", "E2B_API_KEY": "e2b_key_0123456789", "AWS_REGION": "eu"}
    theirs = {"GITHUB_TOKEN": "ghp_somebodys", "GH_TOKEN": "x", "SSH_AUTH_SOCK": "/s", "PYTHONPATH": "/evil"}
    return {**machine, "SSL_CERT_FILE": "/ca.pem", "no_proxy": "localhost", **model, **theirs, **named}


def problems_of(*roles: Role, **changes: str) -> str:
    with pytest.raises(SettingsError) as error:
        settings_from(server(**changes), PLACE).check(*roles)
    return error.value.hint


@pytest.mark.parametrize(
    ("value", "read"),
    [("fts", "fts"), ("off", "off"), ("embedding:m", "fts"), ("chroma:kept", f"chroma:{Path.cwd() / 'kept'}")],
)
def test_lessons_setting_of_an_embedding_model_is_read_as_fts(
    value: str, read: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_from({"HOME": "/home/u", "AGENT_FIX_LESSONS": value})
    assert (settings.lessons, settings.problems) == (read, ())
    assert ("no longer used" in caplog.text) == value.startswith("embedding")


@pytest.mark.parametrize("value", ["yes", "embedding:", "chroma:", "chroma", "FTS"])
def test_unknown_lessons_setting_is_reported(value: str) -> None:
    (problem,) = settings_from({"HOME": "/home/u", "AGENT_FIX_LESSONS": value}).problems
    assert problem.hint == "Set it to fts, chroma:PATH or off."


def test_complete_environment_is_read() -> None:
    found = settings_from(server(JOBS="4", BUDGET="2.50", ALLOWED_APPS="1, 22", LOG="json", SANDBOX="e2b"), PLACE)
    assert found.check(*ROLES) == ()
    assert (found.app_id, found.private_key, found.webhook_secrets) == (77, private_key(), (SECRET,))
    assert (found.jobs, found.jobs_per_repository, found.budget) == (4, 1, 2_500_000)
    assert (found.log, found.host, found.port) == ("json", "127.0.0.1", 8080)
    assert found.allowed_apps == {1, 22}
    assert found.proxy == "http://proxy:3128"


def test_all_missing_settings_are_reported_at_once() -> None:
    with pytest.raises(SettingsError) as error:
        settings_from({"HOME": "/home/u"}).check(*ROLES)
    assert error.value.message == "4 settings are missing or invalid."
    lines = error.value.hint.splitlines()
    names = ["WEBHOOK_SECRET", "APP_ID", "PRIVATE_KEY", "MODEL"]
    assert [line.split()[1] for line in lines] == [f"AGENT_FIX_{name}" for name in names]
    assert all("is not set. Set it to" in line for line in lines)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("PORT", value) for value in ("http", "-1", "65536", "8080.0", "\u0668", "000000080999999", "9" * 5_000)],
        *[("SANDBOX", value) for value in ("bwrap", "Docker")],
        *[("PRICES", value) for value in ("~nosuchuser/prices.yml", "x" * 5_000)],
        ("RUNNERS", "~nosuchuser/runners"),
        ("LESSONS", "chroma:~nosuchuser/lessons"),
        ("DEFAULTS", "~nosuchuser/defaults.yml"),
        ("PRIVATE_KEY", "~nosuchuser/app.pem"),
        ("JOBS", "0"),
        ("JOBS", "many"),
        ("JOBS_PER_REPOSITORY", "-2"),
        *[("BUDGET", value) for value in ("0", "-1", "nan", "1e309", "five")],
        *[("ALLOWED_APPS", value) for value in ("*", "dependabot[bot]", "1,*")],
        *[("WEB_TOKEN", value) for value in ("short", "with a blank in it, long")],
        *[
            ("PUBLIC_URL", value)
            for value in ("agent-fix.example.org", "javascript:alert(1)", "https://h/path", "https://", "http://[::1")
        ],
        *[("GITHUB_URL", value) for value in ("https://ghe:port", "https://ghe:65536")],
        ("GITHUB_API_URL", "ghe.example.org/api/v3"),
        ("GITHUB_URL", "https://user:pass@ghe.example.org"),
        ("LOG", "xml"),
        ("APP_ID", "my-app"),
    ],
)
def test_invalid_setting_is_refused_with_name_and_remedy(name: str, value: str) -> None:
    (told,) = problems_of(*ROLES, **{name: value}).splitlines()
    assert told.startswith(f"- AGENT_FIX_{name} ")
    assert any(word in told for word in ("Set it to", "List the numeric ids", "generates one", "Correct that"))


def test_without_a_role_every_wrong_value_is_refused_and_nothing_is_missing() -> None:
    assert settings_from({"HOME": "/home/u"}).check() == ()
    with pytest.raises(SettingsError) as caught:
        settings_from({"HOME": "/home/u", "AGENT_FIX_PORT": "http", "AGENT_FIX_DEFAULTS": "lokc: [model]"}).check()
    assert [problem.split()[0] for problem in caught.value.problems] == ["AGENT_FIX_DEFAULTS", "AGENT_FIX_PORT"]


def test_a_state_directory_of_an_unknown_user_is_refused() -> None:
    with pytest.raises(AgentFixError, match="~nosuchuser/state is not a usable path"):
        settings_from({}, Path("~nosuchuser/state"))


def test_a_wrong_value_matters_only_to_the_role_that_holds_it() -> None:
    wrong = settings_from(server(PORT="http", ALLOWED_APPS="*"), PLACE)
    wrong.check("worker")
    assert "PORT" in problems_of("receiver", PORT="http")
    assert "ALLOWED_APPS" in problems_of("publisher", ALLOWED_APPS="*")


@pytest.mark.parametrize("value", ["sixteen letters!", f" {SECRET} , {'b' * 16} "])
def test_webhook_secrets_are_one_or_two(value: str) -> None:
    assert webhook_secrets(value) == tuple(part.strip() for part in value.split(","))


@pytest.mark.parametrize("value", ["", " ", ",", "hunter2", f"{SECRET},", f"{SECRET},hunter2", ",".join("abc" * 16)])
def test_invalid_webhook_secrets_are_refused_without_showing_them(value: str) -> None:
    with pytest.raises(AgentFixError) as error:
        webhook_secrets(value)
    assert "hunter2" not in str(error.value) + error.value.hint
    if value.strip():
        assert "hunter2" not in problems_of("receiver", WEBHOOK_SECRET=value)


def test_private_key_may_be_text_one_line_text_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "app.pem"
    file.write_text(private_key().replace("\n", "\r\n"))
    file.chmod(0o600)
    for value in (private_key(), private_key().replace("\n", "\\n"), private_key().strip(), str(file)):
        found = settings_from(server(PRIVATE_KEY=value), PLACE)
        assert found.check("publisher") == ()
        assert found.private_key == private_key()


def test_runners_of_ones_own_are_a_directory(tmp_path: Path) -> None:
    found = settings_from(server(RUNNERS=str(tmp_path), SANDBOX="e2b"), PLACE)
    assert (found.check("worker"), found.runners) == ((), tmp_path)
    (tmp_path / "file.toml").touch()
    for wrong in ("file.toml", "none"):
        hint = problems_of("worker", RUNNERS=str(tmp_path / wrong))
        assert "AGENT_FIX_RUNNERS" in hint
        assert "no such directory" in hint


def test_key_file_readable_by_others_gives_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "app.pem"
    file.write_text(private_key())
    for mode, who in ((0o640, "its group"), (0o644, "everybody")):
        file.chmod(mode)
        (warning,) = settings_from(server(PRIVATE_KEY=str(file)), PLACE).check("publisher")
        assert who in warning
        assert "chmod 600" in warning


def test_invalid_private_key_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "binary.pem").write_bytes(b"\xff\xfe\0")
    (tmp_path / "public.pem").write_text("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")
    cut = private_key()[: len(private_key()) // 2]
    encrypted = private_key().replace("RSA PRIVATE", "ENCRYPTED PRIVATE")
    for value, said in (
        (str(tmp_path / "none.pem"), "cannot be read: No such file"),
        (str(tmp_path), "cannot be read: Is a directory"),
        (str(tmp_path / "binary.pem"), "no PEM text"),
        (str(tmp_path / "public.pem"), "other than a private key"),
        (cut, "other than a private key"),
        (encrypted, "an encrypted key"),
        ("x" * 5_000, "cannot be read: File name too long"),
    ):
        told = problems_of("publisher", PRIVATE_KEY=value)
        assert said in told
        assert private_key()[100:140] not in told


def test_enterprise_server_is_recognised_by_either_address() -> None:
    by_server = settings_from({**server(), "AGENT_FIX_GITHUB_URL": "https://ghe.example.org/"}, PLACE)
    by_api = settings_from({**server(), "AGENT_FIX_GITHUB_API_URL": "https://ghe.example.org/api/v3"}, PLACE)
    for found in (by_server, by_api):
        assert (found.github_url, found.github_api_url) == ("https://ghe.example.org", "https://ghe.example.org/api/v3")


def test_ghe_com_tenant_uses_its_api_subdomain() -> None:
    """GitHub's documentation: the API of GHE.com is at https://api.SUBDOMAIN.ghe.com, never below /api/v3."""
    for name, value in (("URL", "https://octo.ghe.com/"), ("API_URL", "https://api.octo.ghe.com")):
        found = settings_from({**server(), f"AGENT_FIX_GITHUB_{name}": value}, PLACE)
        assert (found.github_url, found.github_api_url) == ("https://octo.ghe.com", "https://api.octo.ghe.com")
    other = settings_from({**server(), "AGENT_FIX_GITHUB_URL": "https://ghe.com.example.org"}, PLACE)
    assert other.github_api_url == "https://ghe.com.example.org/api/v3"


def test_explicit_github_and_api_addresses_are_used_unchanged() -> None:
    both = settings_from(server(GITHUB_URL="http://127.0.0.1:1", GITHUB_API_URL="http://127.0.0.1:2"), PLACE)
    assert (both.github_url, both.github_api_url) == ("http://127.0.0.1:1", "http://127.0.0.1:2")


ORDINARY = {"PATH", "HOME", "LANG", "TZ", "HTTPS_PROXY", "no_proxy", "SSL_CERT_FILE"}


@pytest.mark.parametrize(
    ("role", "holds", "never"),
    [
        ("receiver", {"WEBHOOK_SECRET", "WEB_TOKEN"}, {"APP_ID", "PRIVATE_KEY", "MODEL"}),
        ("worker", {"MODEL"}, {"APP_ID", "PRIVATE_KEY", "WEBHOOK_SECRET", "WEB_TOKEN"}),
        ("publisher", {"APP_ID", "PRIVATE_KEY"}, {"WEBHOOK_SECRET", "WEB_TOKEN"}),
    ],
)
def test_each_role_gets_only_its_own_settings(role: Role, holds: set[str], never: set[str]) -> None:
    environment = settings_from(server(), PLACE).for_role(role)
    names = {name.removeprefix("AGENT_FIX_") for name in environment if name.startswith("AGENT_FIX_")}
    assert holds | {"DATABASE_URL", "STATE_DIR"} <= names
    assert not never & names
    assert environment.keys() >= ORDINARY
    assert not environment.keys() & {"GITHUB_TOKEN", "GH_TOKEN", "SSH_AUTH_SOCK", "PYTHONPATH"}
    model_keys = {"OPENAI_API_KEY", "E2B_API_KEY", "AWS_REGION"}
    assert environment.keys() & model_keys == (model_keys if role == "worker" else set())


def test_secrets_under_other_names_are_withheld_too() -> None:
    smuggled = {"MY_PEM": private_key().replace("\n", "\\n"), "HOOK": f"x{SECRET}x", "OPENAI_API_BASE": "http://m/v1"}
    environment = settings_from({**server(), **smuggled}, PLACE).for_role("worker")
    assert not environment.keys() & {"MY_PEM", "HOOK"}
    assert environment["OPENAI_API_BASE"] == "http://m/v1"


@pytest.mark.parametrize("role", ROLES)
def test_a_role_needs_nothing_that_it_does_not_get(role: Role) -> None:
    environment = settings_from(server(), PLACE).for_role(role)
    again = settings_from(environment)
    again.check(role)
    assert again.state == PLACE
    assert again.for_role(role) == environment


def test_tokens_in_addresses_of_notifications_and_in_headers_are_secrets() -> None:
    token, key = "AbC1dEf2GhI3jKl4MnO5", "zY9xW8vU7tS6rQ5pO4nM"
    given = {"NOTIFY": f"tgram://{token}/-100123 discord://1234/abcd"}
    headers = {"OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{key},x-scope=team"}
    assert key in settings_from({**server(), "OPENAI_CUSTOM_HEADERS": f"X-Key: {key}\nX-Team: a"}, PLACE).secrets
    redactor = Redactor(settings_from({**server(**given), **headers}, PLACE).secrets)
    assert redactor.found(f"before {token} after")
    assert redactor.found(f"before {key} after")
    assert not redactor.found("authorization team tgram 1234 abcd")


def test_every_secret_is_redacted_in_the_log(tmp_path: Path) -> None:
    found = settings_from(server(WEBHOOK_SECRET=f"{SECRET},{'Rotating-Secret-2'}"), PLACE)
    redactor = Redactor(found.secrets)
    body = private_key().splitlines()[5]
    for secret in (SECRET, "Rotating-Secret-2", TOKEN, "hunter3hunter3", "sk-model-key-0123456789", body):
        assert redactor.found(f"before {secret} after")
    in_query = {"AGENT_FIX_DATABASE_URL": "postgresql://host/name?user=u&password=hunter%2F4hunter4&sslmode=require"}
    redactor = Redactor(settings_from({**server(), **in_query, "PGPASSWORD": "hunter5hunter5"}, PLACE).secrets)
    for secret in ("hunter/4hunter4", "hunter%2F4hunter4", "hunter5hunter5"):
        assert redactor.found(f"before {secret} after")
    assert not redactor.found("postgresql://host/name, sslmode=require")
    assert not redactor.found("openai/x at postgresql://host/name, 77, /nowhere")
    assert "hunter" not in repr(found)
    assert private_key()[100:140] not in repr(found)
    assert SECRET not in repr(found)
    file = tmp_path / "app.pem"
    file.write_text(private_key())
    assert Redactor(settings_from(server(PRIVATE_KEY=str(file)), PLACE).secrets).found(body)


def test_app_file_supplies_settings_missing_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {"AGENT_FIX_APP_ID": "5", "AGENT_FIX_PRIVATE_KEY": private_key(), "AGENT_FIX_WEBHOOK_SECRET": SECRET}
    file = write_app_file(tmp_path, kept)
    assert file.stat().st_mode & 0o777 == 0o600
    for name in [name for name in os.environ if name.startswith("AGENT_FIX_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AGENT_FIX_APP_ID", "6")
    found = read_server_settings(tmp_path)
    assert (found.app_id, found.private_key, found.webhook_secrets) == (6, private_key(), (SECRET,))
    receiver = read_server_settings(tmp_path, "receiver")
    assert (receiver.app_key, receiver.webhook_secrets) == ("", (SECRET,))
    assert read_settings(tmp_path).webhook_secret == ""


def test_app_file_is_replaced_atomically_with_one_line_per_setting(tmp_path: Path) -> None:
    write_app_file(tmp_path, {"A": "1\n2", "B": "x=y"})
    (tmp_path / "app.new").write_text("left by a crash")
    file = write_app_file(tmp_path, {"A": "1\r\nB=2"})
    assert read_app_file(tmp_path, {"A", "B"}) == {"A": "1\\nB=2"}
    assert file.read_text().count("\n") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["app.env"]


def test_the_state_directory_is_the_argument_or_the_users(tmp_path: Path) -> None:
    assert settings_from({"HOME": "/h", "AGENT_FIX_STATE_DIR": "/s"}, tmp_path).state == tmp_path
    assert settings_from({"HOME": "/h", "AGENT_FIX_STATE_DIR": "/s"}).state == Path("/s")
    assert settings_from({"HOME": "/h", "XDG_STATE_HOME": "/x"}).state == Path("/x/agent-fix")
    assert settings_from({"HOME": "/h"}).state == Path("/h/.local/state/agent-fix")
    with pytest.raises(AgentFixError):
        settings_from({})
    assert Settings(state=tmp_path).check("worker") == ()


def test_every_variable_is_documented_with_its_roles() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "environment.md").read_text()
    rows = [line for line in page.splitlines() if line[:1] == "|"]
    for name in set().union(*ALLOWED_VARIABLES.values()) - {"AGENT_FIX_FAILPOINT"}:  # of the chaos tests
        (row,) = [row for row in rows if f"`{name}`" in row]
        who = {role for role in ROLES if name in ALLOWED_VARIABLES[role]}
        assert set(row.split("|")[3].strip().split(", ")) == ({"all"} if who == set(ROLES) else who), row


def test_e2b_key_alone_does_not_select_e2b_but_warns() -> None:
    with_key = {**server(), "E2B_API_KEY": "e2b_key"}
    assert settings_from(with_key, PLACE).sandbox == "bubblewrap"
    (warning,) = settings_from(with_key, PLACE).check("worker")
    assert warning == "E2B_API_KEY is set, but jobs use bubblewrap: AGENT_FIX_SANDBOX=e2b would use it."
    assert settings_from({**with_key, "AGENT_FIX_SANDBOX": "e2b"}, PLACE).check("worker") == ()
    with pytest.raises(SettingsError) as caught:
        settings_from({**server(), "AGENT_FIX_SANDBOX": "e2b", "E2B_API_KEY": ""}, PLACE).check("worker")
    assert caught.value.problems == ("E2B_API_KEY is not set, and AGENT_FIX_SANDBOX is e2b. Set it to a key.",)


def test_e2b_template_name_is_validated() -> None:
    assert settings_from({**server(), "AGENT_FIX_E2B_TEMPLATE": "my-team/own:1"}, PLACE).e2b_template == "my-team/own:1"
    with pytest.raises(SettingsError, match="1 setting") as caught:
        settings_from({**server(), "AGENT_FIX_E2B_TEMPLATE": "a b"}, PLACE).check("worker")
    assert "AGENT_FIX_E2B_TEMPLATE is 'a b'. It must be the name or id of an E2B template" in caught.value.problems[0]
