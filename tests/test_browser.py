"""The report in a real browser: headless Chromium draws it, clicks it, and measures it."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cvxmdp as cm
from chromium import Chromium, find_chromium
from cvxmdp.reports.html_page import write_report
from cvxmdp.runs.record import RunRecord, record_of

LOUD = "THE BROWSER TESTS DID NOT RUN: there is no Chromium here. Install it (apt-get install chromium)."
WIDTHS = (380, 1400)
EVIL = "<img src=x onerror=\"throw Error('in')\"></script><script>throw Error('in')</script>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    if find_chromium() is None:
        warnings.warn(pytest.PytestWarning(LOUD), stacklevel=1)
        pytest.skip(LOUD)
    running = Chromium(tmp_path_factory.mktemp("profile"))
    yield running
    running.close()


def learned(solution: cm.Solution, seed: int, momentum: float) -> RunRecord:
    """A run with a history as a sampling solver would leave it, made from numbers that are known."""
    random = np.random.default_rng([seed, int(10 * momentum)])
    uniform = cm.occupancy_of(solution.problem.mdp, cm.uniform_policy(solution.problem.mdp))
    share = np.linspace(0.0, 1.0, 11)
    history = {
        "iteration": np.arange(0, 1001, 100),
        "objective": share / (1 + momentum) + 0.01 * random.normal(size=11),
        "episode_objective": np.linspace(0, 1, 1000) + random.normal(size=1000),
        "slack": {"hazard": np.linspace(-1, 0.1, 11), "near expert": np.linspace(-2, 1, 11)},
        "episode_slack": {"hazard": random.normal(size=1000), "near expert": np.ones(1000)},
        "multipliers": {"hazard": np.linspace(0, 3, 1000), "near expert": np.zeros(1000)},
        "weight_max": np.exp(random.normal(size=1000)),
        "snapshot_iteration": np.arange(0, 1001, 100),
        "snapshot_occupancy": np.stack(
            [(1 - part) * uniform + part * solution.occupancy for part in share]
        ),
    }
    certificate = cm.certify(solution.problem, solution)
    record = record_of(
        replace(solution, history=history), title="Learned", seed=seed, certificate=certificate
    )
    return replace(record, settings={"solver": "VRPDPG", "momentum": str(momentum)})


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages of every kind, by name."""
    mdp = cm.gridworld(5, slip=0.1, discount=0.9, hazards=[7, 12], walls=[3], rewards={24: 1.0})
    expert = cm.TabularPolicy(np.tile([0.05, 0.45, 0.45, 0.05], (25, 1)))
    problem = cm.Problem(
        mdp,
        maximize=cm.linear("reward"),
        subject_to={
            "hazard": cm.linear("hazard", per="step") <= 0.02,
            "near expert": cm.distance(expert, norm="l2") <= 2.0,
        },
    )
    solution = cm.solve(problem)
    runs = [learned(solution, seed, momentum) for momentum in (0.1, 1.0) for seed in (0, 1, 2)]
    exact = record_of(
        solution,
        title="Exact",
        solver=cm.ConvexProgram(),
        certificate=cm.certify(problem, solution),
        frontier=cm.frontier(problem, "hazard", n=4),
        rerun="cvxmdp solve problem.toml",
    )
    infeasible = problem.with_budget("hazard", -1.0)
    nothing = cm.solve(infeasible)
    wide = cm.Problem(cm.gridworld(20, hazards=[25, 210], goal=399), maximize=cm.linear("reward"))
    garnet = cm.Problem(cm.garnet(30, 3, 2, seed=0), minimize=cm.linear("cost"))
    hostile = replace(
        runs[0],
        title=EVIL,
        label=EVIL,
        constraints=tuple(replace(facts, name=EVIL) for facts in exact.constraints),
        settings={EVIL: EVIL},
        environment={EVIL: EVIL},
    )
    records = {
        "one": runs[:1],
        "many": runs,
        "exact": [exact],
        "infeasible": [
            record_of(nothing, title="None", certificate=cm.certify(infeasible, nothing))
        ],
        "garnet": [record_of(cm.solve(garnet), title="Garnet")],
        "large": [record_of(cm.solve(wide), title="Large")],
        "hostile": [hostile],
        "mixed": [*runs, exact],
    }
    folder = tmp_path_factory.mktemp("pages")
    return {name: write_report(of, folder / f"{name}.html") for name, of in records.items()}


