"""`python -m lamina plan`: files that define a model, what is printed, drawn and refused."""

import html.parser
import json
import re
import subprocess
import sys

import pytest

from lamina.__main__ import main
from lamina.planning import plan

GPT = ["--gpt", "layers=8,hidden=512,heads=8,vocab=8192,seq=256"]
MADE = "nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])"
FILE = f"""
import lamina
from lamina import nn

def model():
    return {MADE}

def example():
    return lamina.empty(8, 64)
"""


def run(capsys, *words):
    """(status, what it printed, what it complained of)."""
    status = main(["plan", *map(str, words)])
    told = capsys.readouterr()
    return status, told.out, told.err


def test_a_file_is_planned(tmp_path, capsys):
    path = tmp_path / "model.py"
    path.write_text(FILE)
    status, out, err = run(capsys, path, "--mesh", "8x2", "--device", "a100-80")
    assert status == 0 and not err
    assert out.startswith("Sequential of model.py: 16.6 k parameters, 98.3 kFLOP a sample")
    assert "16 x a100-80: 2 nodes of 8, 80 GB each; 128 samples a step" in out
    assert re.search(r"^Linear +2 +4.16 k +8.19 kFLOP", out, re.MULTILINE)  # split two ways
    assert str(tmp_path) not in sys.path


def test_a_transformer_is_planned_as_json(capsys):
    status, out, _ = run(
        capsys,
        *GPT,
        "--mesh",
        8,
        "--batch",
        64,
        "--seq",
        128,
        "--layout",
        "dp=4,tp=2",
        "--json",
        "--optimizer",
        "sgd",
    )
    made = json.loads(out)
    best = made["best"][0]
    assert status == 0 and made["model"]["tokens_per_sample"] == 128 and len(made["layers"]) == 10
    assert best["layout"]["dp"] == 4 and best["fits"] and best["micro_batches"] == 16
    assert best["memory"]["total"] == pytest.approx(sum(v for k, v in best["memory"].items() if k != "total"))
    assert best["step"] == pytest.approx(sum(best["seconds"].values()))  # digits of JSON


def test_what_does_not_fit_is_told_and_exits_3(capsys):
    status, out, _ = run(capsys, "--gpt", "gpt3-175b", "--mesh", "8", "--device", "a100-40")
    assert status == 3 and "0 fit" in out and re.search(r"\d+  needs more than 40 GB", out)
    assert "the least of those too large: " in out
    status, out, _ = run(capsys, "--gpt", "gpt3-175b", "--mesh", "8", "--layout", "dp=8")
    assert status == 3 and "DOES NOT FIT in 80 GB" in out


def test_measured_seconds_stand_beside_predicted_ones(capsys):
    words = (*GPT, "--mesh", 8, "--layout", "dp=8", "--measured")
    step = plan(GPT[1], mesh=8, layout="dp=8").prediction.step
    status, out, _ = run(capsys, *words, 2 * step)
    assert status == 0 and re.search(r"^step .* 0\.50$", out, re.MULTILINE)
    made = plan(GPT[1], mesh=8, layout="dp=8", measured={"products": 1.0, "optimizer": 1.0})
    assert re.search(r"^optimizer +\S+ us +1 s +0\.00$", str(made), re.MULTILINE)


RAISING = {
    "no_file": (None, "plan: there is no file"),
    "syntax": ("def model(:\n", r"the file raised SyntaxError: .*\n  at .*model.py:1"),
    "no_model": ("x = 1\n", r"does not define model\(\) and example\(\)\n  model\(\) returns a Module"),
    "model_raises": (FILE.replace("return nn", "raise KeyError('x')\n    return nn"),
                     r"model\(\) raised KeyError: 'x'\n  at .*model.py:6"),
    "exits": ("import sys\nsys.exit(5)\n", r"the file raised SystemExit: 5\n  at .*model.py:2"),
    "no_module": (FILE.replace(MADE, "'a model'"), r"model\(\) .* must return a Module, not str"),
    "example_is_none": (FILE.replace("return lamina.empty(8, 64)", "return None"), "begins with a tensor"),
    "shapes": (FILE.replace("empty(8, 64)", "empty(8, 65)"), "the model raised ShapeError"),
    "values": (FILE + "\ndef loss(model, x):\n    return model(x) if x.sum() > 0 else x\n",
               r"loss\(\) raised NoValuesError: .*\n(.*\n)*  at .*model.py:12"),
}  # fmt: skip


