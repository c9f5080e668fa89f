"""The page in a real browser: Chromium, on the PATH or named by AFFECT_XP_CHROMIUM, with Playwright.

If AFFECT_XP_SCREENSHOTS names a folder, screenshots of the page are saved there.
"""

import csv
import datetime
import io
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
FEATURES = ["east", "a feature with a very long name that does not fit into its column"]
SCRIPT_ID = "<img src=x onerror=\"document.title='broken'\">"
STEPS = 30


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        # Root in a container cannot use the sandbox; the page is our own.
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def fitted():
    """Three blobs: the second splits at step 10, the third joins the first at step 20, some leave at 23."""
    rng = np.random.default_rng(0)
    centres = np.array([[-5.0, -5], [1, -5], [-2, 0], [4, 1]])
    model = ax.Affect(ax.KMeans("silhouette", max_clusters=6), proximity="dot", random_state=0)
    who, steps = np.arange(60), []
    for t in range(STEPS):
        blob = who // 20
        blob = np.where((t >= 10) & (blob == 1) & (who % 2 == 0), 3, blob)
        blob = np.where((t >= 20) & (blob == 2), 0, blob)
        there = who[(t <= 22) | (who % 7 > 0)]
        ids = [SCRIPT_ID if i == 3 else f"object {i}" for i in there]
        day = datetime.datetime(2024, 1, 1) + datetime.timedelta(days=7 * t)
        steps.append((centres[blob] + rng.normal(0, 1, (60, 2)))[there])
        model.partial_fit(steps[-1], ids, time=day)
    return model, steps


@pytest.fixture
def model(fitted):
    return fitted[0]


@pytest.fixture
def opened(browser):
    """Open a page and return it; fail at the end if there were errors or network requests."""
    contexts, complaints = [], []

    def open_page(path, screen="light", address=""):
        context = browser.new_context(**SCREENS[screen])
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request", lambda asked: None if asked.url.startswith("file:") else complaints.append(asked.url)
        )
        page.goto(Path(path).as_uri() + address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def report(fitted, tmp_path):
    model, steps = fitted
    return write_report(model, tmp_path / "report.html", steps=steps, feature_names=FEATURES)


def title(page):
    return page.locator("#detail-title").inner_text()


def members(page, scope="#clusters"):
    """Return the listed members of each card."""
    return {
        head.split("\n")[0]: set(ids)
        for head, ids in page.eval_on_selector_all(
            f"{scope} .card",
            "cards => cards.map(c => [c.querySelector('h3').innerText,"
            " [...c.querySelectorAll(':scope > ul.ids:last-child .id')].map(l => l.textContent)])",
        )
    }


def of_record(record):
    expected: dict[str, set] = {}
    for name, label in zip(record.ids, record.labels.tolist(), strict=True):
        expected.setdefault(f"Cluster {label}", set()).add(name)
    return expected


@pytest.mark.parametrize("screen", SCREENS)
def test_all_is_drawn_and_fits_the_screen(opened, report, screen):
    page = opened(report, screen, "#step=11&cluster=1&id=object%2021")
    assert page.locator("#summary li").count() == 5
    assert page.locator("#alpha path.alpha").count() == 1
    assert page.locator("#quality path.kept, #quality path.cohesion").count() == 2
    assert page.locator("#sizes path.size").count() == 4
    assert page.locator("#clusters .card").count() == 4
    pixels = "c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer"
    assert page.locator("#flow canvas").evaluate(f"c => new Set(new Uint32Array({pixels})).size") > 5
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 23, 26)"
    assert dark == (SCREENS[screen]["color_scheme"] == "dark")
    if folder := os.environ.get("AFFECT_XP_SCREENSHOTS"):
        page.screenshot(path=Path(folder, f"report-{screen}.png"), full_page=True)


@pytest.mark.parametrize("screen", SCREENS)
def test_nothing_reaches_out_of_its_card(opened, report, screen):
    page = opened(report, screen, "#step=11&cluster=1")
    outside = page.evaluate(
        """() => [...document.querySelectorAll(".card, #summary li, section")].flatMap((card) => {
          const box = card.getBoundingClientRect();
          return [...card.querySelectorAll("*")].filter((node) => {
            const { left, right, width } = node.getBoundingClientRect();
            const within = left >= box.left - 1 && right <= box.right + 1;
            return width > 0 && !within && !node.closest(".scroll, svg");
          }).map((node) => node.outerHTML.slice(0, 80));
        })"""
    )
    assert outside == []


