"""Draws what people see on GitHub, from the words in `conversation.json`, as the PNG files beside this one.

    .venv/bin/python -m docs.pictures.make

Needs Chromium and a font with emoji. Where Pillow is at hand, the pictures get a palette and are a third as large.
"""

import html
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from app.core.state_words import WORDS

HERE = Path(__file__).parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ALONE = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
COLOURS = 128
FACES = {"ada": "#8250df", "grace": "#bf3989", "agent-fix[bot]": "#0969da"}
LABELS = {
    "agent-fix": "#c2e0ff",
    "agent-in-progress": "#fff1b3",
    "agent-done": "#c6efce",
    "agent-needs-human": "#ffd8b5",
}
EMOJI = {"eyes": "👀", "rocket": "🚀", "confused": "😕"}
TINTS = {"TIP": "#1a7f37", "NOTE": "#0969da", "WARNING": "#9a6700", "CAUTION": "#d1242f"}
MARKDOWN = MarkdownIt("gfm-like", {"html": True, "linkify": False})

_ALERT = re.compile(r"<blockquote>\s*<p>\[!(TIP|NOTE|WARNING|CAUTION)\]\n?(.*?)</blockquote>", re.DOTALL)
_TASK = re.compile(r"<li>\[([ x])\] ")
_ADDRESS = re.compile(r"https://github\.example\.org/[\w-]+/[\w-]+/(?:pull|issues)/(\d+)")

Words = Mapping[str, Any]


def marked(text: str, titles: Mapping[int, str]) -> str:
    """Markdown as GitHub shows it: task lists, alerts, its own addresses by title, commits by their beginning."""
    text = _ADDRESS.sub(lambda found: f"[{titles.get(int(found[1]), '')} #{found[1]}](#)", text)
    text = re.sub(r"\b([0-9a-f]{7})[0-9a-f]{33}\b", r"[`\1`](#)", text)
    text = re.sub(r"^(Fixes) #(\d+)", r"\1 [#\2](#)", text)
    shown = MARKDOWN.render(text)
    shown = re.sub(r"<ul>(?=\s*<li>\[[ x]\])", '<ul class="tasks">', shown)
    shown = _TASK.sub(lambda found: f'<li><input type="checkbox" {"checked" * (found[1] == "x")}>', shown)
    return _ALERT.sub(_alert, shown)


def _alert(found: re.Match[str]) -> str:
    kind = found[1]
    return f'<div class="alert" style="--tint: {TINTS[kind]}"><b class="kind">{kind.title()}</b><p>{found[2]}</div>'


def face(login: str) -> str:
    kind = "face square" if login.endswith("[bot]") else "face"
    return f'<div class="{kind}" style="background: {FACES[login]}">{login[0].upper()}</div>'


def name(login: str) -> str:
    plain = login.removesuffix("[bot]")
    return f"<b>{plain}</b>" + (' <span class="bot">bot</span>' if plain != login else "")


def label(text: str) -> str:
    return f'<span class="label" style="background: {LABELS[text]}">{text}</span>'


def comment(
    author: str, body: str, titles: Mapping[int, str], *, cut: int = 0, reactions: Any = (), head: str = ""
) -> str:
    """One box of the conversation; `cut` is the height in pixels from which it fades out."""
    how = f'class="body cut" style="--cut: {cut}px"' if cut else 'class="body"'
    faces = "".join(f"<span>{EMOJI[each]} 1</span> " for each in reactions)
    below = f'<div class="reactions">{faces}</div>' if faces else ""
    head = head or f"{name(author)} commented"
    box = f'<div class="comment"><div class="head">{head}</div><div {how}>{marked(body, titles)}</div>{below}</div>'
    return f'<div class="row">{face(author)}{box}</div>'


def issue(told: Words, titles: Mapping[int, str]) -> str:
    """Labelled, picked up, at work."""
    about = told["fixed"]["issue"]
    state = next(each for each in told["fixed"]["states"] if WORDS["working"].headline in each["comments"][0]["body"])
    status = state["comments"][0]
    return (
        f'<h1 class="title">{html.escape(about["title"])} <span>#{about["number"]}</span></h1>'
        f'<div class="about"><span class="badge">Open</span> {" ".join(map(label, state["labels"]))}</div>'
        + comment(about["author"], about["body"], titles, cut=360, reactions=state["reactions"])
        + f'<p class="event"><b>grace</b> added the {label("agent-fix")} label</p>'
        + comment(status["author"], status["body"], titles)
    )


def states(told: Words, titles: Mapping[int, str]) -> str:
    """The same comment as it stands when people are needed, and at the end."""
    moments = [*told["waited"][:2], *told["paused"], *told["waited"][2:], told["fixed"]["states"][-1]]
    boxes = []
    for moment in moments:
        said = moment["comments"][-1]
        head = f"{name(said['author'])} &nbsp; {' '.join(map(label, moment['labels']))}"
        boxes.append(comment(said["author"], said["body"], titles, head=head))
    return f'<div class="columns">{"".join(boxes)}</div>'


