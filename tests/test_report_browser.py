"""The page in a real browser: it draws, it answers, it asks the network for nothing."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace

import pytest
from golden_report import empty, golden, hostile, tried

from advisor.render import html

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
PATIENCE = 20.0

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium and chromedriver are not installed"),
    # selenium's own sockets to the driver are closed by its garbage
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # as root, in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--window-size=1280,900",
)


@pytest.fixture(scope="module")
def browser():
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for option in OPTIONS:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Where each report lies as a file."""
    folder = tmp_path_factory.mktemp("pages")
    step_time = golden().charts[0]
    several = tuple(replace(step_time.curves[0], label=f"GPU {i}: used on the device") for i in range(6))
    crowded = replace(golden(), charts=(replace(step_time, curves=several), *golden().charts[1:]))
    reports = {
        "crowded": crowded,
        "golden": golden(),
        "tried": tried(),
        "empty": empty(),
        "hostile": hostile("<script>window.owned = 1</script>"),
    }
    for name, report in reports.items():
        (folder / f"{name}.html").write_text(html.render(report), encoding="utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in reports}


@pytest.fixture
def page(browser, pages):
    """The golden report, charts drawn, at desktop width."""
    return opened(browser, pages["golden"])


def opened(browser, address, *, width=1280, charts=True, scheme="light"):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    for log in ("browser", "performance"):
        browser.get_log(log)
    browser.get(address)
    if charts:
        until(lambda: browser.execute_script("return document.documentElement.dataset.charts === 'drawn'"))
    return browser


def until(true):
    """Wait for it; the assertion names what never came."""
    end = time.monotonic() + PATIENCE
    while not (found := true()) and time.monotonic() < end:
        time.sleep(0.05)
    assert found
    return found


def canvases(browser):
    """How many canvases hold a pixel that is not transparent, looking into every shadow root."""
    return browser.execute_script("""
        const found = [];
        const look = (root) => {
          for (const node of root.querySelectorAll("*")) {
            if (node.tagName === "CANVAS") found.push(node);
            if (node.shadowRoot) look(node.shadowRoot);
          }
        };
        look(document);
        return found.filter((c) => c.width && c.height
          && c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some((v) => v !== 0)).length;
    """)


def plot(browser, number):
    """The middle of a chart in the viewport, after scrolling there."""
    return browser.execute_script(
        """
        const view = Bokeh.index.roots[0].child_views[arguments[0]];
        view.el.scrollIntoView({ block: "center", behavior: "instant" });
        const box = view.canvas_view.el.getBoundingClientRect(), frame = view.frame.bbox;
        return [box.x + frame.x_center, box.y + frame.y_center, frame.width];
        """,
        number,
    )


def mouse(browser, kind, x, y, **more):
    browser.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **more})


def time_range(browser, number):
    return browser.execute_script(
        "const r = Bokeh.documents[0].roots()[0].children[arguments[0]].x_range; return [r.start, r.end]", number
    )


