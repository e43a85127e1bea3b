"""Pages in a real browser: what a reader does, and what a hostile model's names can't do."""

import json

import chromium
import pytest
from shown_models import HOSTILE, hostile, net, onnx_model

import lamina
from lamina import jit

pytestmark = pytest.mark.skipif(
    chromium.found() is None, reason="no Chromium is installed to look at pages with"
)

CONV = "conv2d_add_relu"


@pytest.fixture(scope="module")
def browser():
    with chromium.Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "net.html"
    with lamina.no_grad():
        jit.show(net(), path, lamina.randn(2, 8, 6, 6))
    return path


@pytest.fixture
def page(browser, path):
    browser.said.clear()
    browser.requests.clear()
    browser.open(path)
    yield browser
    assert browser.said == []
    assert browser.requests == [path.resolve().as_uri()]


def count(page, selector):
    return page.run(f"document.querySelectorAll({json.dumps(selector)}).length")


def text(page, selector):
    return page.run(f"document.querySelector({json.dumps(selector)}).textContent")


def key_of(page, kind, name):
    """The selector of the drawn node that stands for the first thing called so."""
    graph = "part.ops" if kind == "ops" else "part.calls"
    number = page.run(f"{graph}.nodes.find(node => node.label === {json.dumps(name)}).id")
    return f'.sheet[data-kind={kind}] [data-key="n{number}"]'


def test_ops_are_drawn_in_their_modules_from_inputs_to_results(page):
    assert count(page, ".sheet:not([hidden]) .node") == 12  # ten ops, an input, a result
    assert count(page, ".box") == 4 and count(page, ".edge") == 13
    names = page.run("[...document.querySelectorAll('.tree .row b')].map(row => row.textContent)")
    assert names == ["Net", "layers", "0", "conv", "norm", "1", "conv", "norm", "head"]
    tops = page.run(
        "[...sheets[0].shown.values()].filter(item => item.node).map(item => [item.node.op, item.y])"
    )
    assert tops[0][0] == "x" and tops[0][1] == min(y for _, y in tops)
    assert tops[-1][0] == "result 0" and tops[-1][1] == max(y for _, y in tops)


def test_nothing_that_is_drawn_lies_on_another(page):
    page.click("#all")
    page.click("[data-view=both]")
    overlapping = page.run(
        """sheets.flatMap(sheet => { const all = [...sheet.shown.values()].filter(item => !item.isOpen);
        return all.flatMap((a, n) => all.slice(n + 1).filter(b => Math.abs(a.x - b.x) < (a.w + b.w) / 2 - .5
        && a.y < b.y + b.h && b.y < a.y + a.h)); }).length"""
    )
    assert overlapping == 0


def test_a_click_on_a_kernel_marks_its_ops_and_its_row_and_tells_of_it(page):
    page.click("[data-view=both]")
    page.run("sheets.forEach(sheet => sheet.fit(true))")
    page.click(key_of(page, "calls", CONV))
    marked = page.run(
        "[...document.querySelectorAll('.sheet[data-kind=ops] .node.linked text')].map(x => x.textContent)"
    )
    assert {"conv: conv2d", "add", "relu"} <= set(marked)
    assert count(page, ".sheet[data-kind=ops] .node.linked") == 3
    assert count(page, ".sheet[data-kind=calls] .node.chosen") == 1 and count(page, "tr.chosen") == 1
    assert text(page, "aside h2") == CONV and "GFLOP/s" in text(page, "aside dl")
    page.click("aside details summary")
    page.run("new Promise(done => setTimeout(done, 50))")
    assert text(page, "aside details pre").startswith(f"kernel {CONV}(")


def test_a_click_on_an_op_marks_its_kernel_and_pointing_does_so_for_the_while(page):
    page.click("[data-view=both]")
    page.run("sheets.forEach(sheet => sheet.fit(true))")
    page.click(key_of(page, "ops", "linear"))
    assert text(page, ".sheet[data-kind=calls] .node.linked title").startswith("head: linear")
    assert count(page, "tr.linked") >= 1
    page.run("row = rows.get(part.kernels.find(call => call.name === 'mean').id)")
    page.run("row.scrollIntoView({ block: 'center' })")
    box = page.run("(b => [b.x + 5, b.y + b.height / 2])(row.getBoundingClientRect())")
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    assert text(page, ".sheet[data-kind=ops] .node.linked title").startswith("mean")
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=2, y=2)
    assert text(page, ".sheet[data-kind=calls] .node.linked title").startswith("head: linear")


