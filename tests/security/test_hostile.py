"""A program and a recording in which every name is an attack: on the page, in Markdown and in the terminal; and
secrets."""

import io
import json
import os
import re
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import replace
from html.parser import HTMLParser
from typing import get_type_hints

import pytest
from browser import CHROMIUM, DRIVER, opened
from golden_report import altered, golden, hostile
from harness import given
from programs import COMMAND, PATIENCE, ROOT, Ran
from rich.console import Console

from advisor.metrics.input import loader
from advisor.metrics.program import configuration, driver
from advisor.metrics.settings import model, optimizer
from advisor.publish import publish
from advisor.report.render import html, markdown, result_json
from advisor.report.render.terminal import summarize
from advisor.rules._spelling import FRAMEWORKS, spelling
from profiler.schema import (
    FACTS,
    CallFact,
    Fact,
    Gpu,
    Kernel,
    LoaderFact,
    ModelFact,
    OptimizerFact,
    Place,
    Problem,
    Process,
    Run,
    Step,
    Window,
)
from profiler.store import Writer

ATTACK = (
    '<script>window.owned=1</script>"><img src=x onerror=window.owned=1></script><script>window.owned=1</script>'
    "' onmouseover='window.owned=1 {{ 7*7 }} {% raw %} ${7*7} ](javascript:window.owned=1) "
    "![x](https://evil.invalid/x) `code` | a | b |\n# heading\r\n- item\x1b[2J\x1b]0;owned\x07\x9b31m"
    "\u202egnp.exe\u2066x\x00 </title></style><!-- "
)
LONE = "\ud800"
LONG = "n" * 200_000
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that control a terminal or mislead the eye, except for tabs and line feeds."""

SECRETS = {
    "WANDB_API_KEY": "wandbSecret0123456789",
    "DB_PASSWORD": "databaseSecret01",
    "HF_TOKEN": "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567",
    "NAMED_ONLY_BY_ITS_SHAPE": "ghp_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789",
}
ARGUMENTS = ("--api-key", "argumentSecret42", "--url=https://me:urlSecret42@host/x", "EXTRA_TOKEN=assignedSecret42")
HIDDEN = (*SECRETS.values(), "argumentSecret42", "urlSecret42", "assignedSecret42", "innocentVariable42")

PROGRAM = """
import json, os, sys, time
sys.path.insert(0, ROOT)
import torch
from torch.utils.data import DataLoader, Dataset
from profiler import region

ATTACK, LONG = json.loads(sys.argv[1]), "n" * 200_000
SAFE = ATTACK.replace("\\0", "")  # a class is not made with it, but may be renamed

class Data(Dataset):
    def __len__(self): return 4096
    def __getitem__(self, i):
        time.sleep(0.001)
        return torch.randn(4)

def named(cls, name=SAFE):
    made = type(name, (cls,), {})
    made.__qualname__ = ATTACK + "\\ud800"
    made.__module__ = ATTACK
    return made

class Model(torch.nn.Sequential):
    def modules(self):  # the agent asks for them
        raise ValueError("no entry for " + os.environ["WANDB_API_KEY"] + ", password: " + os.environ["DB_PASSWORD"])