@pytest.mark.parametrize(("name", "charts"), [("golden", True), ("tried", True), ("empty", False), ("hostile", True)])
def test_the_console_stays_quiet_and_the_network_silent(browser, pages, name, charts):
    opened(browser, pages[name], charts=charts)

    assert [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    requests = [entry["message"] for entry in browser.get_log("performance") if "requestWillBeSent" in entry["message"]]
    assert requests
    assert [request for request in requests if '"url":"http' in request or '"url":"ws' in request] == []


def test_text_from_outside_runs_nothing(browser, pages):
    opened(browser, pages["hostile"])

    assert browser.execute_script("return window.owned") is None
    assert "<script>window.owned = 1</script>" in browser.find_element("css selector", "#data-more-workers").text


def test_the_policy_forbids_other_scripts_and_requests(page):
    page.execute_script(
        "window.refused = []; addEventListener('securitypolicyviolation', (e) => refused.push(e.violatedDirective))"
    )
    page.execute_script("""
        const script = document.createElement("script");
        script.textContent = "window.owned = 1";
        document.body.append(script);
        const image = new Image(); image.src = "https://example.invalid/x.png";
    """)

    until(lambda: len(page.execute_script("return refused")) == 2)
    assert {name.partition("-")[0] for name in page.execute_script("return refused")} == {"script", "img"}
    assert page.execute_script("return window.owned") is None


def test_every_chart_is_drawn(page):
    until(lambda: canvases(page) >= len(golden().charts))


def test_hovering_tells_the_value(page):
    x, y, _ = plot(page, 1)
    mouse(page, "mouseMoved", x - 30, y)
    mouse(page, "mouseMoved", x, y)

    told = until(
        lambda: page.execute_script("""
            const texts = [];
            const look = (root) => { for (const node of root.querySelectorAll("*")) {
              if (node.classList.contains("bk-Tooltip")) texts.push(node.shadowRoot.textContent);
              if (node.shadowRoot) look(node.shadowRoot); } };
            look(document);
            return texts.filter((text) => text.includes("utilization")).join(" ");
        """)
    )
    assert "%" in told


def test_dragging_zooms_all_charts_and_the_button_takes_it_back(page):
    x, y, width = plot(page, 0)
    whole = time_range(page, 3)
    mouse(page, "mousePressed", x - width / 4, y, button="left", clickCount=1)
    for step in range(1, 6):
        mouse(page, "mouseMoved", x - width / 4 + step * width / 20, y, button="left", buttons=1)
    mouse(page, "mouseReleased", x, y, button="left", clickCount=1)

    until(lambda: time_range(page, 3)[1] < whole[1])
    assert time_range(page, 0) == time_range(page, 3)
    page.find_element("css selector", "#charts-reset").click()
    until(lambda: time_range(page, 0) == whole)


def test_a_part_of_the_bar_and_its_row_light_up_together(page):
    page.execute_script("document.querySelector('#step').scrollIntoView({ behavior: 'instant' })")
    box = page.find_element("css selector", "#step .stacked .backward").rect
    top = page.execute_script("return scrollY")
    mouse(page, "mouseMoved", box["x"] + 20, box["y"] - top + 10)

    until(lambda: page.find_elements("css selector", "#step tr.lit"))
    assert "Backward" in page.find_element("css selector", "#step tr.lit").text


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
    assert copied == golden().advice[0].changes[0].code


def test_predicted_and_measured_are_drawn_on_one_scale(browser, pages):
    opened(browser, pages["tried"])

    def drawn(rule):
        """Left and right end of each band, and where zero is, in shares of the lane."""
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


@pytest.mark.parametrize("name", ["golden", "tried", "empty"])
@pytest.mark.parametrize("width", [390, 320])
def test_a_phone_scrolls_only_up_and_down(browser, pages, name, width):
    opened(browser, pages[name], width=width, charts=name != "empty")

    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [390, 320])
def test_legends_and_code_fit_on_a_phone(browser, pages, width):
    opened(browser, pages["crowded"], width=width)

    def beyond():
        return browser.execute_script("""
            const charts = Bokeh.index.roots[0].child_views, beyond = [];
            for (const chart of charts) {
              const legend = chart.model.above.find((part) => "ncols" in part);
              const box = chart.views.find_one(legend).bbox;
              if (box.right > chart.bbox.width) beyond.push(legend.items.map((one) => one.label.value));
            }
            for (const code of document.querySelectorAll(".code pre"))
              if (code.scrollWidth > code.clientWidth) beyond.push(code.textContent);
            return beyond;
        """)

    until(lambda: beyond() == [])


@pytest.mark.parametrize("width", [1280, 390])
def test_what_is_assumed_keeps_its_distance_from_the_first_card(browser, pages, width):
    opened(browser, pages["golden"], width=width)

    between = browser.execute_script("""
        const card = document.querySelector("#advice .card");
        return card.getBoundingClientRect().top - card.previousElementSibling.getBoundingClientRect().bottom;
    """)
    assert between >= 12


def test_on_a_phone_a_gain_is_not_broken_and_a_kernel_has_a_name(browser, pages):
    opened(browser, pages["golden"], width=390)

    heights, names = browser.execute_script("""
        const sizes = (selector) => [...document.querySelectorAll(selector)].map((one) => one.getBoundingClientRect());
        return [sizes("#advice .effects dd > b").map((one) => one.height), sizes("code.name").map((one) => one.width)];
    """)
    assert len(heights) == 3
    assert max(heights) < 30
    assert len(names) == 2
    assert min(names) >= 90


def test_a_drag_up_a_chart_scrolls_the_page_on_a_phone(browser, pages):
    opened(browser, pages["golden"], width=390)

    action = browser.execute_script("""
        const events = Bokeh.index.roots[0].child_views[0].canvas_view.events_el;
        return getComputedStyle(events).touchAction;
    """)
    assert action == "pan-y"


def test_the_page_and_its_charts_follow_the_colour_scheme(browser, pages):
    def colours(scheme):
        opened(browser, pages["golden"], scheme=scheme)
        return browser.execute_script("""
            return [getComputedStyle(document.body).backgroundColor,
                    Bokeh.documents[0].roots()[0].children[0].title.text_color]
        """)

    assert all(light != dark for light, dark in zip(colours("light"), colours("dark"), strict=True))


def test_paper_shows_what_is_folded_away(page):
    page.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert page.find_elements("css selector", "details:not([open])") == []

    page.execute_script("dispatchEvent(new Event('afterprint'))")
    assert page.find_elements("css selector", "details:not([open])")
