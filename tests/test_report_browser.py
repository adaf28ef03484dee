"""The page in a real browser: it draws, it responds, and it requests nothing from the network."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from importlib.metadata import distribution
from itertools import islice, product
from urllib.request import urlopen

import pytest
from browser import CHROMIUM, DRIVER, opened, until
from fleet_made import DAY, START, advised, result, row, write
from golden_report import empty, golden, hostile, tried
from profiles import RUN, metrics, rank, steps
from stack_places import NORMALIZE

from advisor.cli import main
from advisor.compare.comparison import compare
from advisor.models.anatomy import Anatomy, MemorySettings
from advisor.models.memory import States
from advisor.report.code import CallNode, Code
from advisor.report.render import html
from advisor.report.render.compare_view import sections
from advisor.report.render.section import Page
from advisor.report.timeline import Chart, Curve
from profiler.schema import HostSample, LoaderFact

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium and chromedriver are not installed"),
    # selenium's own sockets to the driver are closed only by garbage collection
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

MOST_STOPS = 200


def call(function, where, *calls, own=True, share=0.5):
    return CallNode(name=function, where=where, own=own, share=share, calls=calls)


DEEP = call("batch", "train.py:9", call("tanh", "torch", call("sum", "torch", own=False), own=False))
CODE = Code(
    samples=450,
    places=(NORMALIZE,),
    trees=(
        CallNode(
            name="other",
            share=0.7,
            calls=(call("main", "train.py:5", call("normalize", "train.py:7", call("mean", "train.py:8", DEEP))),),
        ),
        CallNode(
            name="forward",
            share=0.3,
            calls=(call("main", "train.py:6", call("Linear.forward", "torch", own=False)),),
        ),
    ),
)
CHARTLESS = ("empty", "unmeasured", "plan", "comparison")

PLAN = ("--params", "8.03B", "--gpus", "8", "--gpu", "L40S", "--layers", "32", "--hidden", "4096", "--heads", "32")
PLAN += ("--sequence", "4096", "--vocabulary", "128256", "--target-batch", "512", "--mtbf", "2h", "--save-cost", "20s")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Write each report to a file; return their addresses."""
    folder = tmp_path_factory.mktemp("pages")
    step_time = golden().charts[0]
    several = tuple(replace(step_time.curves[0], label=f"GPU {i}: used on the GPU") for i in range(6))
    crowded = replace(golden(), charts=(replace(step_time, curves=several), *golden().charts[1:]))
    reports = {
        "crowded": crowded,
        "golden": golden(),
        "tried": tried(),
        "empty": empty(),
        "unmeasured": replace(
            golden(), memory={}, what_if=None, charts=(), memory_missing="It was not sampled. Record for longer."
        ),
        "hostile": hostile("<script>window.owned = 1</script>"),
        "long": hostile("model.layers." * 25),
    }
    reports["code"] = replace(golden(), code=CODE)
    sources = {name: html.render(report) for name, report in reports.items()}
    sources["comparison"] = html.render_sections(sections(comparison()), PAGE)
    for name, source in sources.items():
        (folder / f"{name}.html").write_text(source, encoding="utf-8")
    assert main(["plan", *PLAN, "--out", str(folder / "plan.html")]) == 0
    return {name: (folder / f"{name}.html").as_uri() for name in (*sources, "plan")}


PAGE = Page(
    brand="profile-train compare", title="comparison", about="Two samples.", command="profile-train compare A B"
)


def comparison():
    """Compare a run with one whose steps are shorter, on fewer cores, with other settings."""

    def of(step, workers, cores):
        made = steps(*(step * (1 + 0.01 * (i % 3 - 1)) for i in range(90)), forward=0.04, data_wait=step - 0.05)
        host = tuple(HostSample(time=t, cpu=2.0, cpu_workers=0.5, machine_cpu=3.0) for t in (2.0, 5.0, 8.0))
        loaders = (LoaderFact(id=1, num_workers=workers),)
        return metrics(rank(steps=made, loaders=loaders), runs=(replace(RUN, cores=cores),), host_samples=host)

    return compare(of(0.2, 0, 8.0), of(0.1, 5, 4.0))


@pytest.fixture
def page(browser, pages):
    """Open the golden report, charts drawn, at desktop width."""
    return opened(browser, pages["golden"])


