"""The audit log: what was done on the dashboard, through the API, on GitHub and in a terminal."""

import re
from dataclasses import replace
from datetime import timedelta

from app.jobs.accounts import ApiKeys
from app.jobs.trigger_log import AuditLog, insert_trigger, prune_audit_log
from app.server.web.pages import AUDIT_SHOWN
from tests.support.server_jobs import trigger
from tests.support.web_client import WebClient

WORKING, ENDED = "seed22", "seed08"
FIELDS = ("who", "way", "address", "action", "job", "detail")


async def test_actions_are_logged_with_who_did_them_and_from_where(here: WebClient) -> None:
    fields = dict(re.findall(r'name="(seal|id)" value="(\w+)"', await here.page(f"/jobs/{WORKING}")))
    fields["extra"] = "approved by grace"
    assert (await here.client.post(f"/jobs/{WORKING}/stop", data=fields)).status_code == 303
    writer = {"authorization": f"Bearer {ApiKeys(here.engine, here.clock).create('ci', ['write'])}"}
    again = (await here.stranger.post(f"/api/jobs/{ENDED}/retry", headers=writer)).json()["id"]
    new = {"repository": "ada/sample", "issue": 7}
    started = (await here.stranger.post("/api/jobs", json=new, headers=writer)).json()["id"]
    with here.engine.begin() as db:
        asked = replace(trigger("comment/1"), login="grace")
        assert insert_trigger(db, asked, "job", "j1")
        assert not insert_trigger(db, asked, "job", "j1")
        insert_trigger(db, replace(trigger("comment/2"), login="mallory"), "skip no_access", "")
        insert_trigger(db, trigger("check/1"), "job", "j2")
    entries = (await here.client.get("/api/audit")).json()["entries"]
    assert [tuple(entry[name] for name in FIELDS) for entry in entries] == [
        ("grace", "github", "", "fix", "j1", "job"),
        ("ci", "api", "127.0.0.1", "start", started, ""),
        ("ci", "api", "127.0.0.1", "retry", ENDED, ""),
        ("operator", "dashboard", "127.0.0.1", "stop", WORKING, ""),
    ]
    assert again != started


async def test_a_refused_action_is_not_logged(here: WebClient) -> None:
    assert (await here.client.post(f"/jobs/{WORKING}/stop", data={"seal": "x"})).status_code == 403
    assert (await here.client.post(f"/api/jobs/{ENDED}/cancel")).status_code == 409
    assert (await here.client.get("/api/audit")).json() == {"entries": [], "before": None}
    assert "No entries yet." in await here.page("/audit")


async def test_pages_lead_from_the_newest_entry_to_the_oldest(here: WebClient) -> None:
    log = AuditLog(here.engine, here.clock)
    for number in range(AUDIT_SHOWN + 5):
        log.record("ada", "terminal", "create key", detail=f"key <{number}>")
    first = await here.page("/audit")
    assert f"key &lt;{AUDIT_SHOWN + 4}&gt;" in first
    older = re.search(r'href="(/audit\?before=\d+)" rel="next"', first)
    assert older is not None
    second = await here.page(older[1])
    assert [f"key &lt;{number}&gt;" in second for number in (5, 4, 0)] == [False, True, True]
    assert 'rel="next"' not in second
    assert "key &lt;104&gt;" in await here.page("/audit?before=x")
    page = (await here.client.get("/api/audit?limit=100")).json()
    rest = (await here.client.get(f"/api/audit?before={page['before']}")).json()
    assert [each["detail"] for each in rest["entries"]] == [f"key <{number}>" for number in (4, 3, 2, 1, 0)]
    assert rest["before"] is None


async def test_entries_are_deleted_after_400_days(here: WebClient) -> None:
    log = AuditLog(here.engine, here.clock)
    began = here.clock.now
    for days, who in ((0, "ada"), (1, "grace")):
        here.clock.now = began + timedelta(days=days)
        log.record(who, "api", "start")
    assert prune_audit_log(here.engine, began + timedelta(days=400)) == 0
    assert prune_audit_log(here.engine, began + timedelta(days=400, hours=1)) == 1
    assert [each.who for each in log.newest(9)] == ["grace"]
