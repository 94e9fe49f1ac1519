// What a page can do beyond what it does without scripts: follow a job's log, and keep the list of jobs fresh.
"use strict";

const log = document.getElementById("log");

if (log && log.dataset.events) {
  const lines = log.querySelector("ol");
  const box = log.querySelector(".log");
  const atEnd = () => box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  const part = (tag, name, text) => {
    const made = document.createElement(tag);
    made.className = name;
    made.textContent = text;
    return made;
  };
  let last = log.dataset.last;
  let source;
  // The server draws the page; what changed of it replaces what is shown, except where somebody is busy.
  let waiting = false;
  const refresh = () => {
    if (waiting) return;
    waiting = true;
    setTimeout(async () => {
      waiting = false;
      const answer = await fetch(location.pathname, { headers: { accept: "text/html" } }).catch(() => null);
      if (answer?.redirected || answer?.status === 404) location.reload(); // the session or the right to see it has ended
      if (!answer?.ok || answer.redirected) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const shown of document.querySelectorAll("[data-live]")) {
        const next = fresh.getElementById(shown.id);
        const busy = shown.contains(document.activeElement) || [...shown.querySelectorAll("textarea, input")].some((each) => each.value !== each.defaultValue);
        if (!next || busy) continue;
        const open = [...shown.querySelectorAll("details")].map((each) => each.open);
        next.querySelectorAll("details").forEach((each, number) => {
          each.open = open[number] ?? each.open;
        });
        if (!next.isEqualNode(shown)) shown.replaceWith(document.adoptNode(next));
      }
    }, 1500);
  };
  const show = (event) => {
    last = event.lastEventId;
    const entry = JSON.parse(event.data);
    const follow = atEnd();
    const line = document.createElement("li");
    line.className = `k-${entry.kind}`;
    line.append(part("time", "", entry.at), part("span", "kind", entry.kind), part("span", "said", entry.text));
    lines.append(line);
    while (lines.children.length > 2000) lines.firstElementChild.remove();
    if (follow) box.scrollTop = box.scrollHeight;
    refresh();
  };
  const update = (event) => {
    const state = JSON.parse(event.data);
    const badge = document.getElementById("state");
    badge.textContent = state.name;
    badge.className = `badge ${state.kind}`;
    document.getElementById("live").textContent = "live · ";
    refresh();
  };
  const connect = () => {
    source = new EventSource(`${log.dataset.events}?offset=${last}`);
    source.addEventListener("error", () => {
      document.getElementById("live").textContent = "";
      if (source.readyState === EventSource.CLOSED) refresh();
    });
    source.addEventListener("line", show);
    source.addEventListener("state", update);
    source.addEventListener("end", () => {
      source.close();
      location.reload();
    });
  };
  box.scrollTop = box.scrollHeight;
  if (!document.hidden) connect();
  // A browser keeps at most six connections to a server: a tab that nobody sees must not hold one.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) source?.close();
    else connect();
  });
} else if (document.body.dataset.fresh) {
  setInterval(() => {
    const idle = document.activeElement === document.body && getSelection().isCollapsed;
    if (document.visibilityState === "visible" && idle) location.reload();
  }, 30000);
}