def canvases(browser):
    """Return how many canvases have a pixel that is not transparent."""
    return browser.execute_script("""
        return [...document.querySelectorAll("canvas")].filter((c) => c.width && c.height
          && c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some((v) => v !== 0)).length;
    """)


def plot(browser, number):
    """Return the middle of a chart in the viewport, after scrolling there."""
    return browser.execute_script(
        """
        const { over } = uPlot.sync("time").plots[arguments[0]];
        over.scrollIntoView({ block: "center", behavior: "instant" });
        const box = over.getBoundingClientRect();
        return [box.x + box.width / 2, box.y + box.height / 2, box.width];
        """,
        number,
    )


def mouse(browser, kind, x, y, **more):
    browser.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **more})


def time_range(browser, number):
    return browser.execute_script(
        "const { min, max } = uPlot.sync('time').plots[arguments[0]].scales.x; return [min, max]", number
    )


@pytest.mark.parametrize("name", ["golden", "tried", "empty", "hostile", "plan", "comparison"])
def test_page_logs_nothing_and_requests_nothing_from_the_network(browser, pages, name):
    opened(browser, pages[name], charts=name not in CHARTLESS)

    assert [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    requests = [entry["message"] for entry in browser.get_log("performance") if "requestWillBeSent" in entry["message"]]
    assert requests
    assert [request for request in requests if '"url":"http' in request or '"url":"ws' in request] == []


def test_hostile_text_runs_nothing(browser, pages):
    opened(browser, pages["hostile"])

    assert browser.execute_script("return window.owned") is None
    assert "<script>window.owned = 1</script>" in browser.find_element("css selector", "#data-more-workers").text


@pytest.mark.parametrize("name", ["golden", "plan", "comparison"])
def test_csp_blocks_other_scripts_and_requests(browser, pages, name):
    page = opened(browser, pages[name], charts=name not in CHARTLESS)
    page.execute_script(
        "window.refused = []; addEventListener('securitypolicyviolation', (e) => refused.push(e.violatedDirective))"
    )
    page.execute_script("""
        import("data:text/javascript,window.owned = 1").catch(() => {});
        const image = new Image(); image.src = "https://example.invalid/x.png";
    """)

    until(lambda: len(page.execute_script("return refused")) == 2)
    assert {name.partition("-")[0] for name in page.execute_script("return refused")} == {"script", "img"}
    assert page.execute_script("return window.owned") is None


@pytest.mark.parametrize(
    "attack",
    [
        "script.textContent = 'window.owned = 1'; document.body.append(script)",
        "script.append('window.owned = 1'); document.body.append(script)",
        "document.body.innerHTML = '<b onclick=0>'",
        "setTimeout('window.owned = 1')",
        "document.body.setAttribute('onclick', 'window.owned = 1')",
        "style.textContent = 'body { color: rgb(1, 2, 3) }'; document.body.append(style)",
    ],
)
def test_csp_blocks_injected_scripts_handlers_html_and_styles(page, attack):
    page.execute_script(f"""
        window.refused = 0;
        addEventListener("securitypolicyviolation", () => {{ refused += 1; }});
        const [script, style] = ["script", "style"].map((name) => document.createElement(name));
        try {{ {attack} }} catch {{ }}
    """)

    until(lambda: page.execute_script("return refused"))
    assert page.execute_script("return window.owned") is None
    assert page.execute_script("return getComputedStyle(document.body).color") != "rgb(1, 2, 3)"
    assert page.find_elements("css selector", "main")


def test_every_chart_is_drawn(page):
    until(lambda: canvases(page) >= len(golden().charts))


def test_hovering_shows_values_and_their_time(page):
    x, y, width = plot(page, 0)
    for place in (x + 30, x + 0.5):  # step 500 of 1,000
        mouse(page, "mouseMoved", place, y)

    until(lambda: "at 100.0 s" in page.find_element("css selector", ".reading").text)
    lines = page.find_element("css selector", ".reading").text.splitlines()
    step = f"{1e3 * golden().charts[0].curves[0].values[500]:.2f} ms"
    wait = f"{1e3 * golden().charts[0].curves[1].values[500]:.2f} ms"
    labels = [curve.label.lower() for curve in golden().charts[0].curves[:2]]
    assert [line.lower() for line in lines] == ["at 100.0 s", labels[0], step, labels[1], wait, "epoch start", "720 ms"]
    for place in (x - width / 3 + 30, x - width / 3):
        mouse(page, "mouseMoved", place, y)
    until(lambda: "epoch start" not in page.find_element("css selector", ".reading").text)
    mouse(page, "mouseMoved", 5, 5)
    until(lambda: not page.find_element("css selector", ".reading").is_displayed())


def test_hovering_over_a_gap_shows_nothing(page):
    x, y, width = plot(page, 1)

    def is_shown(share):
        mouse(page, "mouseMoved", x + (share - 0.5) * width, y)
        elsewhere = "return uPlot.sync('time').plots[0].cursor.left"
        until(lambda: page.execute_script(elsewhere) == pytest.approx(share * width, abs=1.5))
        return page.find_element("css selector", ".reading").is_displayed()

    assert is_shown(0.2)
    assert not is_shown(0.315)


def test_dragging_zooms_all_charts_and_the_button_resets_them(page):
    x, y, width = plot(page, 0)
    whole = time_range(page, 3)
    mouse(page, "mousePressed", x - width / 4, y, button="left", clickCount=1)
    for step in range(1, 6):
        mouse(page, "mouseMoved", x - width / 4 + step * width / 20, y, button="left", buttons=1)
    mouse(page, "mouseReleased", x, y, button="left", clickCount=1)

    until(lambda: time_range(page, 3)[1] < whole[1])
    assert time_range(page, 0) == time_range(page, 3)
    assert time_range(page, 0) == pytest.approx([whole[1] / 4, whole[1] / 2], abs=whole[1] / 200)
    page.find_element("css selector", "#charts-reset").click()
    until(lambda: time_range(page, 0) == whole)


def test_the_wheel_zooms_with_ctrl_held_down_and_scrolls_without(page):
    x, y, width = plot(page, 1)
    end = time_range(page, 1)[1]
    mouse(page, "mouseWheel", x + width / 4, y, deltaX=0, deltaY=-50, modifiers=2)

    until(lambda: time_range(page, 0)[1] < end)
    narrowed, (low, high) = 2**-0.5, time_range(page, 0)
    assert high - low == pytest.approx(end * narrowed)
    assert low == pytest.approx(0.75 * end * (1 - narrowed), abs=end / 200)
    top = page.execute_script("return scrollY")
    mouse(page, "mouseWheel", x, y, deltaX=0, deltaY=40)
    until(lambda: page.execute_script("return scrollY") > top)
    assert time_range(page, 0) == [low, high]


def test_hovering_a_bar_segment_highlights_its_row(page):
    page.execute_script("document.querySelector('#step').scrollIntoView({ behavior: 'instant' })")
    box = page.find_element("css selector", "#step .stacked .backward").rect
    top = page.execute_script("return scrollY")
    mouse(page, "mouseMoved", box["x"] + 20, box["y"] - top + 10)

    until(lambda: page.find_elements("css selector", "#step tr.lit"))
    assert "Backward" in page.find_element("css selector", "#step tr.lit").text


def test_parts_of_a_bar_are_as_wide_as_their_shares(page):
    widths = page.execute_script("""
        const bar = document.querySelector("#step .stacked");
        return Object.fromEntries([...bar.children].map((part) => [
          part.dataset.part, part.getBoundingClientRect().width / bar.getBoundingClientRect().width]));
    """)

    assert widths == pytest.approx({phase.name: phase.share for phase in golden().phases if phase.share}, abs=0.006)


def test_the_copy_button_copies_the_code(page):
    origin = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    page.execute_cdp_cmd("Browser.grantPermissions", origin)
    button = page.find_element("css selector", "#data-more-workers button.copy")
    page.execute_script("arguments[0].scrollIntoView({ block: 'center', behavior: 'instant' })", button)

    button.click()

    until(lambda: button.text in ("Copied", "Selected"))
    copied = page.execute_async_script(
        "const done = arguments[0]; navigator.clipboard.readText().then(done, () => done(String(getSelection())))"
    )
    assert copied == golden().advice[0].finding.advice.changes[0].code


def test_metrics_can_be_searched_and_unmeasured_ones_are_separate(page):
    page.execute_script("document.querySelector('#metrics').closest('details').open = true")
    field = page.find_element("css selector", "#metric-search")

    field.send_keys("GPU util")
    shown = [row for row in page.find_elements("css selector", "#metrics tbody tr") if row.is_displayed()]

    assert ["gpu_utilization" in row.text for row in shown] == [True]
    assert "exposed_comm_fraction" not in page.find_element("css selector", "#metrics").get_attribute("textContent")
    assert "exposed_comm_fraction" in page.find_element("css selector", "dl.unmeasured").get_attribute("textContent")


def test_operators_are_sorted_searched_and_filtered(page):
    def names():
        rows = page.find_elements("css selector", "#operators-table tbody tr")
        return [row.find_element("css selector", "code").text for row in rows if row.is_displayed()]

    buttons = {each.text: each for each in page.find_elements("css selector", "#operators-table thead button")}
    page.execute_script("document.querySelector('#operators-search').scrollIntoView({ behavior: 'instant' })")
    buttons["Calls"].click()
    buttons["Calls"].click()
    assert names() == ["my::operator", "(rest)", "aten::addmm", "aten::native_layer_norm"]
    buttons["Roofline"].click()
    assert names()[2:] == ["my::operator", "(rest)"]  # rows without a value come last
    page.find_element("css selector", "#operators-search").send_keys("layer 8192x4096")
    assert sorted(names()) == ["aten::addmm", "aten::native_layer_norm"]
    page.find_element("css selector", ".operator-tools select[data-column='kind']").send_keys("matmul")
    assert names() == ["aten::addmm"]


def test_calls_can_be_searched_and_filtered_to_own_code(browser, pages):
    from selenium.webdriver.common.keys import Keys

    def shown():
        items = browser.find_elements("css selector", "#code .calls code")
        return [item.text for item in items if item.is_displayed()]

    opened(browser, pages["code"])
    search = browser.find_element("css selector", "#code-search")
    browser.execute_script("arguments[0].scrollIntoView({ behavior: 'instant' })", search)
    assert shown() == ["main", "normalize", "mean", "batch"], "deep calls are closed at first"
    search.send_keys("train normalize")
    assert shown() == ["main", "normalize", "mean", "batch", "tanh", "sum"], "with its callers and what it calls"
    search.clear()
    search.send_keys("linear")
    assert shown() == ["main", "Linear.forward"]
    search.clear()
    search.send_keys(" ")
    kind = browser.find_element("css selector", "#code-kind")
    kind.send_keys("own")
    assert shown() == ["main", "normalize", "mean", "batch", "main"]
    kind.send_keys(Keys.HOME)
    assert shown() == ["main", "normalize", "mean", "batch"], "as it was"


def test_without_scripts_all_calls_are_listed_and_search_is_hidden(pages):
    with urlopen(pages["code"]) as file:
        page = file.read().decode()
    assert re.search(r'class="code-tools" hidden', page)
    assert page.count('<span class="meter"') == 8


def test_predicted_and_measured_are_drawn_on_one_scale(browser, pages):
    opened(browser, pages["tried"])

    def drawn(rule):
        """Return the left and right end of each band, and the position of zero, as shares of the lane."""
        return browser.execute_script(
            """
            return [...document.querySelectorAll(`#${arguments[0]} .two-bands .gain-bar`)].map((lane) => {
              const box = lane.getBoundingClientRect(), band = lane.querySelector(".band").getBoundingClientRect();
              const zero = lane.querySelector(".zero").getBoundingClientRect();
              return [band.left, band.right, zero.left].map((x) => (x - box.left) / box.width);
            });
            """,
            rule,
        )

    (predicted, measured), (promised, harmful) = drawn("data-more-workers"), drawn("precision-bf16")
    assert predicted == pytest.approx([0.33, 0.4, 0], abs=0.01)
    assert measured == pytest.approx([0.31, 0.43, 0], abs=0.01)
    assert harmful[1] < harmful[2] == promised[2] < promised[0]
    assert drawn("optimizer-fused") == []


@pytest.mark.parametrize("name", ["golden", "tried", "empty", "long", "plan", "comparison"])
@pytest.mark.parametrize("width", [390, 320])
def test_page_does_not_scroll_sideways_on_a_phone(browser, pages, name, width):
    opened(browser, pages[name], width=width, charts=name not in CHARTLESS)

    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [390, 320])
