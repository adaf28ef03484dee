"""The page: complete, escaped, and closed to the network."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from golden_report import altered, empty, golden, hostile, tried

from advisor.report.render import html
from advisor.report.render.tried import WORDS
from advisor.report.report import Report
from advisor.report.wording import diagnosis, forecast
from advisor.rules.base import Severity

VENDOR = Path(__file__).parents[4] / "templates" / "vendor"
SCRIPT = "<script>alert(1)</script>"
ATTACKS = [
    SCRIPT,
    '"><img src=x onerror=alert(1)>',
    "</script><script>alert(1)</script>",
    "{{ 7*7 }}",
    "' onmouseover='x",
]


class Page(HTMLParser):
    """Elements with their attributes, and the text outside scripts and styles."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open = ""
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self._open = tag
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        self._open = ""

    def handle_data(self, data):
        if self._open not in ("script", "style"):
            self.text += data

    def count(self, tag: str) -> int:
        return sum(1 for name, _ in self.elements if name == tag)


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(html.render(golden()))


def test_page_is_smaller_than_200_kb():
    assert len(html.render(golden()).encode()) < 200_000


def test_vendored_scripts_are_included_unchanged():
    note = (VENDOR / "README.md").read_text(encoding="utf-8")
    script = (VENDOR / "uPlot.iife.min.js").read_text(encoding="utf-8")
    sums = dict(re.findall(r"^ +([0-9a-f]{64})  (\S+)$", note, re.MULTILINE))

    assert {path.name for path in VENDOR.iterdir()} == {"README.md", *sums.values()}
    for digest, name in sums.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest
    assert re.match(r"# uPlot (\S+)\n", note)[1] == re.match(r"/\*!.*\(v(\S+)\) \*/", script)[1]
    for page in (html.render(golden()), html.render(replace(golden(), charts=()))):
        for name in sums.values():
            assert ((VENDOR / name).read_text(encoding="utf-8") in page) is ("charts-data" in page)


def test_page_without_charts_has_no_chart_library():
    assert "uPlot" not in html.render(empty())


def test_page_makes_no_network_requests(page):
    addresses = [
        attributes[name]
        for tag, attributes in page.elements
        for name in ("src", "href", "srcset", "action", "data")
        if name in attributes and tag != "a"
    ]

    assert addresses == []


