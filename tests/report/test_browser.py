"""The page in a real browser: Chromium, found on the PATH or named by AFFECT_XP_CHROMIUM, by Playwright.

With AFFECT_XP_SCREENSHOTS, pictures of the page are left in that folder to be looked at.
"""

import datetime
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import affect_xp as ax
from affect_xp.report import write_report
from affect_xp.tracking.history import History, Record

playwright = pytest.importorskip("playwright.sync_api", reason="the page is tried with Playwright")
CHROMIUM = os.environ.get("AFFECT_XP_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")

SCREENS = {
    "light": {"viewport": {"width": 1100, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1100, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark", "has_touch": True},
}
SCRIPT_ID = "<img src=x onerror=\"document.title='broken'\">"
STEPS = 30


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        # Without a sandbox, as root in a container must: the page is our own.
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def model():
    """Three blobs: the second splits at step 10, the third joins the first at step 20, some leave at 23."""
    rng = np.random.default_rng(0)
    centres = np.array([[-5.0, -5], [1, -5], [-2, 0], [4, 1]])
    model = ax.Affect(ax.KMeans("silhouette", max_clusters=6), proximity="dot", random_state=0)
    who = np.arange(60)
    for t in range(STEPS):
        blob = who // 20
        blob = np.where((t >= 10) & (blob == 1) & (who % 2 == 0), 3, blob)
        blob = np.where((t >= 20) & (blob == 2), 0, blob)
        there = who[(t <= 22) | (who % 7 > 0)]
        ids = [SCRIPT_ID if i == 3 else f"object {i}" for i in there]
        day = datetime.datetime(2024, 1, 1) + datetime.timedelta(days=7 * t)
        model.partial_fit((centres[blob] + rng.normal(0, 1, (60, 2)))[there], ids, time=day)
    return model


@pytest.fixture
def opened(browser):
    """Open a page and return it; at the end nothing may have been complained about or asked of a network."""
    contexts, complaints = [], []

    def open_page(path, screen="light"):
        context = browser.new_context(**SCREENS[screen])
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request", lambda asked: None if asked.url.startswith("file:") else complaints.append(asked.url)
        )
        page.goto(Path(path).as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def report(model, tmp_path):
    return write_report(model, tmp_path / "report.html")


@pytest.mark.parametrize("screen", SCREENS)
def test_all_is_drawn_and_fits_the_screen(opened, report, screen):
    page = opened(report, screen)
    assert page.locator("#summary li").count() == 5
    assert page.locator("#alpha path.alpha").count() == 1
    assert page.locator("#flow .bar").count() > 3
    assert page.locator("#flow .ribbon").count() > 3
    assert page.locator("#clusters .card").count() == 3
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 23, 26)"
    assert dark == (SCREENS[screen]["color_scheme"] == "dark")
    if folder := os.environ.get("AFFECT_XP_SCREENSHOTS"):
        page.screenshot(path=Path(folder, f"report-{screen}.png"), full_page=True)


def test_the_step_selector(opened, report, model):
    page = opened(report)
    title, slider = page.locator("#detail-title"), page.locator("#step")
    assert title.inner_text() == "Step 30 of 30: 2024-07-22"
    assert page.locator("#next").is_disabled()
    page.locator("#previous").click()
    assert title.inner_text() == "Step 29 of 30: 2024-07-15"
    slider.fill("10")
    assert title.inner_text() == "Step 11 of 30: 2024-03-11"
    assert page.locator("#chosen").inner_text() == "2024-03-11"
    told = page.locator("#step-events").inner_text()
    for event in model.history_[10].events:
        assert (str(event) in told) == (event.kind != "continuation")
    members = {
        head.split("\n")[0]: set(ids)
        for head, ids in page.eval_on_selector_all(
            ".card",
            "cards => cards.map(c => [c.querySelector('h3').innerText,"
            " [...c.querySelectorAll('.ids li')].map(l => l.textContent)])",
        )
    }
    record = model.history_[10]
    expected: dict[str, set] = {}
    for name, label in zip(record.ids, record.labels.tolist(), strict=True):
        expected.setdefault(f"Cluster {label}", set()).add(name)
    assert members == expected
    slider.focus()
    page.keyboard.press("Home")
    assert title.inner_text() == "Step 1 of 30: 2024-01-01"


def test_pictures_choose_steps_too(opened, report):
    page = opened(report)
    title = page.locator("#detail-title")
    page.locator("#events button", has_text="2024-05-20").first.click()
    assert title.inner_text() == "Step 21 of 30: 2024-05-20"
    page.locator("#alpha .hit").click(position={"x": 9, "y": 60})
    assert title.inner_text() == "Step 1 of 30: 2024-01-01"
    page.locator("#members canvas").click(position={"x": 2, "y": 20})
    assert title.inner_text() == "Step 1 of 30: 2024-01-01"
    page.locator("#flow .bar").last.click()
    assert title.inner_text() != "Step 1 of 30: 2024-01-01"


def test_tooltips(opened, report):
    page = opened(report)
    tip = page.locator("#tip")
    assert not tip.is_visible()
    page.locator("#flow .bar").first.hover()
    assert "cluster 0: 20 objects" in tip.inner_text()
    page.locator("#alpha .hit").hover(position={"x": 9, "y": 60})
    assert tip.inner_text() == "2024-01-01\nno past yet"
    page.locator("#members canvas").hover(position={"x": 3, "y": 3})
    assert "2024-01-01\ncluster 0" in tip.inner_text()
    page.locator("h1").hover()
    assert not tip.is_visible()


def test_events_can_be_filtered(opened, report):
    page = opened(report)
    births = page.locator("#events td:nth-child(2)", has_text="birth")
    assert births.count() == 3
    page.locator("#kinds button", has_text="birth").click()
    assert births.count() == 0
    page.locator("#kinds button", has_text="birth").click()
    assert births.count() == 3


def test_ids_stay_text(opened, report):
    page = opened(report)
    assert page.locator(".ids li", has_text=SCRIPT_ID).count() == 1
    assert page.locator("img").count() == 0
    assert page.title() == "Clusters over time"


def test_a_narrower_window_is_drawn_anew(opened, report):
    page = opened(report)
    wide = page.locator("#flow .bar").count()
    page.set_viewport_size({"width": 400, "height": 800})
    page.wait_for_function(f"document.querySelectorAll('#flow .bar').length < {wide}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_large_and_empty_runs(opened, tmp_path):
    rng = np.random.default_rng(0)
    labels = [rng.integers(0, 60, 5000) for _ in range(200)]
    records = [
        Record(t, 5000, 60, 0.5, (0.5,), found, tuple(f"number {i}" for i in range(5000)))
        for t, found in enumerate(labels)
    ]
    page = opened(write_report(History(tuple(records)), tmp_path / "large.html"))
    assert "2,000 of 5,000 objects" in page.locator("#notes").inner_text()
    assert page.locator("#clusters .card").count() == 60
    page = opened(write_report(History(tuple(records[:1])), tmp_path / "one.html"))
    assert page.locator("#detail-title").inner_text() == "Step 1 of 1: 0"
    page = opened(write_report(History(), tmp_path / "empty.html"))
    assert page.locator("main").inner_text() == "This run has no steps."
