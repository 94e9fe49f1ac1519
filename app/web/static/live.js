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
  box.scrollTop = box.scrollHeight;
  const source = new EventSource(log.dataset.events);
  source.addEventListener("line", (event) => {
    const said = JSON.parse(event.data);
    const follow = atEnd();
    const line = document.createElement("li");
    line.className = `k-${said.kind}`;
    line.append(part("time", "", said.at), part("span", "kind", said.kind), part("span", "said", said.text));
    lines.append(line);
    while (lines.children.length > 2000) lines.firstElementChild.remove();
    if (follow) box.scrollTop = box.scrollHeight;
  });
  source.addEventListener("state", (event) => {
    const state = JSON.parse(event.data);
    const badge = document.getElementById("state");
    badge.textContent = state.name;
    badge.className = `badge ${state.group} ${state.state}`;
    document.getElementById("cost").textContent = state.cost;
    const live = document.getElementById("live");
    if (live) live.textContent = "live";
  });
  source.addEventListener("end", () => {
    source.close();
    location.reload();
  });
} else if (document.body.dataset.fresh) {
  setInterval(() => {
    const busy = document.activeElement && document.activeElement.closest("form");
    if (document.visibilityState === "visible" && !busy) location.reload();
  }, 30000);
}