def test_legends_and_code_fit_on_a_phone(browser, pages, width):
    opened(browser, pages["crowded"], width=width)

    beyond = browser.execute_script("""
        const beyond = [];
        for (const chart of document.querySelectorAll(".chart"))
          for (const part of chart.querySelectorAll("h3, .names button, canvas"))
            if (part.getBoundingClientRect().right > chart.getBoundingClientRect().right) beyond.push(part.outerHTML);
        for (const code of document.querySelectorAll(".code pre"))
          if (code.scrollWidth > code.clientWidth) beyond.push(code.textContent);
        return beyond;
    """)
    assert beyond == []
    assert len(browser.find_elements("css selector", ".names button")) == 9


@pytest.mark.parametrize("width", [1280, 390])
def test_assumptions_are_spaced_from_the_first_card(browser, pages, width):
    opened(browser, pages["golden"], width=width)

    between = browser.execute_script("""
        const card = document.querySelector("#advice .card");
        return card.getBoundingClientRect().top - card.previousElementSibling.getBoundingClientRect().bottom;
    """)
    assert between >= 12


def test_gains_and_kernel_names_fit_on_a_phone(browser, pages):
    opened(browser, pages["golden"], width=390)

    heights, names = browser.execute_script("""
        const sizes = (selector) => [...document.querySelectorAll(selector)].map((one) => one.getBoundingClientRect());
        const gains = sizes("#advice .effects dd > b");
        return [gains.map((one) => one.height), sizes("#operations code.name").map((one) => one.width)];
    """)
    assert len(heights) == 3
    assert max(heights) < 30
    assert len(names) == 2
    assert min(names) >= 90