def test_the_selected_step_is_marked_within_the_axes(opened, tmp_path):
    records = [Record(t, 2, 2, 0.5, (0.5,), np.array([0, 1]), tuple("ab")) for t in range(3)]
    page = opened(write_report(History(tuple(records)), tmp_path / "few.html"))
    for step in (1, 2, 3):
        page.locator("#step").fill(str(step - 1))
        for chart in ("#alpha", "#quality", "#sizes"):
            band = page.locator(f"{chart} .chosen").bounding_box()
            card = page.locator(chart).bounding_box()
            assert card["x"] <= band["x"] and band["x"] + band["width"] <= card["x"] + card["width"]


def test_the_step_selector(opened, report, model):
    page = opened(report)
    slider = page.locator("#step")
    assert title(page) == "Step 30 of 30: 2024-07-22"
    assert page.locator("#next").is_disabled()
    page.locator("#previous").click()
    assert title(page) == "Step 29 of 30: 2024-07-15"
    slider.fill("10")
    assert title(page) == "Step 11 of 30: 2024-03-11"
    assert page.locator("#chosen").inner_text() == "2024-03-11"
    text = page.locator("#step-events").inner_text()
    for event in model.history_[10].events:
        assert (str(event) in text) == (event.kind != "continuation")
    assert members(page) == of_record(model.history_[10])
    page.wait_for_function("() => location.hash === '#step=11'")
    slider.focus()
    page.keyboard.press("Home")
    assert title(page) == "Step 1 of 30: 2024-01-01"


def test_addresses_select_and_back_returns(opened, report):
    page = opened(report, address="#step=6&cluster=2&id=object%2025")
    assert title(page) == "Step 6 of 30: 2024-02-05"
    assert page.locator(".card.wide h3").inner_text().startswith("Cluster 2")
    assert page.locator("#followed .id").inner_text() == "object 25"
    page.locator("#next").click()
    page.locator("#clusters button", has_text="Cluster 0").click()
    assert page.evaluate("location.hash") == "#step=7&cluster=0&id=object%2025"
    page.go_back()
    assert page.locator(".card.wide h3").inner_text().startswith("Cluster 2")
    page.go_back()
    assert title(page) == "Step 6 of 30: 2024-02-05"
    page.go_forward()
    assert title(page) == "Step 7 of 30: 2024-02-12"
    page.evaluate("location.hash = '#step=2'")
    page.wait_for_function("() => document.querySelector('#detail-title').innerText.startsWith('Step 2 of')")
    assert page.locator("#followed").is_hidden()


def test_pictures_choose_steps_too(opened, report):
    page = opened(report)
    page.locator("#events button", has_text="2024-05-20").first.click()
    assert title(page) == "Step 21 of 30: 2024-05-20"
    page.locator("#alpha .hit").click(position={"x": 9, "y": 60})
    assert title(page) == "Step 1 of 30: 2024-01-01"
    page.locator("#members canvas").click(position={"x": 2, "y": 20})
    assert page.locator("#followed .id").count() == 1
    box = page.locator("#flow canvas").bounding_box()
    page.locator("#flow canvas").click(position={"x": box["width"] - 14, "y": 30})
    assert title(page) == "Step 30 of 30: 2024-07-22"
    assert page.locator(".card.wide").count() == 1


def test_movers_come_first_and_all_can_be_reached(opened, report, model):
    pytest.importorskip("pandas")
    page = opened(report, address="#step=11")
    moves = model.history_.moves_to_frame()
    moves = moves[moves["time"] == model.history_[10].time]
    assert len(moves) == 10
    assert page.locator("#moved-title").inner_text() == "10 objects moved"
    assert set(page.locator("#moves .id").all_inner_texts()) == set(moves["id"])
    card = page.locator(".card", has=page.locator("h3", has_text=f"Cluster {moves['to'].iloc[0]}"))
    assert card.locator("li.new").count() == 10
    page.locator("#moves button").first.click()
    assert page.locator("#followed .stays li").count() == 2
    assert "changed its cluster once" in page.locator("#followed").inner_text()


def test_every_one_of_many_movers_can_be_shown(opened, tmp_path):
    ids = tuple(f"number {i}" for i in range(700))
    labels = [np.arange(700) % 2, 1 - np.arange(700) % 2]
    records = [Record(t, 700, 2, 0.5, (0.5,), found, ids) for t, found in enumerate(labels)]
    page = opened(write_report(History(tuple(records)), tmp_path / "moves.html"))
    assert page.locator("#moved-title").inner_text() == "700 objects moved"
    for shown in (24, 524):
        assert page.locator("#moves .id").count() == shown
        page.locator("#moves .more button").click()
    assert set(page.locator("#moves .id").all_inner_texts()) == set(ids)
    assert page.locator("#moves .more").count() == 0