@pytest.mark.parametrize(("report", "scripts"), [(golden, 6), (empty, 1)])
def test_content_security_policy_allows_only_hashed_scripts_and_styles(report, scripts):
    source = html.render(report())
    policy = next(a["content"] for _, a in Page(source).elements if a.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))

    def hashes(opening):
        texts = re.findall(f"{opening}(.*?)</", source, re.DOTALL)
        return " ".join(f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts)

    assert rules == {
        "default-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "style-src": "'unsafe-inline'",
        "script-src": hashes("<script>"),
        "style-src-elem": hashes("<style>"),
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    assert len(rules["script-src"].split()) == scripts


def test_no_element_has_a_handler(page):
    assert [name for _, attributes in page.elements for name in attributes if name.startswith("on")] == []


@pytest.mark.parametrize("attack", ATTACKS)
def test_untrusted_text_is_escaped(page, attack):
    attacked = Page(html.render(hostile(attack)))

    assert attack in attacked.text
    assert attacked.count("script") == page.count("script")
    assert attacked.count("img") == 0
    assert [name for _, attributes in attacked.elements for name in attributes if name.startswith("on")] == []


def test_links_are_anchors_or_https(page):
    targets = [attributes["href"] for tag, attributes in page.elements if tag == "a"]

    assert all(target.startswith(("#", "https://")) for target in targets)


@pytest.mark.parametrize(
    "text",
    [
        "A step takes 200 ms, 40% of it waiting for data.",
        "Begin with this: use more DataLoader workers, for 33 to 40% less step time.",
        "train.py --lr 3e-4 --name 'first try'",
        "num_workers=5,  # was 2",
        "train.py:31num_workers: 2 \u2192 5",
        "40 of every 100 GPU-hours, worth 100",
        "Share of the step waiting for data",
        "takes about 1.32 GiB (estimated)",
        "A step: 200 ms now, 44.4 ms after the plan.",
        "frees about 8 GiB (estimated)",
        "storage, not the workers, sets the pace."[1:],
        "Not measured in this run, which is not the same as zero: communication, synchronizing.",
        "Power could not be read: not supported on this device.",
        "Record with a CUDA build of torch.",
        "NVIDIA A100-SXM4-80GB",
        "ZeroDivisionError: division by zero",
        "Cost of training4 to 12% less",
        "1 of 6 rules could not be checked: 1 needs a GPU to train on.",
        "loss1,0004.5 ms4.5 s",
    ],
)
def test_page_contains_text(page, text):
    assert text in " ".join(page.text.split()) or text in page.text


@pytest.mark.parametrize(
    "text",
    [
        "Confirmed: 37% less step time measured (31 to 43%), 33 to 40% predicted.",
        "3 runs and 345 steps each way. The losses of the first epoch agree. GPU memory at the peak: 5 MiB more. "
        "Tried without non_blocking=True.",
        "Harmful here: 9% more step time measured (6 to 12%), 33 to 40% less predicted. A step takes longer.",
        "The losses of the first epoch differ.",
        "No verdict. The change was not made.",
        "Begin with this: use more DataLoader workers, for 31 to 43% less step time, as measured.",
        "What has been changed",
        "By rank In the backward pass and in communication, all ranks wait for the slowest one.",
        "rank 1 Waiting for data 43%",
    ],
)
def test_page_contains_trial_results(text):
    assert text in " ".join(Page(html.render(tried())).text.split())


def test_page_says_how_to_break_down_large_other_phase():
    much = tuple(replace(p, seconds=0.1, share=0.5) if p.name == "other" else p for p in golden().phases)

    line = "from profiler import region"
    assert line in Page(html.render(replace(golden(), phases=much))).text
    assert line not in Page(html.render(golden())).text


def test_step_time_including_evaluation_is_labeled_as_such():
    report = replace(golden(), before=0.25)

    assert forecast(report) in " ".join(Page(html.render(report)).text.split())


def test_unmeasured_memory_is_reported_and_has_no_controls():
    report = replace(golden(), memory={}, what_if=None, memory_missing="It was not sampled. Record on.")
    missing = Page(html.render(report))

    assert report.memory_missing in missing.text
    assert missing.count("form") == 0


def test_a_run_without_a_gpu_has_no_section_on_its_memory():
    cpu = html.render(replace(golden(), memory={}, what_if=None))

    assert 'id="memory"' not in cpu
    assert 'href="#memory"' not in cpu


def test_every_control_has_its_label(page):
    labeled = {attributes["for"] for tag, attributes in page.elements if tag == "label"}
    controls = {attributes["id"] for tag, attributes in page.elements if tag in ("input", "select")}

    assert labeled == controls
    assert len(controls) == 11


def test_every_headline_figure_is_in_glossary(page):
    described = [a["aria-describedby"] for tag, a in page.elements if a.get("class") == "term"]
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]

    assert "tile-6" in described
    assert set(described) <= set(ids)
    assert len(set(ids)) == len(ids)


def test_curves_are_listed_as_numbers_too(page):
    assert "GPU: utilization30%59%90%55%" in page.text


def test_an_empty_run_has_a_page_without_charts():
    page = Page(html.render(empty()))

    assert diagnosis(empty()) in page.text
    assert page.count("script") == 1


def test_report_without_any_data_has_a_page():
    report = Report(version="0", run=golden().run)

    assert diagnosis(report) in html.render(report)


def test_applied_change_is_named_by_title_of_its_rule():
    made = replace(tried().applied[0], rule="zero-1-2")

    text = " ".join(Page(html.render(replace(tried(), applied=(made,)))).text.split())
    (title,) = (row.rule.title for row in golden().checked if row.rule.id == made.rule)
    assert f"{title}: {WORDS[made.verdict]}" in text
    assert f"{made.rule}: {WORDS[made.verdict]}" not in text


def test_information_only_advice_is_marked():
    item = altered(golden().advice[0], severity=Severity.INFO)

    def is_said(report):
        return [about.get("data-information") for _, about in Page(html.render(report)).elements].count("only")

    assert is_said(replace(golden(), advice=(item,))) == 1
    assert is_said(golden()) == 0