def test_modules_fold_in_the_drawing_and_in_the_tree_by_mouse_and_keyboard(page):
    page.run("sheets[0].fit(true)")
    page.click(".tree .row[data-path='Net.layers.0'] .fold")
    assert count(page, ".sheet:not([hidden]) .node") == 9 and count(page, ".node.group") == 1
    assert count(page, ".tree .row") == 7
    page.click(".node.group")
    assert count(page, ".sheet:not([hidden]) .node") == 12
    page.run("document.querySelector(\".tree .row[data-path='Net.layers']\").focus()")
    page.press("ArrowLeft")
    assert text(page, ".node.group text") == "▸ layers"
    page.press("ArrowRight")
    assert count(page, ".node.group") == 0
    page.click("#none")
    assert count(page, ".sheet:not([hidden]) .node") == 5  # Net is one box with layers, mean and head
    page.click("#all")
    assert count(page, ".sheet:not([hidden]) .node") == 12


def test_searching_finds_unfolds_and_filters(page):
    page.click("#none")
    page.press("/")
    assert page.run("document.activeElement.id") == "search"
    page.type("batch_norm")
    assert count(page, "#found li") == 2 and page.run("document.querySelector('#found').hidden") is False
    page.press("ArrowDown")
    assert page.run("document.querySelector('#found li[aria-selected=true]').id") == "hit1"
    page.press("Enter")
    assert text(page, "aside h2") == "batch_norm_eval" and "Net.layers.1.norm" in text(page, "aside dl")
    assert count(page, ".node.chosen") == 1
    page.press("Escape")
    assert count(page, ".node.chosen") == 0 and page.run("search.value") == ""
    page.press("/")
    page.type("relu")
    assert count(page, "#kernels tbody tr") == 2
    page.type("no such thing")
    assert "Nothing is called that" in text(page, "#found") and count(page, "#kernels tbody tr") == 0


def test_arrow_keys_go_along_edges_and_are_told(page):
    page.run("sheets[0].svg.focus()")
    found = []
    for _ in range(3):
        page.press("ArrowDown")
        found.append(text(page, "[role=status]").split()[0])
    assert found == ["x", "conv2d", "batch_norm_eval"]
    page.press("ArrowUp")
    assert text(page, "[role=status]").startswith("conv2d")


def test_the_table_sorts_and_joins_equal_kernels(page):
    everything = count(page, "#kernels tbody tr")
    times = page.run(
        "[...document.querySelectorAll('#kernels tbody tr')].map(row => row.cells[0].textContent)"
    )
    page.run("document.querySelectorAll('#kernels th button')[0].click()")
    names = page.run(
        "[...document.querySelectorAll('#kernels tbody tr')].map(row => row.cells[0].textContent)"
    )
    assert names == sorted(names) != times and count(page, "th[aria-sort=ascending]") == 1
    page.click("#equal")
    calls = page.run(
        f"[...document.querySelectorAll('#kernels tbody tr')].filter(r => r.cells[0].innerText === '{CONV}')"
        ".map(row => row.cells[2].textContent)"
    )
    assert calls == ["2"] and count(page, "#kernels tbody tr") < everything


