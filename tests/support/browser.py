"""A real headless Chromium, and a report opened in it."""

from __future__ import annotations

import shutil
import time

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
PATIENCE = 100.0

OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # needed as root in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--window-size=1280,900",
)


def started():
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for option in OPTIONS:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))


def opened(browser, address, *, width=1280, charts=True, scheme="light", media=""):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"media": media, "features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    for log in ("browser", "performance"):
        browser.get_log(log)
    browser.get(address)
    if charts:
        until(lambda: browser.execute_script("return document.documentElement.dataset.charts === 'drawn'"))
    return browser


def until(true):
    """Wait until `true` returns a true value; return that value. The assertion shows the last one."""
    end = time.monotonic() + PATIENCE
    while not (found := true()) and time.monotonic() < end:
        time.sleep(0.05)
    assert found
    return found