inner = named(torch.nn.Linear, LONG)
good = named(torch.nn.Sequential)(inner(4, 8), named(torch.nn.ReLU)(), inner(8, 1))
bad = Model(torch.nn.Linear(4, 1))
optimizer = named(torch.optim.SGD)([*good.parameters(), *bad.parameters()], lr=1e-4)
loader = DataLoader(named(Data)(), batch_size=4)
end = time.time() + 4
facts = []
for i, batch in enumerate(loader):
    record = torch.profiler.record_function
    with record(ATTACK), record(f"fetch \\"https://me:{os.environ['DB_PASSWORD']}@host/x\\""):
        loss = good(batch).sum() + bad(batch).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with region(ATTACK + os.environ["HF_TOKEN"]): pass
    if i == 100:
        time.sleep(0.6)
    if time.time() > end: break
settings = json.loads(os.environ["PROFILE_TRAIN_AGENT"])
print(len(os.listdir(settings["windows"])))
left = b"".join(open(os.path.join(settings["rings"], name), "rb").read() for name in os.listdir(settings["rings"]))
print(sum(os.environ[name].encode() in left for name in ("WANDB_API_KEY", "DB_PASSWORD", "HF_TOKEN")))
raise RuntimeError(f"nobody catches this: token={os.environ['HF_TOKEN']} " + ATTACK)
"""


class Page(HTMLParser):
    """A page's elements, with their attributes; the text outside of scripts and styles."""

    def __init__(self, source):
        super().__init__()
        self.elements, self.text, self._open = [], "", ""
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self._open = tag
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        self._open = ""

    def handle_data(self, data):
        if self._open not in ("script", "style"):
            self.text += data


def check_page(source):
    """Check that the page has only our own elements, loads nothing, has no handlers, and makes characters that mislead
    the eye visible."""
    page = Page(source)
    assert {tag for tag, _ in page.elements}.isdisjoint(
        {"img", "iframe", "object", "embed", "form", "link", "base", "use", "image", "foreignobject", "animate", "set"}
    )
    scripts = [attributes for tag, attributes in page.elements if tag == "script"]
    data = [attributes for attributes in scripts if attributes]
    held = {attributes.get("id") for attributes in data}
    known = [name for name in ("charts-data", "one-step-data", "memory-data") if name in held]
    assert data == [{"type": "application/json", "id": name} for name in known]
    drawing, looking, asking = (f"{name}-data" in known for name in ("charts", "one-step", "memory"))
    sorting = any(attributes.get("id") == "operators-table" for _, attributes in page.elements)
    assert len(scripts) - len(data) == 1 + 2 * drawing + 2 * asking + looking + sorting
    for tag, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on")]
        assert "src" not in attributes
        if tag == "a":
            assert attributes["href"].startswith(("#", "https://"))
            assert attributes["href"].startswith("#") or attributes["rel"] == "noreferrer noopener"
    policy = next(a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith(
        "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; script-src 'sha256-"
    )
    assert "unsafe-eval" not in policy
    assert not OBEYED.search(page.text.replace("\r\n", "\n"))


def check_markdown(text):
    """Check that links, pictures, HTML, headings, table rows and control characters from outside are shown as text."""
    assert not OBEYED.search(text)
    fence = None
    for line in text.splitlines():
        if opening := re.match(r"(`{3,})", line):
            fence = opening[1] if fence is None else None if line == fence else fence
            continue
        if fence is not None:
            continue
        plain = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", re.sub(r"\\.", "", line))
        assert "<" not in plain
        assert "](" not in plain
        assert not re.match(r"# heading|- item", line)
        assert "`" not in plain
    for table in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1


def check_terminal(text, terminal):
    """Check that there is no escape sequence, except for our own colors, and no control character."""
    ours = re.sub(r"\x1b\[[0-9;]*m", "", text) if terminal else text
    assert not OBEYED.search(ours)


def check_all(folder):
    check_page((folder / "report.html").read_text(encoding="utf-8"))
    check_markdown((folder / "report.md").read_text(encoding="utf-8"))
    result = (folder / "result.json").read_bytes()
    assert result.isascii()
    json.loads(result)


# ---- a program ----


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Run a hostile program under profile-train, without a terminal, until an exception ends it."""
    folder = tmp_path_factory.mktemp("hostile")
    script = folder / '"><img src=x onerror=window.owned=1>{{ 7*7 }}\x1b[2J\u202e|`](javascript:x)\n.py'
    script.write_text(PROGRAM.replace("ROOT", repr(str(ROOT)), 1))
    words = [*COMMAND, "--budget", "0.5", "--out", folder / "run", script, json.dumps(ATTACK), *ARGUMENTS, b"\xff\xfe"]
    environment = os.environ | SECRETS | {"SOME_SETTING": "innocentVariable42"}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, timeout=PATIENCE, check=False)
    return Ran(done.returncode, done.stdout, done.stderr, folder / "run")


def test_hostile_program_is_recorded_and_fails_unchanged(ran):
    assert ran.status == 1
    assert int(ran.out.split()[0]) > 0, "a window was taken"
    assert b"nobody catches this" in ran.err
    assert len(ran.steps) > 50
    assert ran.facts("optimizer")[0].name.startswith("<script>")
    assert "model" not in ran.problems, "it raises when it is asked, and nobody asks it"


def test_report_of_hostile_program_is_safe_in_every_form(ran):
    check_all(ran.folder)
    summary = ran.err.decode().rpartition("Report: ")
    check_terminal(summary[0].rpartition("nobody catches this")[2].partition("\n\n")[2] + summary[2], terminal=False)


def test_run_files_contain_no_secrets(ran):
    files = [path for path in ran.folder.rglob("*") if path.is_file()]

    assert {path.suffix for path in files} == {".db", ".html", ".md", ".json"}
    found = {(path.name, secret) for path in files for secret in HIDDEN if secret.encode() in path.read_bytes()}
    assert found == set()
    assert "'--api-key', '***'" in repr(ran.run.command)
    assert "https://***@host/x" in repr(ran.run.command)
    for window in (ran.folder / "windows").iterdir():
        # torch 2.15 writes its own quotes
        names = {event["name"].replace("'", '"') for event in json.loads(window.read_bytes())["traceEvents"]}
        assert 'fetch "https://***@host/x"' in names
    assert ran.tables.windows


def test_facts_file_contains_no_secrets_during_the_run(ran):
    assert int(ran.out.split()[1]) == 0


def test_long_names_are_shortened(ran):
    assert (ran.folder / "report.html").stat().st_size < 2_500_000
    assert max(map(len, ran.facts("model")[0].modules)) < 10_000


# ---- a recording ----


@pytest.fixture
def store(tmp_path):
    """Return a recording of 100 steps with every kind of fact, in which every text is an attack."""
    writer = Writer(tmp_path, "node")
    writer.add(
        Run(
            id="a",
            command=("x.py",),
            cwd="/",
            host="node",
            started_at=1.7e9,
            duration=12.0,
            cores=4.0,
            cores_total=4,
            memory_total=2**34,
            platform="Linux",
            python="3.11",
            version="0",
        )
    )
    writer.add(Process(pid=1, started=0.5, python="3", torch="2"))
    writer.add(Gpu(index=0, uuid="u", name="g", memory_total=2**34, driver="1"))
    writer.add(
        *[
            Step(pid=1, index=i, start=1 + i / 10, duration=0.1, data_wait=0.06, forward=0.02, backward=0.02)
            for i in range(100)
        ]
    )
    writer.add(Window(pid=1, start=2.0, steps=3, duration=0.3, cost=0.1))
    writer.add(Kernel(pid=1, window=0, device="cpu", name="k", kind="other", calls=3, total=0.1, dtype="fp32"))
    writer.add(Problem(time=1.0, source="s", message="m"))
    for kind in FACTS:
        writer.add(Fact(pid=1, time=1.0, kind=kind, body={"id": 1}))
    writer.close()
    return writer.path


def attacked(path, text):
    """Write `text` into every column of text, as someone else might."""
    place = {"file": text, "line": 3}
    names = {name for cls in FACTS.values() for name, hint in get_type_hints(cls).items() if hint in (str, str | None)}
    body = dict.fromkeys(names, text) | {
        "id": 1,
        "place": place,
        "wrappers": [text],
        "dtypes": {text: 3},
        "devices": {text: 3},
        "modules": {text: 3},
        "count": 3,
        "seconds": 1.0,
        "training": True,
        "batch_size": 8,
        "iterable": False,
        "blocks": 4,
        "tensors": 500,
        "lr": 0.1,
    }
    kept = {"runs": {"outcome"}, "processes": {"role"}, "windows": {"device"}, "kernels": {"device"}}
    as_json = json.dumps(text)
    text = text.encode("utf-8", "backslashreplace").decode()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for _, column, kind, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall():
                if kind == "TEXT" and column not in {"key", "kind", "capability", "bins", "body", "command"} | kept.get(
                    table, set()
                ):
                    connection.execute(f'UPDATE {table} SET "{column}" = ?', (text,))
        connection.execute("UPDATE kernels SET kind = ?", (text,))
        connection.execute("UPDATE runs SET command = ?", (f"[{as_json}, {as_json}]",))
        connection.execute("UPDATE facts SET body = ?", (json.dumps(body),))


@pytest.mark.parametrize("text", [ATTACK, f"{ATTACK}{LONE}", f"{ATTACK}{LONG}", LONE * 300, "\x00\x1b" * 50])
def test_report_of_hostile_recording_is_safe(store, text):
    attacked(store, text)

    report = publish(store.parent)

    assert report.steps.count == 100
    check_all(store.parent)
    for terminal in (True, False):
        out = io.StringIO()
        summarize(report, store.parent, Console(file=out, width=100, force_terminal=terminal, highlight=False))
        check_terminal(out.getvalue(), terminal)


def test_command_output_for_hostile_recording_is_safe(store, report):
    attacked(store, f"{ATTACK}{LONE}")

    for options in ((), ("--json",)):
        ran = report(store.parent, *options)
        assert ran.status == 0, ran.err
        check_terminal((ran.out + ran.err).decode(), terminal=False)


def test_error_message_with_hostile_folder_name_is_safe(tmp_path, report):
    folder = tmp_path / "a\x1b[2J\x1b]0;owned\x07\u202e"
    folder.mkdir()

    ran = report(folder)

    assert ran.status == 1
    assert b"owned" in ran.err
    check_terminal(ran.err.decode(), terminal=False)


@pytest.mark.parametrize("framework", ["torch", *FRAMEWORKS])
def test_suggested_code_contains_no_invalid_names(framework):
    """Otherwise a name could bring its own lines into the reader's program."""
    name = "SGD)\nimport os; os.system('owned')\n("
    where = Place(file=name, line=1)
    metrics = given(
        {
            driver: framework,
            configuration: CallFact(id=framework, name=name, place=where, settings={"learning_rate": name}),
            loader: LoaderFact(id=1, dataset=name, sampler=name, collate=name, context=name, batch_size=8),
            model: ModelFact(id=1, name=name, variable=name, block=name, wrappers=(name,)),
            optimizer: OptimizerFact(id=1, name=name, module="torch.optim", lr=0.1, variable=name),
        }
    )
    spelled = spelling(metrics)
    changes = [
        *spelled.loader(num_workers=4),
        *spelled.copy_ahead(),
        *spelled.half("bf16"),
        *spelled.half("fp16"),
        *spelled.compile(),
        *spelled.learning_rate(2.0, "grows"),
        *spelled.accumulate(2, 4),
        *spelled.checkpoint(name, 2),
        *spelled.no_checkpoints(),
        *spelled.shard(2),
        *spelled.log_every(10),
        *spelled.save_every(10, "10 s", in_background=True),
    ]

    for change in changes:
        if change.language == "python":
            compile(change.code, "<change>", "exec")
            assert not re.search(r"^\s*import os", change.code, re.MULTILINE)
        else:
            json.loads(change.code)


@pytest.mark.parametrize("text", [ATTACK, f"{ATTACK}{LONE}"])
def test_rendered_hostile_report_is_safe_in_every_form(text):
    report = hostile(text)

    check_page(html.render(report))
    check_markdown(markdown.render(report))
    assert result_json.render(report).isascii()


def test_line_breaks_in_code_are_kept():
    first = golden().advice[0]
    change = replace(first.finding.advice.changes[0], code="one\n\ttwo")
    report = replace(golden(), advice=(altered(first, changes=(change,)),))

    assert "<code>one\n\ttwo</code>" in html.render(report)
    assert "```python\none\n\ttwo\n```" in markdown.render(report)


# ---- in a browser ----

in_a_browser = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium and chromedriver are not installed"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def check_in_browser(browser, path, *, charts):
    """Check that no foreign script ran, that nothing was requested, and that our own scripts broke no rule."""
    opened(browser, path.as_uri(), charts=charts)
    assert browser.execute_script("return window.owned") is None
    assert [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"] == []
    asked = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [each["params"]["request"]["url"] for each in asked if each["method"] == "Network.requestWillBeSent"]
    assert [url.partition(":")[0] for url in urls] == ["file"]
    for width in (1280, 390):
        opened(browser, path.as_uri(), width=width, charts=charts)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("what", ["program", "recording", "long names", "report"])
def test_hostile_report_runs_nothing_in_a_browser(browser, ran, store, tmp_path, what):
    path = tmp_path / "report.html"
    if what == "program":
        path = ran.folder / "report.html"
    elif what == "report":
        path.write_text(html.render(hostile(ATTACK)), encoding="utf-8")
    else:
        attacked(store, ATTACK if what == "recording" else "n" * 5_000)
        publish(store.parent)

    check_in_browser(browser, path, charts=True)


test_hostile_report_runs_nothing_in_a_browser.pytestmark += in_a_browser