def test_vertical_drag_on_a_chart_scrolls_the_page_on_a_phone(browser, pages):
    opened(browser, pages["golden"], width=390)

    assert browser.execute_script("return getComputedStyle(uPlot.sync('time').plots[0].over).touchAction") == "pan-y"


def test_horizontal_swipe_on_a_chart_zooms_on_a_phone(browser, pages):
    opened(browser, pages["golden"], width=390)
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    try:
        x, y, width = plot(browser, 1)
        end = time_range(browser, 1)[1]

        def touch(kind, *places):
            points = [{"x": place, "y": y} for place in places]
            browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

        touch("touchStart", x)
        for step in range(1, 11):
            touch("touchMove", x + step * width / 40)
        touch("touchEnd")
        until(lambda: time_range(browser, 3)[1] < end)
        assert time_range(browser, 0) == pytest.approx([end / 2, end * 3 / 4], abs=end / 20)
        assert not browser.find_element("css selector", ".reading").is_displayed()
        touch("touchStart", x)
        touch("touchEnd")
        until(lambda: browser.find_element("css selector", ".reading").is_displayed())
        y += 150  # below the chart
        touch("touchStart", 5)
        touch("touchEnd")
        until(lambda: not browser.find_element("css selector", ".reading").is_displayed())
    finally:
        browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})