@pytest.mark.parametrize("name", RAISING)
def test_a_file_that_fails_is_told_with_its_line(name, tmp_path, capsys):
    text, message = RAISING[name]
    path = tmp_path / "model.py"
    if text is not None:
        path.write_text(text)
    status, out, err = run(capsys, path, "--mesh", "8")
    assert status == 1 and not out
    assert re.search(message, err), err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([*GPT, "--mesh", "3x0"], "both at least 1"),
        ([*GPT, "--mesh", "8", "--device", "tpu"], "there is no device 'tpu'"),
        ([*GPT, "--mesh", "8", "--seq", "0"], r"plan(seq)"),
        ([*GPT, "--mesh", "8", "--html", "/nowhere/at/all.html"], "/nowhere/at"),
    ],
)
def test_a_wrong_word_is_told_in_one_line(words, told, capsys):
    status, out, err = run(capsys, *words)
    assert status == 1 and not out and told in err and "Traceback" not in err


@pytest.mark.parametrize(
    "words", [["--mesh", "8"], [*GPT, "file.py", "--mesh", "8"], GPT, ["f.py", "--mesh", "8", "--seq", "9"]]
)
def test_words_that_don_t_go_together(words, capsys):
    with pytest.raises(SystemExit) as error:
        run(capsys, *words)
    assert error.value.code == 2


class Page(html.parser.HTMLParser):
    """Tags that are opened, and what stands open at the end."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.outside = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.outside += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "rect", "line"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag or tag in ("rect", "line")

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)


def test_a_page_is_drawn_without_script_or_anything_outside(tmp_path, capsys):
    path = tmp_path / "plan.html"
    words = ("--mesh", "8x4", "--batch", 64, "--layout", "dp=4,pp=4,tp=2,chunks=2", "--html", path)
    assert run(capsys, *GPT, *words)[0] == 0
    text = path.read_text()
    page = Page(text.replace("</rect>", ""))
    assert page.tags.count("svg") == 3 and not page.outside and "script" not in page.tags
    assert "default-src 'none'" in text and "the first 12 of 16 micro-batches" in text
    assert text.count("forward of micro-batch") == text.count("backward of micro-batch") == 4 * 2 * 12


def test_names_of_a_page_are_escaped(tmp_path, capsys):
    path, out = tmp_path / "model.py", tmp_path / "plan.html"
    path.write_text(FILE + "\nclass X(nn.Sequential): pass\nX.__name__ = '<script>alert(1)</script>'\n"
                    "def model(): return X(nn.Linear(64, 64), nn.Linear(64, 64))\n")  # fmt: skip
    assert run(capsys, path, "--mesh", "8", "--html", out)[0] == 0
    assert "<script>" not in out.read_text() and "&lt;script&gt;" in out.read_text()


def test_a_pipeline_of_many_ranks_is_drawn_in_part(tmp_path):
    made = plan(
        "layers=128,hidden=1024,heads=16,vocab=1000,seq=64", mesh="8x64", batch=4096, layout="pp=64,tp=8"
    )
    from lamina.planning.plan_page import page

    text = page(made)
    assert text.count("<rect") < 6000 and len(text) < 2_000_000


def test_a_picture_is_drawn(tmp_path):
    pytest.importorskip("matplotlib", reason="pictures are drawn by matplotlib")
    from lamina.planning.plan_picture import write_picture

    path = tmp_path / "plan.png"
    write_picture(plan(GPT[1], mesh="8x1", layout="dp=2,pp=4", batch=32), path)
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and path.stat().st_size > 10_000


def test_the_room_is_loaded_by_nobody_else():
    look = "import sys, lamina; assert not [m for m in sys.modules if m.startswith('lamina.planning')]"
    look += "; lamina.planning.plan; assert 'matplotlib' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