def data_of(page: Path) -> dict:
    (text,) = re.findall(r'type="application/json">(.*?)</script>', page.read_text())
    return json.loads(text)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_page_is_drawn_without_a_word_in_the_console(browser, pages, width, dark):
    for name, page in pages.items():
        browser.open(page, width, dark=dark)
        assert browser.evaluate("document.documentElement.dataset.drawn") == "yes", name
        assert browser.problems == [], name
        broken = browser.evaluate(
            "[...document.querySelectorAll('svg *')].filter(e => [...e.attributes]"
            ".some(a => /NaN|Infinity|undefined/.test(a.value))).length"
        )
        assert broken == 0, name


def test_the_console_is_really_listened_to(browser, tmp_path):
    (tmp_path / "bad.html").write_text(
        "<script>console.error('heard')</script><script>throw Error('also heard')</script>"
        "<img src='http://example.com/x.png'>"
    )
    browser.open(tmp_path / "bad.html")
    said = " ".join(browser.problems)
    assert "heard" in said
    assert "also heard" in said
    assert "asked the network for http://example.com/x.png" in said


@pytest.mark.parametrize("width", WIDTHS)
def test_readable(browser, pages, width):
    for name, page in pages.items():
        browser.open(page, width)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width, name
        # every text is at least 9 pixels high as drawn, whatever its SVG is scaled by
        small = browser.evaluate(
            "[...document.querySelectorAll('svg text, p, td, th, button, h1, h2, h3, span, b')]"
            ".filter(e => e.textContent.trim() && e.getBoundingClientRect().height > 0)"
            ".filter(e => e.getBoundingClientRect().height < 9).map(e => e.textContent)"
        )
        assert small == [], name
        outside = browser.evaluate(
            "[...document.querySelectorAll('svg')].flatMap(svg => { const box = svg.getBoundingClientRect();"
            " return [...svg.querySelectorAll('text')].filter(t => { const b = t.getBoundingClientRect();"
            " return b.left < -1 || b.right > innerWidth + 1; }).map(t => t.textContent); })"
        )
        assert outside == [], name
        cut = browser.evaluate(  # what is wider than its frame, and would have to be scrolled to be read
            "[...document.querySelectorAll('.scroll, pre, p, td, .tile, .card')]"
            ".filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent.slice(0, 60))"
        )
        assert width > 400 or cut == [], name
    browser.open(pages["many"], width)
    buttons = browser.evaluate(
        "[...document.querySelectorAll('button')].map(e => e.getBoundingClientRect().height)"
    )
    assert min(buttons) >= 30  # a finger's width