def test_the_page_and_its_charts_follow_the_color_scheme(browser, pages):
    def colors():
        styles = "return [document.body, document.querySelector('.chart h3')].map((one) => getComputedStyle(one))"
        page, title = browser.execute_script(f"{styles}.map((one) => [one.backgroundColor, one.color])")
        return [page[0], title[1], darkest(browser)]

    opened(browser, pages["golden"], scheme="light")
    light = colors()
    scheme = {"media": "", "features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme)
    until(lambda: all(one != other for one, other in zip(light, colors(), strict=True)))
    dark = colors()
    opened(browser, pages["golden"], scheme="dark")
    assert colors() == dark
    assert light[2] < 128 < dark[2]


def darkest(browser):
    """Return the red value, of 255, of the darkest text next to the first chart."""
    return browser.execute_script("""
        const { ctx } = uPlot.sync("time").plots[0];
        const { data } = ctx.getImageData(0, 0, 60, ctx.canvas.height);
        return Math.min(...[...data.keys()].filter((i) => i % 4 === 0 && data[i + 3] === 255).map((i) => data[i]));
    """)


def test_collapsed_sections_are_not_printed(browser, pages):
    opened(browser, pages["golden"], media="print")
    heights = "return [...document.querySelectorAll('details')].map((one) => [one.open, one.offsetHeight > 0])"
    assert all(is_open == is_seen for is_open, is_seen in browser.execute_script(heights))

    opened(browser, pages["golden"])
    assert all(is_seen for _, is_seen in browser.execute_script(heights))


def test_printed_content_is_not_cut_and_cards_fit_on_a_page(browser, pages):
    opened(browser, pages["tried"], media="print", scheme="dark", width=PAPER[0])

    cards, charts, ends, paper = browser.execute_script("""
        dispatchEvent(new Event("beforeprint"));
        const box = (one) => one.getBoundingClientRect();
        return [[...document.querySelectorAll(".card, .charts, #what-if")].map((one) => box(one).height),
                [...document.querySelectorAll("#charts > *, #charts canvas")].map((one) => box(one).right),
                document.documentElement.scrollWidth,
                getComputedStyle(document.body).backgroundColor];
    """)
    assert max(cards) <= PAPER[1]
    assert max(charts) <= PAPER[0]
    assert ends <= PAPER[0]
    assert paper == "rgb(255, 255, 255)"
    assert darkest(browser) < 128
    assert browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"]


PAPER = (703, 958)
"""A4's width and Letter's height without margins, in pixels."""


def test_only_scrollable_areas_are_tab_stops(browser, pages):
    def stops(width):
        opened(browser, pages["golden"], width=width)
        return browser.execute_script("""
            return [...document.querySelectorAll(".scroll")].filter((one) => one.checkVisibility())
              .map((one) => [one.scrollWidth > one.clientWidth, one.tabIndex === 0])
        """)

    assert all(scrolls is stop for width in (1280, 320) for scrolls, stop in stops(width))
    assert [scrolls for scrolls, _ in stops(320) if scrolls]


@pytest.mark.parametrize("name", ["tried", "plan", "comparison"])
def test_tab_order_is_top_to_bottom_with_visible_focus(browser, pages, name):
    opened(browser, pages[name], charts=name not in CHARTLESS)

    def stop():
        press(browser, "Tab")
        return browser.execute_script("""
            const one = document.activeElement, style = getComputedStyle(one);
            if (one === document.body) return null;
            const seen = one.checkVisibility() && style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
            return [[...document.querySelectorAll("*")].indexOf(one), seen ? "" : one.outerHTML];
        """)

    stops = list(islice(iter(stop, None), MOST_STOPS))
    for kind in ("mousePressed", "mouseReleased"):  # back from the browser's own controls
        mouse(browser, kind, 5, 5, button="left", clickCount=1)
    places = [place for place, _ in stops]
    assert places == sorted(set(places))
    assert [unseen for _, unseen in stops if unseen] == []
    links = browser.execute_script("return document.querySelectorAll('a[href], button.copy, input, select').length")
    assert len(stops) >= links > 2


def test_term_is_explained_on_hover_and_on_focus(page):
    term = page.find_element("css selector", "#tile-3").find_element("xpath", "preceding-sibling::button")

    def is_shown():
        return page.execute_script("return document.querySelector('div.meaning').checkVisibility()")

    page.execute_script("arguments[0].focus()", term)
    assert is_shown()
    about = page.find_element("css selector", f"[id='{term.get_attribute('aria-describedby')}']")
    assert page.find_element("css selector", "div.meaning").text == about.get_attribute("textContent").strip() != ""
    press(page, "Escape")
    assert not is_shown()
    box = page.execute_script("const b = arguments[0].getBoundingClientRect(); return [b.x, b.y]", term)
    mouse(page, "mouseMoved", box[0] + 5, box[1] + 5)
    until(is_shown)
    mouse(page, "mouseMoved", 5, 5)
    until(lambda: not is_shown())


def test_charts_can_be_zoomed_and_moved_by_keyboard(page):
    def pressed(move):
        page.execute_script("document.querySelector(`[data-move=${arguments[0]}]`).focus()", move)
        press(page, "Enter")
        return time_range(page, 3)

    start, end = time_range(page, 0)
    assert pressed("closer") == pytest.approx([start + (end - start) / 4, end - (end - start) / 4])
    assert pressed("later")[1] == pytest.approx(end)
    assert pressed("earlier")[1] < end
    assert pressed("wider") == pytest.approx([start, end])


def test_hiding_a_curve_by_keyboard_rescales_the_others(page):
    def state():
        return page.execute_script("""
            const { series, scales } = uPlot.sync("time").plots[0];
            return [series[1].show, document.querySelector(".names button").ariaPressed, scales.y.max];
        """)

    def pressed(number):
        page.execute_script("document.querySelectorAll('.names button')[arguments[0]].focus()", number)
        press(page, "Enter")
        return state()

    before = state()
    pressed(2)
    assert pressed(0)[:2] == [False, "false"]
    assert state()[2] == pytest.approx(1.06e3 * max(golden().charts[0].curves[1].values), rel=1e-3)
    pressed(2)
    assert pressed(0) == before


def test_lines_break_only_where_a_value_is_missing(browser, tmp_path):
    """Checks pixels: the columns that contain any of a curve's color."""
    broken = Curve(label="a", times=(0.0, 10.0, 20.0, 25.0, 30.0), values=(1.0, 1.0, None, 1.0, 1.0))
    whole = Curve(label="b", times=tuple(i + 0.5 for i in range(30)), values=(2.0,) * 30)
    lone = Curve(label="c", times=(0.0, 12.25, 30.0), values=(None, 3.0, None))
    chart = Chart(title="t", unit="cores", curves=(broken, whole, lone))
    (tmp_path / "page.html").write_text(html.render(replace(golden(), charts=(chart,))), encoding="utf-8")
    opened(browser, (tmp_path / "page.html").as_uri())

    columns = browser.execute_script("""
        const u = uPlot.sync("time").plots[0], { left, top, width, height } = u.bbox;
        const { data } = u.ctx.getImageData(left, top, width, height);
        return ["#3b82c4", "#d9822b", "#2a9d78"].map((color) => {
          const wanted = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
          const near = (i) => data[i + 3] > 60 && wanted.every((part, k) => Math.abs(part - data[i + k]) < 24);
          const found = [...Array(width).keys()].filter(
            (x) => [...Array(height).keys()].some((y) => near(4 * (y * width + x))));
          return found.map((x) => 30 * x / width);
        });
    """)

    a, b, c = ([[x for x in found if low <= x < low + 10] for low in (0, 10, 20)] for found in columns)
    assert [a[0][0], a[0][-1], a[2][0], a[2][-1]] == pytest.approx([0, 10, 25, 30], abs=0.1)
    assert [b[0][0], b[2][-1]] == pytest.approx([0.5, 29.5], abs=0.1)
    assert [len(a[1]) <= 5, len(b[1]), len(c[0]) + len(c[2])] == [True, pytest.approx(len(a[0]), abs=5), 0]
    assert [c[1][0], c[1][-1]] == pytest.approx([12.25, 12.25], abs=0.2)


def press(browser, key):
    for kind in ("rawKeyDown", "char", "keyUp"):
        text = {"text": "\r"} if key == "Enter" and kind == "char" else {}
        code = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowRight": 39, "ArrowDown": 40, "End": 35}[key]
        if kind != "char" or text:
            browser.execute_cdp_cmd(
                "Input.dispatchKeyEvent", {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, **text}
            )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["tried", "empty", "unmeasured", "plan", "comparison"])