def pull(told: Words, titles: Mapping[int, str]) -> str:
    """The draft, down to the table with the proof."""
    about = told["fixed"]["pull"]
    body = about["body"]
    return (
        f'<h1 class="title">{html.escape(about["title"])} <span>#{about["number"]}</span></h1>'
        f'<div class="about"><span class="badge draft">Draft</span> {name(about["author"])} wants to merge 1 commit '
        f"into <code>{about['base']}</code> from <code>{about['branch']}</code></div>"
        + comment(about["author"], body, titles)
    )


def pull_excerpt(told: Words, titles: Mapping[int, str]) -> str:
    """The draft without what is folded, for a small picture."""
    body, _, _ = told["fixed"]["pull"]["body"].partition("<details>")
    return pull({"fixed": {"pull": {**told["fixed"]["pull"], "body": body}}}, titles)


def thread(told: Words, titles: Mapping[int, str]) -> str:
    """A request on a line of the diff, and the answer to it."""
    found = told["fixed"]
    lines, changed = (
        "".join(f"<tr><td>{number}</td><td>+{html.escape(text)}</td></tr>" for number, text in found[side])
        for side in ("lines", "changed")
    )
    said = "".join(comment(each["author"], each["body"], titles, head=name(each["author"])) for each in found["thread"])
    return (
        f'<div class="file">{found["thread"][0]["path"]}</div>'
        f'<div class="thread"><table class="diff">{lines}</table><div class="talk plain">{said}</div>'
        f'<p class="event">The lines that the second commit changed:</p><table class="diff">{changed}</table></div>'
    )


def check(told: Words, titles: Mapping[int, str]) -> str:
    """The verification beside the commit."""
    (run,) = told["fixed"]["checks"]
    title, summary = html.escape(run["title"]), run["summary"].partition("<details>")[0]
    return (
        f'<div class="check"><span class="tick">✓</span><div><b>{run["name"]}</b> &nbsp; {title}</div></div>'
        f'<div class="summary body">{marked(summary, titles)}</div>'
    )


PICTURES = {
    "issue": issue,
    "status": states,
    "pull-request": pull,
    "pull-request-excerpt": pull_excerpt,
    "thread": thread,
    "check-run": check,
}
WIDE = {"status"}


def pages() -> Iterator[tuple[str, str]]:
    told = json.loads((HERE / "conversation.json").read_text())
    titles = {each["number"]: each["title"] for each in (told["fixed"]["issue"], told["fixed"]["pull"])}
    style = (HERE / "style.css").read_text()
    for picture, draw in PICTURES.items():
        wide = ' class="wide"' if picture in WIDE else ""
        yield picture, f"<!doctype html><meta charset=utf-8><style>{style}</style><body{wide}>{draw(told, titles)}"


def photograph(browser: str, page: str, to: Path) -> None:
    """Twice: once to learn how high the page is."""
    width = 1120 if 'class="wide"' in page else 860
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "page.html"
        file.write_text(page + "<script>document.title = document.documentElement.offsetHeight</script>")

        def look(height: str, *options: str) -> str:
            size = (f"--user-data-dir={directory}/profile", f"--window-size={width},{height}")
            command = [browser, *ALONE, *size, *options, file.as_uri()]
            return subprocess.run(command, capture_output=True, check=True, timeout=120, text=True).stdout

        height = re.search(r"<title>(\d+)</title>", look("600", "--dump-dom"))
        look(height[1] if height else "1200", f"--screenshot={to}", "--force-device-scale-factor=1.5")


def shrink(picture: Path) -> None:
    from PIL import Image  # noqa: PLC0415  # no library of ours

    with Image.open(picture) as image:
        plain = image.convert("RGB")
        counted = Counter(zip(*[iter(plain.tobytes())] * 3, strict=True)).most_common(COLOURS // 2)
        rare = plain.quantize(COLOURS // 2, Image.Quantize.MAXCOVERAGE).getpalette() or []
        palette = Image.new("P", (1, 1))  # the commonest colours as they are, and rare ones such as those of emoji
        common = [part for colour, _ in counted for part in colour]
        palette.putpalette([*common, *rare[: 3 * COLOURS // 2]])
        plain.quantize(palette=palette, dither=Image.Dither.NONE).save(picture, optimize=True)


def main() -> None:
    browser = next((found for each in BROWSERS if (found := shutil.which(each))), None)
    if browser is None:
        sys.exit("There is no Chromium on PATH.")
    for name, page in pages():
        to = HERE / f"{name}.png"
        photograph(browser, page, to)
        if importlib.util.find_spec("PIL"):
            shrink(to)
        print(f"{to.name}: {to.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main()