def test_every_one_of_many_clusters_can_be_shown(opened, tmp_path):
    many = Record(0, 100, 70, 0.0, (0.0,), np.arange(100) % 70, tuple(range(100)))
    path = write_report(History((many,)), tmp_path / "many.html")
    page = opened(path, address="#step=1&cluster=69")
    assert page.locator("#clusters .card").count() == 24
    assert page.locator(".card").first.inner_text().startswith("Cluster 69")  # the selected one
    page.locator("#clusters > .more button").click()
    assert page.locator("#clusters .card").count() == 70


def test_probabilities_of_moves_are_shown(opened, tmp_path):
    before = Record(0, 4, 2, 0.0, (0.0,), np.array([0, 0, 1, 1]), tuple("abcd"))
    moved = np.array([0.6, 0.4, 0.9, 0.8])
    now = Record(1, 4, 2, 0.5, (0.5,), np.array([1, 1, 0, 1]), tuple("abcd"), moved=moved)
    page = opened(write_report(History((before, now)), tmp_path / "moves.html"))
    assert page.locator("#moves .id").all_inner_texts() == list("cdab")
    assert page.locator("#moves .unsure .id").all_inner_texts() == ["b"]
    assert page.locator("#moved-title").inner_text() == "3 objects changed clusters, 3 probably moved"


def test_a_step_without_alpha_leaves_a_gap(opened, tmp_path):
    alphas = [0.0, 0.5, np.nan, 0.25, 0.75]
    records = [Record(t, 2, 2, a, (a,), np.array([0, 1]), tuple("ab")) for t, a in enumerate(alphas)]
    page = opened(write_report(History(tuple(records)), tmp_path / "gap.html"), address="#step=3")
    assert page.locator("#alpha path.alpha").get_attribute("d").count("M") == 2
    assert "0.500\nmean α" in page.locator("#summary").inner_text()  # of those that are known
    assert "α" not in page.locator("#step-events").inner_text()


def test_search_and_follow_by_keyboard(opened, report, model):
    page = opened(report)
    page.locator("#search").fill("JECT 2")
    assert page.locator("#results .id").count() == 11  # 2, 20 ... 29
    page.locator("#search").fill("object 25")
    page.keyboard.press("Enter")
    assert page.locator("#followed .id").inner_text() == "object 25"
    assert page.locator("#row-cursor").is_visible()
    expected = [
        dict(zip(record.ids, record.labels.tolist(), strict=True))["object 25"] for record in model.history_
    ]
    stays = page.locator("#followed .stays li").all_inner_texts()
    changes = [t for t in range(1, STEPS) if expected[t] != expected[t - 1]]
    assert len(stays) == len(changes) + 1
    page.locator("#followed .stays button").first.click()
    assert title(page) == "Step 1 of 30: 2024-01-01"
    page.locator("#unfollow").click()
    assert page.locator("#followed").is_hidden()
    page.locator("#search").fill("nobody")
    assert page.locator("#results").inner_text() == "No object has such an id."


def test_the_focus_stays_on_what_is_selected(opened, report, model):
    page = opened(report)
    for name in (f"Cluster {model.labels_[0]}", "object 40"):
        page.locator("#clusters button", has_text=name).first.focus()
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.innerText") == name
        assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "false"


def test_the_flow_is_zoomed_by_keys_buttons_wheel_and_drag(opened, report):
    page = opened(report)
    flow = page.locator("#flow canvas")

    def view():
        page.evaluate("new Promise(requestAnimationFrame)")
        return tuple(map(int, flow.get_attribute("data-view").split("-")))

    assert view() == (1, 30)
    page.locator("#zoom-in").click()
    narrow = view()
    assert narrow[0] > 1 and narrow[1] == 30  # around the last step
    page.locator("#zoom-all").click()
    assert view() == (1, 30) and page.locator("#zoom-out").is_disabled()
    flow.focus()
    page.keyboard.press("+")
    page.keyboard.press("+")
    assert view()[0] > narrow[0]
    page.keyboard.press("0")
    assert view() == (1, 30)
    flow.hover(position={"x": 14, "y": 100})
    page.mouse.wheel(0, -100)
    page.wait_for_function("() => document.querySelector('#flow canvas').dataset.view !== '1-30'")
    start, end = view()
    assert start == 1 and end < 30  # around the pointer
    before = view()
    page.mouse.down()
    page.mouse.move(-300 + flow.bounding_box()["x"], flow.bounding_box()["y"] + 100, steps=4)
    page.mouse.up()
    assert view()[0] > before[0]
    page.keyboard.press("ArrowLeft")
    assert title(page).startswith("Step 29")
    page.keyboard.press("ArrowDown")
    assert page.locator(".card.wide").count() == 1
    page.keyboard.press("Escape")
    assert page.locator(".card.wide").count() == 0
    page.keyboard.press("0")
    page.keyboard.press("+")
    page.evaluate("location.hash = '#step=1'")
    page.wait_for_function("() => document.querySelector('#flow canvas').dataset.view.startsWith('1-')")