def test_axe_finds_nothing_serious(browser, pages, name, scheme):
    """Covers what `axe-core` calls serious or critical, with everything unfolded."""
    opened(browser, pages[name], charts=name not in CHARTLESS, scheme=scheme)
    axe = distribution("axe-playwright-python").locate_file("axe_playwright_python/axe.min.js")
    browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    browser.execute_script(axe.read_text(encoding="utf-8"))

    found = browser.execute_async_script("axe.run({ resultTypes: ['violations'] }).then(arguments[0])")

    assert [
        (one["id"], [node["html"] for node in one["nodes"]])
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ] == []
    assert found["passes"]


RUNS = (
    golden().what_if.anatomy,
    Anatomy(
        now=MemorySettings(batch=3, stage=3, ranks=8, moments="momentum"),
        capacity=24e9,
        states=States(7.1e9, 7.1e9, 7.1e9),
        unit=3.3e8,
        activations=11.7e9,
        rest=0.9e9,
        blocks=7,
    ),
    Anatomy(
        now=MemorySettings(batch=1), capacity=8e9, states=States(1e9, 0.0, 0.0), activations=0.0, rest=0.0, blocks=6
    ),
)


@pytest.mark.parametrize("run", RUNS)
def test_memory_computed_in_the_page_matches_the_models(page, run):
    known = (None,) if run.now.moments is None else ("adamw", "adamw8bit", "lion", "momentum", "sgd")
    grid = product((1, 3, 64, 257), (0, 1, 2, 3), (1, 2, 8), (None, 1, 2, 6), known, (False, True))
    settings = [
        MemorySettings(batch=batch, stage=stage, ranks=ranks, every=every, moments=moments, autocast=autocast)
        for batch, stage, ranks, every, moments, autocast in grid
    ]

    computed = page.execute_script(
        """
        const [run, settings] = arguments;
        return settings.map((set) => [memoryModel.parts(run, set), memoryModel.largest(run, set)]);
        """,
        run.as_data(),
        [asdict(setting) for setting in settings],
    )

    for setting, (parts, largest) in zip(settings, computed, strict=True):
        assert parts == pytest.approx(asdict(run.parts(setting)), rel=1e-12), setting
        assert largest == run.largest(setting), setting