CONTRAST = """(() => {
  const rgb = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const weights = [0.2126, 0.7152, 0.0722];
  const light = (c) => c.reduce((sum, v, k) => sum + weights[k] * linear(v / 255), 0);
  const back = (e) => {
    for (; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor;
      if (!/, 0\\)$|transparent/.test(c)) return rgb(c);
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll('p, td, th, h1, h2, h3, .tile b, .tile span')].map((e) => {
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(back(e))].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  });
})()"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_contrast(browser, pages, dark):
    browser.open(pages["exact"], dark=dark)
    assert min(browser.evaluate(CONTRAST)) >= 4.5


def curves(browser: Chromium, chart: int = 0) -> int:
    """Distinct curves drawn in a chart."""
    return browser.evaluate(
        f"new Set([...document.querySelectorAll('.chart')][{chart}].querySelectorAll('polyline.curve')"
        ".values().map(e => e.getAttribute('stroke') + e.getAttribute('stroke-dasharray'))).size"
    )


def test_curves_and_bands_are_drawn_where_the_numbers_are(browser, pages):
    browser.open(pages["many"])
    data = data_of(pages["many"])
    assert browser.evaluate("document.querySelectorAll('.chart').length") == len(data["panels"])
    for number, panel in enumerate(data["panels"]):
        assert curves(browser, number) == len(panel["curves"])
    assert browser.evaluate("document.querySelectorAll('.chart polygon.band').length") > 0
    # the exact curve rises, so it does on the screen (y points down)
    points = browser.evaluate("document.querySelector('polyline.curve').getAttribute('points')")
    at = np.array([pair.split(",") for pair in points.split()], dtype=float)
    values = np.array(data["panels"][0]["curves"][0]["y"])
    assert np.corrcoef(at[:, 1], values)[0, 1] < -0.999
    assert (np.diff(at[:, 0]) > 0).all()


def test_toggles_of_curves(browser, pages):
    browser.open(pages["one"])
    before = curves(browser)
    assert before == 2
    browser.click(".chart .toggle")
    assert curves(browser) == 1
    pressed = "document.querySelector('.chart .toggle').getAttribute('aria-pressed')"
    assert browser.evaluate(pressed) == "false"
    browser.click(".chart .toggle")
    assert curves(browser) == before
    assert browser.evaluate(pressed) == "true"
    assert browser.problems == []


def test_toggles_of_groups_and_kinds(browser, pages):
    browser.open(pages["many"])
    names = browser.evaluate(
        "[...document.querySelector('.chart').querySelectorAll('.toggle')].map(e => e.textContent)"
    )
    assert names == [
        "momentum=0.1 (3 runs)",
        "momentum=1.0 (3 runs)",
        "exact, of the policy",
        "seen in episodes",
    ]

    def toggle(k: int) -> None:
        browser.evaluate(
            f"document.querySelector('.chart').querySelectorAll('.toggle')[{k}].click()"
        )

    assert curves(browser) == 4
    toggle(0)
    assert curves(browser) == 2
    toggle(3)
    assert curves(browser) == 1
    toggle(1)  # everything is hidden, which is not an error
    assert browser.evaluate("document.querySelector('.chart svg').textContent") == "nothing to draw"
    for k in (0, 1, 3):
        toggle(k)
    assert curves(browser) == 4
    assert browser.problems == []


def test_log_axes(browser, pages):
    browser.open(pages["one"])
    labels = (
        "[...document.querySelector('.chart svg').querySelectorAll('text')].map(e => e.textContent)"
    )
    plain = browser.evaluate(labels)
    browser.click(".chart .logX")
    logarithmic = browser.evaluate(labels)
    assert plain != logarithmic
    assert {"10", "100", "1000"} <= set(logarithmic)
    browser.click(".chart .logY")
    assert browser.evaluate(labels) != logarithmic
    assert (
        browser.evaluate("document.querySelector('.chart .logY').getAttribute('aria-pressed')")
        == "true"
    )
    browser.click(".chart .logX")
    browser.click(".chart .logY")
    assert browser.evaluate(labels) == plain
    assert browser.problems == []


def test_hover_tells_the_numbers(browser, pages):
    browser.open(pages["one"])
    assert browser.evaluate("document.getElementById('tip').hidden") is True
    browser.hover(".chart rect.hover")
    assert browser.evaluate("document.getElementById('tip').hidden") is False
    said = browser.evaluate("document.getElementById('tip').innerText")
    curve = data_of(pages["one"])["panels"][0]["curves"][0]
    assert "iteration 500" in said
    middle = curve["y"][curve["x"].index(500)]
    shown = re.search(r"exact, of the policy: (\S+)", said)
    assert shown is not None
    assert float(shown.group(1)) == pytest.approx(middle, rel=1e-4)
    browser.hover("h1")
    assert browser.evaluate("document.getElementById('tip').hidden") is True


def fills(browser: Chromium, number: int = 0) -> list[str]:
    return browser.evaluate(
        f"[...document.querySelectorAll('.map')[{number}].querySelectorAll('.cell')]"
        ".map(e => e.getAttribute('fill'))"
    )


def test_the_heat_map_shows_the_occupancy_and_the_arrows_the_policy(browser, pages):
    browser.open(pages["exact"])
    shown, share = fills(browser), data_of(pages["exact"])["maps"][0]["final"]["share"]
    assert len(shown) == 25
    assert shown[3] == "var(--wall)"
    light = [
        sum(map(int, re.findall(r"\d+", fill))) if fill.startswith("rgb") else -1 for fill in shown
    ]
    assert np.argmax(light) == np.argmax(share)
    assert len(set(shown)) > 10
    arrows = browser.evaluate(
        "document.querySelectorAll('.map')[0].querySelectorAll('.arrow').length"
    )
    assert arrows >= 20
    titles = browser.evaluate("[...document.querySelectorAll('.map h3')].map(e => e.textContent)")
    assert titles == [
        "Where the final policy spends its time",
        "The expert of “near expert”",
    ]
    assert fills(browser, 1) != shown
    marks = browser.evaluate(
        "[...document.querySelector('.map').querySelectorAll('.mark')].map(e => e.textContent)"
    )
    assert sorted(marks) == ["!", "!", "S"]
    browser.hover(".map .cell")
    assert "row 0, column 0" in browser.evaluate("document.getElementById('tip').innerText")


def test_the_slider_goes_through_the_iterations(browser, pages):
    browser.open(pages["one"])
    label = "document.querySelector('.iteration').textContent"
    assert browser.evaluate(label) == "the policy that is returned"
    last = fills(browser)
    browser.press("input[type=range]", "Home", 36)
    assert browser.evaluate(label) == "iteration 0"
    first = fills(browser)
    assert first != last
    browser.press("input[type=range]", "ArrowRight", 39)
    assert browser.evaluate(label) == "iteration 100"
    assert fills(browser) not in (first, last)
    browser.press("input[type=range]", "End", 35)
    assert fills(browser) == last
    browser.click(".play")
    browser.evaluate(
        "new Promise(done => { const wait = () => /iteration [1-9]/.test("
        + label
        + ") ? done() : setTimeout(wait, 20); wait(); })"
    )
    browser.click(".play")
    assert browser.evaluate("document.querySelector('.play').textContent") == "Play"
    assert browser.problems == []


def test_another_run_can_be_chosen(browser, pages):
    browser.open(pages["mixed"])
    assert browser.evaluate("document.querySelectorAll('#which option').length") == 3
    assert browser.evaluate("document.querySelectorAll('input[type=range]').length") == 1
    browser.evaluate(
        "const w = document.getElementById('which'); w.value = '2'; w.dispatchEvent(new Event('change'))"
    )
    assert (
        browser.evaluate("document.querySelectorAll('input[type=range]').length") == 0
    )  # no history
    assert browser.problems == []


def test_the_certificate_as_a_picture(browser, pages):
    browser.open(pages["exact"])
    proof = data_of(pages["exact"])["proofs"][0]
    text = browser.evaluate("document.querySelector('.proof').innerText")
    assert "no policy gets above" in text
    assert "surely reached" in text
    assert browser.evaluate("document.querySelectorAll('.proof rect.gap').length") == 1
    assert browser.evaluate("document.querySelectorAll('.proof rect.slack').length") == len(
        proof["slack"]
    )
    browser.open(pages["infeasible"])
    said = browser.evaluate("document.querySelector('.proof').innerText")
    assert "Proven: no policy satisfies hazard; the smallest slack" in said


def test_the_frontier_is_a_band_with_its_points(browser, pages):
    browser.open(pages["exact"])
    points = len(data_of(pages["exact"])["frontiers"][0]["points"])
    assert browser.evaluate("document.querySelectorAll('#frontiers polygon.band').length") >= 1
    assert browser.evaluate("document.querySelectorAll('#frontiers circle').length") == points


def test_settings_and_how_to_rerun(browser, pages):
    browser.open(pages["exact"])
    text = browser.evaluate("document.body.innerText")
    assert "cvxmdp solve problem.toml" in text
    assert "1e-10" in text
    assert "python" in text


def test_light_and_dark(browser, pages):
    paper = "getComputedStyle(document.body).backgroundColor"
    browser.open(pages["exact"])
    light = browser.evaluate(paper)
    browser.click("#theme")
    dark = browser.evaluate(paper)
    assert light != dark
    browser.click("#theme")
    assert browser.evaluate(paper) == light
    browser.open(pages["exact"], dark=True)
    assert browser.evaluate(paper) == dark


def test_texts_from_files_stay_texts(browser, pages):
    browser.open(pages["hostile"])
    assert browser.problems == []
    assert browser.evaluate("document.querySelector('h1').textContent") == EVIL
    assert browser.evaluate("document.querySelectorAll('img, iframe').length") == 0


def test_a_window_that_changes_its_size_is_drawn_anew(browser, pages):
    browser.open(pages["one"])
    wide = browser.evaluate("document.querySelector('.chart svg').viewBox.baseVal.width")
    browser.send(
        "Emulation.setDeviceMetricsOverride",
        width=380,
        height=800,
        deviceScaleFactor=1,
        mobile=True,
    )
    browser.evaluate("new Promise(done => setTimeout(done, 300))")
    assert browser.evaluate("document.querySelector('.chart svg').viewBox.baseVal.width") < wide
    assert browser.evaluate("document.documentElement.scrollWidth") <= 380


def test_states_are_searched_by_name(browser, pages):
    browser.open(pages["garnet"], 1400)
    rows = "document.querySelectorAll('#states tbody tr').length"
    assert browser.evaluate(rows) == 30
    browser.evaluate(
        "(() => { const s = document.querySelector('input[type=search]'); s.value = 'state 7';"
        " s.dispatchEvent(new Event('input')); })()"
    )
    assert browser.evaluate(rows) == 1
    assert "state 7" in browser.evaluate("document.querySelector('#states tbody').textContent")