def test_memory_and_facts_stand_behind_tabs_and_dark_is_a_button(page):
    page.click("[aria-controls=memory]")
    assert page.run("document.querySelector('#kernels').hidden") and count(page, ".memory rect") > 3
    assert "arena" in text(page, "#memory")
    page.click("[aria-controls=about]")
    assert "limit of this machine" in text(page, "#about") and "runs" in text(page, "#about")
    before = page.run("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.run("getComputedStyle(document.body).backgroundColor") != before


def test_it_prints_the_whole_table(page):
    page.call("Emulation.setEmulatedMedia", media="print")
    try:
        for gone in ("nav", "aside", ".tools", "#equal"):
            assert page.run(f"document.querySelector('{gone}').getClientRects().length") == 0
        assert page.run("getComputedStyle(document.querySelector('#memory')).display") == "block"
    finally:
        page.call("Emulation.setEmulatedMedia", media="")
    assert len(page.call("Page.printToPDF")["data"]) > 10_000


def test_thousands_of_ops_are_folded_and_drawn(browser, tmp_path):
    from lamina.viewer.page import page as text_of

    nodes = [
        {"id": -1, "op": "x", "kind": "input", "type": "", "within": "", "where": "", "in": [], "attrs": []}
    ]
    for n in range(6000):
        path = f"Net.part{n // 600}.block{n // 30}.layer{n // 6}"
        operands = [["input", n - 1], ["other", max(n - 7, -1)]]
        nodes.append({**nodes[0], "id": n, "op": "mul", "kind": "move", "within": path, "in": operands})
    data = {
        "title": "large",
        "about": [],
        "parts": [],
        "declared": {"the file": nodes},
        "whole": None,
        "texts": "",
    }
    (tmp_path / "large.html").write_text(text_of("large", data))
    browser.said.clear()
    browser.open(tmp_path / "large.html")
    assert 10 <= count(browser, ".node") <= 80
    browser.run("choose({ kind: 'ops', id: 4321 }, true)")
    assert text(browser, ".node.chosen text") == "mul" and count(browser, ".node") < 400
    assert browser.said == []


# ---- hostile models
def test_names_of_a_model_are_text_wherever_they_are_shown(browser, tmp_path):
    path = tmp_path / "hostile.html"
    with lamina.no_grad():
        jit.show(hostile(), path, lamina.randn(2, 4), time=False, title=HOSTILE[1])
    browser.said.clear()
    browser.requests.clear()
    browser.open(path)
    for script in ("one('#all').click()", "one('[data-view=both]').click()"):
        browser.run(script)
    browser.run("part.ops.nodes.forEach(node => choose({ kind: 'ops', id: node.id }, true))")
    browser.run("part.kernels.forEach(call => choose({ kind: 'calls', id: call.id }, true))")
    browser.run("[...part.open].forEach(path => choose({ kind: 'module', id: path }, true))")
    browser.run("search.value = 'script'; look()")
    assert browser.run("typeof hacked") == "undefined"
    assert count(browser, "img") == 0 and count(browser, "script") == 2
    rows = browser.run("[...document.querySelectorAll('.tree .row b')].map(row => row.textContent)")
    assert HOSTILE[0] in rows and "__proto__" in rows and text(browser, "h1") == HOSTILE[1]
    assert browser.run("({}).polluted") is None
    assert browser.said == [] and browser.requests == [path.resolve().as_uri()]


def test_names_of_an_onnx_model_are_text_too(browser, tmp_path):
    pytest.importorskip("onnx", reason="ONNX models are read with the package onnx")
    names = tuple(name for name in HOSTILE if name.isprintable() or name == HOSTILE[3])
    jit.show(onnx_model(tmp_path / "m.onnx", names), tmp_path / "m.html", time=False)
    browser.said.clear()
    browser.open(tmp_path / "m.html")
    browser.run(
        "one('#all').click(); part.ops.nodes.forEach(node => choose({ kind: 'ops', id: node.id }, true))"
    )
    assert browser.run("typeof hacked") == "undefined" and count(browser, "img") == 0
    assert browser.said == []


def test_the_policy_lets_no_other_script_run_and_nothing_be_fetched(browser, path):
    browser.said.clear()
    browser.open(path)
    browser.run("document.body.append(fill(document.createElement('script'), {}, ['hacked = 1']))")
    browser.run(
        "document.body.append(fill(document.createElement('img'), {src: 'http://127.0.0.1:9/x'}, []))"
    )
    assert browser.run(
        "document.body.setAttribute('onclick', 'hacked = 1'); document.body.click(); typeof hacked"
    ) == ("undefined")
    assert browser.run("fetch('http://127.0.0.1:9/').then(() => 'went', () => 'refused')") == "refused"
    assert sum("Content Security Policy" in each for each in browser.said) >= 4


def test_a_names_block_that_was_not_escaped_would_have_been_seen(browser, tmp_path, monkeypatch):
    monkeypatch.setattr("lamina.viewer.page.inside_of_a_page", lambda data: json.dumps(data))
    with lamina.no_grad():
        jit.show(hostile(), tmp_path / "broken.html", lamina.randn(2, 4), time=False)
    browser.said.clear()
    browser.open(tmp_path / "broken.html")
    assert browser.said  # the block ended early, and the policy stopped what came then
    assert browser.run("typeof hacked") == "undefined"
