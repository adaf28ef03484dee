"""`profile-train plan`: what it prints and writes, and its messages about mistakes."""

import io
import json
import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from rich.console import Console

from advisor.cli import main
from advisor.report.render.section_text import show

STATES = ["--params", "1.5B", "--gpus", "8", "--gpu-memory", "24GB"]
SHAPE = ["--layers", "32", "--hidden", "4096", "--heads", "32", "--sequence", "4096", "--vocabulary", "128256"]
LLAMA = ["--params", "8.03B", "--gpus", "8", "--gpu", "L40S", *SHAPE]
SPOT = ["--mtbf", "2h", "--save-cost", "20s", "--restart-cost", "5m", "--spot-discount", "65%"]


@pytest.fixture
def plan(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    def call(*words, status=0):
        assert main(["plan", *words]) == status
        return capsys.readouterr()

    return call


def test_the_18_gb_case(plan):
    """1.5e9 parameters over 8 GPUs with a master copy: 24 / 8.25 / 5.62 / 3.00 GB, optimizer 18 -> 2.25."""
    text = plan(*STATES, "--optimizer", "adamw", "--precision", "bf16-master").out

    assert "(ZeRO 1): 8.25 GB of 23.71 GB" in text
    assert re.search(r"none \(DDP\) +3\.00 +3\.00 +18\.00 +0\.00 +24\.00 +\d+\.\d+ short", text)
    assert re.search(r"> ZeRO 1 +3\.00 +3\.00 +2\.25 +0\.00 +8\.25", text)
    assert re.search(r"ZeRO 2 +3\.00 +0\.38 +2\.25 +0\.00 +5\.62", text)
    assert re.search(r"ZeRO 3 = FSDP +0\.38 +0\.38 +2\.25 +\? +3\.00\+", text)


def test_autocast_plan_mentions_master_copy(plan):
    text = " ".join(plan(*STATES, "--precision", "bf16").out.split())

    assert "24.00 / 8.25 / 5.62 / 3.00 GB" in text
    assert "18.00 -> 2.25 GB (--precision bf16-master)" in text
    assert "--layers" in text  # what it takes to count activations, too


@pytest.mark.parametrize("words", [STATES, LLAMA, [*LLAMA, "--no-flash", *SPOT, "--interval", "3h"], SPOT])
def test_no_line_is_wider_than_80_columns(plan, words):
    text = plan(*words).out

    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


def test_an_ascii_terminal_gets_ascii(monkeypatch):
    made = []
    monkeypatch.setattr("advisor.report.render.section_text.show", lambda found, console: made.append(found))
    assert main(["plan", *LLAMA]) == 0
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    show(made[0], Console(file=file, width=80))
    file.flush()
    assert b"> ZeRO 2" in file.buffer.getvalue()


def test_json_says_it_in_bytes_and_seconds(plan):
    found = json.loads(plan(*LLAMA, *SPOT, "--micro-batch", "4", "--target-batch", "512", "--format", "json").out)

    memory = found["memory"]
    assert found["schema"] == "profile-train/plan@1"
    assert memory["cluster"]["gpu_memory"] == 46068 * 1024**2
    assert memory["cluster"]["gpu_bandwidth"] == 864e9
    assert memory["placements"][0]["states"] == pytest.approx(16 * 8.03e9)
    assert memory["recommendation"] | {"gpu_bytes": None} == {
        "stage": 3,
        "offload": "nothing",
        "optimizer": "adamw",
        "checkpointing": "full",
        "checkpoint_every": 1,
        "time_added": pytest.approx(1 / 3),
        "gpu_bytes": None,
        "largest_micro_batch": 5,
    }
    assert memory["accumulation"] == {"target_batch": 512, "micro_batch": 4, "steps": 16, "samples": 512}
    assert found["checkpoint_interval"]["interval"] == pytest.approx(523, abs=1)
    assert found["checkpoint_interval"]["spot"]["cost_ratio"] == pytest.approx(0.394, abs=0.001)
    assert found["batch"] is None


def test_json_has_null_for_what_is_not_known(plan):
    stage_3 = json.loads(plan(*STATES, "--format", "json").out)["memory"]["placements"][3]

    assert stage_3["stage"] == 3
    assert stage_3["transient"] is stage_3["total"] is stage_3["deepspeed"] is None
    assert stage_3["largest_micro_batch"] == {}


def test_peaks_give_the_batch_and_the_activations(plan):
    peaks = ["--peak", "8:21GB", "--peak", "16:31GB"]
    assert "49 samples" in plan(*peaks, "--gpu-memory", "79e9").out
    found = json.loads(plan(*peaks, *STATES, "--format", "json").out)
    assert found["memory"]["activations"]["per_sample"] == [
        {"checkpointing": "none", "bytes": 1.25e9, "time_added": 0.0}
    ]


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.policy, self.open = [], "", []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if dict(attrs).get("http-equiv") == "Content-Security-Policy":
            self.policy = dict(attrs)["content"]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_page_is_complete_without_scripts_or_requests(plan, tmp_path):
    file = tmp_path / "plan.html"
    captured = plan(*LLAMA, *SPOT, "--out", str(file))
    text = file.read_text(encoding="utf-8")
    page = Page(text)

    assert captured.out == ""
    assert str(file) in captured.err
    assert page.open == []
    assert "default-src 'none'" in page.policy
    assert "script-src" not in page.policy
    assert not [tag for tag, _ in page.tags if tag in ("script", "img", "link", "iframe")]
    assert not [attrs for _, attrs in page.tags if attrs.get("href", "#")[0] != "#"]
    assert "profile-train plan --params 8.03B" in re.sub("<[^>]+>", "", text)
    assert "fully_shard" in text
    assert "Save every 8 min 43 s" in text
    assert sum(1 for tag, attrs in page.tags if attrs.get("class") == "chosen") == 4


def test_user_text_is_escaped_on_page(plan, tmp_path):
    file = tmp_path / "<script>1<b>.html"
    plan(*STATES, "--out", str(file))
    text = file.read_text(encoding="utf-8")

    assert "<script>" not in text
    assert "&lt;script&gt;1&lt;b&gt;.html" in text


def test_file_extension_selects_format(plan, tmp_path):
    for name, begins in (("p.md", "# Save every"), ("p.json", "{"), ("p.txt", "\nSave every"), ("p", "\nSave every")):
        plan(*SPOT, "--out", str(tmp_path / name))
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(begins)


def test_markdown_rows_have_equal_number_of_cells(plan):
    lines = plan(*LLAMA, *SPOT, "--format", "markdown").out.splitlines()
    tables = [line for line in lines if line.startswith("|")]

    assert "| **ZeRO 2** | **4.01** |" in "".join(tables)
    for before, line in pairwise(lines):
        if before.startswith("|") and line.startswith("|"):
            assert before.count("|") == line.count("|")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--params"),
        (["--gpus", "8"], "--params"),
        (["--params", "0", "--gpu", "H100"], "'0' is not a positive amount"),
        (["--params", "1B"], "--gpu NAME"),
        (["--params", "1B", "--gpu", "H10"], "Did you mean H100?"),
        (["--params", "1B", "--gpu", "A100"], "A100 40GB, A100 80GB"),
        (["--params", "1B", "--gpu", "\x1b[31mH10"], "\\x1b[31mH10"),
        (["--params", "1B", "--gpu-memory", "24"], "24GB"),
        ([*LLAMA, "--heads", "33"], "such as --heads 32"),
        ([*LLAMA, "--layers", "0"], "'--layers': 0 is not in the range x>=1"),
        ([*STATES, "--optimizer", "adafactor"], "--hidden"),
        ([*STATES, "--gpus", "12"], "--gpus-per-node 4"),
        ([*STATES, "--activation-bytes-per-sample", "1GB", "--peak", "1:2GB", "--peak", "2:3GB"], "not both"),
        (["--peak", "8:21GB", "--gpu", "H100"], "--peak 16:31GB"),
        (["--mtbf", "2h"], "--save-cost 20s"),
        (["--save-cost", "20s"], "--mtbf 2h"),
        (["--mtbf", "20", "--save-cost", "1s"], "with its unit"),
        (["--mtbf", "10s", "--save-cost", "20s"], "Make saves smaller"),
        ([*SPOT, "--spot-discount", "65"], '"65%"'),
    ],
)
def test_user_mistake_gives_message_and_remedy(plan, words, message):
    found = plan(*words, status=2)

    assert found.out == ""
    assert message in found.err
    assert "Traceback" not in found.err
    assert "\x1b" not in found.err


def test_too_long_interval_suggests_shorter_one(plan):
    text = " ".join(plan("--mtbf", "2h", "--save-cost", "20s", "--interval", "3h").out.split())

    assert "8 min 43 s instead" in text


def test_a_file_that_cannot_be_written(plan, tmp_path):
    captured = plan(*SPOT, "--out", str(tmp_path / "none" / "plan.html"), status=1)

    assert f"{tmp_path}/none/plan.html" in captured.err


def test_help_names_every_unit(plan):
    text = plan("--help").out

    assert "20s, 5m or 2h" in text
    assert "profile-train plan --mtbf 2h" in text