def numbers(text):
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


def test_memory_what_if_can_be_used_by_keyboard(page):
    def answer():
        return page.find_element("css selector", "#what-if-answer").text

    def is_over():
        return "over" in page.find_element("css selector", "#what-if-answer").get_attribute("class").split()

    def then(part):
        return page.find_element("css selector", f"#what-if tr[data-part={part}] .then").text

    assert numbers(answer()) == [28.6, 79.1, 50.5, 195]
    assert not is_over()
    assert page.find_element("css selector", "#what-if-answer").get_attribute("aria-live") == "polite"
    page.execute_script("document.getElementById('what-if-batch').focus()")
    press(page, "ArrowRight")
    assert page.find_element("css selector", "#what-if-samples").text == "65"
    assert then("activations") == "21.8 GiB"
    press(page, "End")
    assert numbers(answer())[:3] == [93.1, 79.1, 14]
    assert is_over()
    assert page.find_elements("css selector", "#what-if-bar .end")
    page.execute_script("document.getElementById('what-if-every').focus()")
    press(page, "ArrowDown")
    assert then("activations") == "8.64 GiB"
    assert not is_over()
    page.execute_script("document.querySelector('#what-if-reset').focus()")
    press(page, "Enter")
    until(lambda: numbers(answer())[0] == 28.6)