def test_the_page_scrolls_over_the_flow(opened, report):
    page = opened(report)
    page.locator("#flow canvas").hover()
    at = page.evaluate("scrollY")
    page.mouse.wheel(0, 200)
    page.wait_for_function(f"() => scrollY > {at}")
    assert page.locator("#flow canvas").get_attribute("data-view") == "1-30"


def test_touch(opened, report):
    page = opened(report, "phone")
    flow = page.locator("#flow canvas")
    flow.scroll_into_view_if_needed()
    box = flow.bounding_box()
    page.touchscreen.tap(box["x"] + 14, box["y"] + 30)
    assert title(page) == "Step 1 of 30: 2024-01-01"
    assert page.locator(".card.wide").count() == 1
    session = page.context.new_cdp_session(page)

    def touch(kind, *xs):
        points = [{"x": box["x"] + x, "y": box["y"] + 100, "id": i} for i, x in enumerate(xs)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 60, 120)
    for i in range(1, 6):
        touch("touchMove", 60 - 8 * i, 120 + 20 * i)
    touch("touchEnd")
    page.wait_for_function("() => document.querySelector('#flow canvas').dataset.view !== '1-30'")
    page.locator("#moves button, #clusters .ids button").first.tap()
    assert page.locator("#followed").is_visible()


def test_clusters_are_explained_by_their_features(opened, report):
    page = opened(report, address="#step=11&cluster=1")
    profile = page.locator(".card.wide .profile")
    assert profile.locator(".id").count() == 2
    assert set(profile.locator(".id").all_text_contents()) == set(FEATURES)
    assert profile.locator("svg .mean").count() == 2
    assert "silhouette" in page.locator("#step-events").inner_text()


def test_graphs_are_explained_by_density_and_central_members(opened, tmp_path):
    W = np.kron(np.eye(2), np.ones((5, 5))) + 0.1 - 1.1 * np.eye(10)
    model = ax.Affect(ax.Spectral(2), random_state=0).fit([W] * 3, ids=[f"node {i}" for i in range(10)])
    page = opened(write_report(model, tmp_path / "graph.html", steps=[W] * 3), address="#step=2&cluster=0")
    card = page.locator(".card.wide")
    assert "mean weight 1.1 inside, 0.1 outside" in card.inner_text()
    assert "Most central members" in card.inner_text()
    assert "modularity" in page.locator("#measure").inner_text()


def test_without_steps_the_page_says_how_to_get_more(opened, model, tmp_path):
    page = opened(write_report(model, tmp_path / "report.html"), address="#step=3&cluster=0")
    assert page.locator("#no-measure").is_visible() and page.locator("#measure-key").is_hidden()
    assert page.locator("#quality path.kept").count() == 1
    assert page.locator("#quality path.cohesion").count() == 0
    assert page.locator(".card.wide .profile").count() == 0


def test_tables_can_be_downloaded(opened, report, model):
    page = opened(report)
    tables = {}
    for button in page.locator("#downloads button").all():
        with page.expect_download() as download:
            button.click()
        text = Path(download.value.path()).read_text(encoding="utf-8")
        tables[download.value.suggested_filename] = list(csv.DictReader(io.StringIO(text, newline="")))
    assert list(tables) == ["labels.csv", "alpha.csv", "events.csv"]
    times = [f"{record.time:%Y-%m-%d}" for record in model.history_]
    expected = {
        (time, name, str(label))
        for time, record in zip(times, model.history_, strict=True)
        for name, label in zip(record.ids, record.labels.tolist(), strict=True)
    }
    assert {tuple(row.values()) for row in tables["labels.csv"]} == expected
    assert [row["time"] for row in tables["alpha.csv"]] == times
    alphas = [float(row["alpha"] or 0) for row in tables["alpha.csv"]]
    np.testing.assert_allclose(alphas, model.history_.alpha, atol=1e-5)
    events = [str(e) for record in model.history_[1:] for e in record.events if e.kind != "continuation"]
    assert [row["text"] for row in tables["events.csv"]] == events