def test_sharding_on_one_rank_changes_nothing(page):
    def choose(name, value):
        page.execute_script(
            """
            const control = document.getElementById(arguments[0]);
            control.value = arguments[1];
            control.dispatchEvent(new Event("input", { bubbles: true }));
            """,
            f"what-if-{name}",
            value,
        )
        return page.find_element("css selector", "#what-if-answer").text

    plain, alone = choose("stage", "0"), choose("stage", "2")
    assert numbers(alone) == numbers(plain)
    assert len(alone) > len(plain), "that it changes nothing is said"
    assert numbers(choose("ranks", "8"))[:2] == [24.9, 79.1]
    assert page.find_element("css selector", "#what-if tr[data-part=optim] .then").text == "358 MiB"


@pytest.fixture(scope="module")
def fleet_page(tmp_path_factory):
    """Return the page of eight runs of two users, on four hosts."""
    pytest.importorskip("duckdb", reason="needs the extra `fleet`")
    folder = tmp_path_factory.mktemp("fleet")
    for number in range(8):
        run = row(number, user=("ann", "bob")[number % 2], host=f"node{number // 2}", started_at=START + DAY * number)
        advice = [advised("data-workers-zero", 0.3, title="Load data in workers")]
        write(folder / f"runs/{number}", run, result(advice=advice))
    assert main(["fleet", str(folder / "runs"), "--data", str(folder / "data"), "--gpu-price", "2"]) == 0
    return (folder / "data/fleet.html").as_uri()


@pytest.mark.parametrize("width", [1280, 390])
def test_fleet_page_can_be_filtered_and_searched(browser, fleet_page, width):
    page = opened(browser, fleet_page, width=width, charts=False)
    until(lambda: page.execute_script("return document.documentElement.dataset.fleet === 'ready'"))

    def rows(table):
        return page.execute_script(
            "return [...document.querySelectorAll(`#by-${arguments[0]} tbody tr`)].filter((row) => !row.hidden)"
            ".map((row) => [...row.cells].map((cell) => cell.textContent))",
            table,
        )

    def choose(selector, value):
        page.execute_script(
            "const one = document.querySelector(arguments[0]); one.value = arguments[1];"
            "one.dispatchEvent(new Event('input', { bubbles: true }))",
            selector,
            value,
        )

    before = rows("user")
    choose("select[data-column=project]", "")  # drawn by the script, it reads as in the file
    assert rows("user") == before
    assert [row[0] for row in before] == ["ann", "bob"]
    choose("select[data-column=user]", "bob")
    assert [row[:3] for row in rows("user")] == [["bob", "4", "32"]]
    assert len(rows("host")) == 4
    choose("#fleet-search", "node2")
    assert [row[0] for row in rows("host")] == ["node2"]
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    assert [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"] == []