def test_tooltips(opened, report):
    page = opened(report)
    tip = page.locator("#tip")
    assert not tip.is_visible()
    page.locator("#flow canvas").hover(position={"x": 14, "y": 20})
    assert "2024-01-01\ncluster 0: 20 objects" in tip.inner_text()
    page.locator("#flow canvas").hover(position={"x": 31, "y": 20})
    assert "2024-01-01 → 2024-01-08\n20 objects: stayed in cluster 0" in tip.inner_text()
    page.locator("#alpha .hit").hover(position={"x": 9, "y": 60})
    assert tip.inner_text() == "2024-01-01\nno past yet"
    page.locator("#members canvas").hover(position={"x": 3, "y": 3})
    assert "2024-01-01\ncluster 0" in tip.inner_text()
    page.locator("h1").hover()
    assert not tip.is_visible()


def test_events_can_be_filtered(opened, report):
    page = opened(report)
    assert page.locator("#events td:nth-child(2)", has_text="birth").count() == 0  # of the first step
    shrinks = page.locator("#events td:nth-child(2)", has_text="shrink")
    assert shrinks.count() == 2
    page.locator("#kinds button", has_text="shrink").click()
    assert shrinks.count() == 0
    page.locator("#kinds button", has_text="shrink").click()
    assert shrinks.count() == 2


def test_rows_have_names_while_they_fit(opened, report, tmp_path):
    page = opened(report)
    assert page.locator("#row-names li").count() == 60
    names, picture = (page.locator(where).bounding_box() for where in ("#row-names", "#members canvas"))
    assert names["height"] == picture["height"]
    page.locator("#row-names li").nth(3).click()
    assert page.locator("#followed .id").inner_text() == page.locator("#row-names li").nth(3).inner_text()
    many = Record(0, 100, 1, 0.0, (0.0,), np.zeros(100, dtype=int), tuple(range(100)))
    assert opened(write_report(History((many,)), tmp_path / "many.html")).locator("#row-names").is_hidden()


def test_ids_stay_text(opened, report):
    page = opened(report)
    assert page.locator("#clusters .id", has_text=SCRIPT_ID).count() == 1
    page.locator("#clusters button", has_text=SCRIPT_ID).click()
    assert page.locator("#followed .id").inner_text() == SCRIPT_ID
    page.reload()
    assert page.locator("#followed .id").inner_text() == SCRIPT_ID
    assert page.locator("img").count() == 0
    assert page.title() == "Clusters over time"


def test_a_narrower_window_is_drawn_again(opened, report):
    page = opened(report)
    wide = page.locator("#flow canvas").evaluate("canvas => canvas.width")
    page.set_viewport_size({"width": 400, "height": 800})
    page.wait_for_function(f"() => document.querySelector('#flow canvas').width < {wide}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(("n", "k", "n_steps"), [(2000, 20, 50), (3000, 100, 100)])
def test_a_large_run_makes_a_small_page(opened, tmp_path, n, k, n_steps):
    rng, labels, records = np.random.default_rng(0), np.arange(n) % k, []
    ids = tuple(f"object {i}" for i in range(n))
    for t in range(n_steps):
        labels = np.where(rng.random(n) < 0.03, rng.integers(0, k, n), labels)
        records.append(Record(t, n, k, 0.5, (0.5,), labels, ids))
    path = write_report(History(tuple(records)), tmp_path / "large.html")
    assert path.stat().st_size < 1_200_000
    # The flow is a canvas, and lists show their first entries. `bench/report_page.py` measures the time.
    assert opened(path).locator("*").count() < 5000


def test_large_and_empty_runs(opened, tmp_path):
    rng = np.random.default_rng(0)
    labels = [rng.integers(0, 60, 5000) for _ in range(200)]
    records = [
        Record(t, 5000, 60, 0.5, (0.5,), found, tuple(f"number {i}" for i in range(5000)))
        for t, found in enumerate(labels)
    ]
    page = opened(write_report(History(tuple(records)), tmp_path / "large.html"))
    assert "2,000 of 5,000 objects" in page.locator("#notes").inner_text()
    assert page.locator("#clusters .card").count() == 24
    assert "of those listed moved" in page.locator("#moved-title").inner_text()
    page = opened(write_report(History(tuple(records[:1])), tmp_path / "one.html"))
    assert page.locator("#summary").inner_text().split("\n")[:2] == ["1", "step"]
    assert title(page) == "Step 1 of 1: t = 0"
    page = opened(write_report(History(), tmp_path / "empty.html"))
    assert page.locator("main").inner_text() == "This run has no steps."
