"""The demo: both ways learn, the report is whole; what goes wrong ends in a sentence and in no half file."""

import itertools
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import lamina
from lamina.demo import command, digits, fresh, graphs, main, peer, report, timing
from lamina.demo.network import network
from lamina.demo.train import Epoch

for library in ("sklearn", "matplotlib", "tqdm"):
    pytest.importorskip(library, reason=f"the demo uses {library}: pip install 'lamina[demo]'")

show = pytest.importorskip("lamina.demo.show")

KINDS = itertools.product(("graph", "step"), ("before", "after"), ("txt", "svg"))
GRAPHS = [f"{what}-{when}.{kind}" for what, when, kind in KINDS]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder and the text of one whole run without the peer, whose import alone takes seconds.

    Of the rounds in which ways are timed there is one: the times are not what is looked at.
    """
    out = tmp_path_factory.mktemp("demo") / "out"
    timed = timing.timed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peer, "find_spec", lambda name: None)
        patch.setattr(show, "timed", lambda digits, rounds, *rest: timed(digits, 1, *rest))
        patch.setattr(timing, "INFERENCES", 1)
        with pytest.MonkeyPatch.context() as printed:
            lines = []
            printed.setattr("builtins.print", lambda *what, **_: lines.append(" ".join(map(str, what))))
            status = main(["--epochs", "4", "--out", str(out)])
    return status, out, "\n".join(lines)


@pytest.fixture
def unmeasured(monkeypatch):
    """Leave out the last table, which takes longest and is not what every test is about."""
    monkeypatch.setattr(show, "measured", lambda *_: None)
    monkeypatch.setattr(report, "table", lambda found: "")


def cells(text: str, label: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.startswith(label))
    return re.split(r"\s{2,}", line)[1:]


@pytest.mark.sampled(3)
def test_demo_learns_both_ways_and_writes(ran):
    status, out, _ = ran
    assert status == 0
    pictures = ["curve.png", "digits.lam", "digits.png"]
    assert {f.name for f in out.iterdir()} == {*pictures, *GRAPHS, "model.safetensors"}


def test_demo_table_is_whole(ran):
    _, _, said = ran
    assert cells(said, "time per epoch")[2] == cells(said, "inference, batch 1 ")[2] == "-"
    rows = [line for line in said.splitlines() if line.startswith("inference, batch 64")]
    assert len(rows) == 4  # how long it takes, its kernels, compiling it, the exported file
    steps = [line for line in said.splitlines() if line.startswith("training step")]
    assert len(steps) == 2
    before, after = (int(cell.split()[0]) for cell in re.split(r"\s{2,}", steps[0])[1:])
    assert before > 2 * after > 20
    assert len(cells(said, "steps a second ")) == 2
    # One call makes AdamW's states, two record; the steps of four epochs but these ran compiled.
    assert re.search(r"^traced step: served 89 of 92 calls(, at [\d.]+ of eager's time)?$", said, re.M)
    assert "torch: not installed, so it takes no part: pip install" in said
    traced, exported = (float(cell) for cell in cells(said, "logits, to "))
    # 64 roundings in a sum, four layers: far below this; another network, or other digits, are far above.
    assert 0 <= traced < 1e-3 and 0 <= exported < 1e-3
    assert traced or exported, "nothing else than the eager network was compared"


def test_demo_weights_get_the_digits_right_that_it_says(ran):
    _, out, said = ran
    model = network(lamina)
    model.load_state_dict(lamina.load(out / "model.safetensors"))
    test = digits.load().test
    right = (model.eval()(test.images).argmax(1) == test.labels).sum().item()
    assert cells(said, "  of 360")[1] == str(right)


def test_demo_graphs_are_texts_and_pictures(ran):
    _, out, _ = ran
    texts = {name: (out / name).read_text() for name in GRAPHS}
    for name, text in texts.items():
        if name.endswith("svg"):
            assert ElementTree.fromstring(text).tag.endswith("svg")
    assert "batch_norm_eval" in texts["graph-before.txt"] and "fused" not in texts["graph-before.txt"]
    assert "fused" in texts["graph-after.txt"] and "batch_norm" not in texts["graph-after.txt"]
    assert "adam_update" in texts["step-before.txt"] and "fused" in texts["step-after.txt"]


ALONE = """
import sys
sys.modules["lamina"] = None
sys.path.insert(0, sys.argv[1])
import lamina_model, numpy
images, out = numpy.load(sys.argv[2]), sys.argv[3]
numpy.save(out, lamina_model.run(images))
"""


def test_demo_exported_file_runs_without_lamina(ran, tmp_path):
    _, out, _ = ran
    images = digits.load().test.images[:64].numpy()
    np.save(tmp_path / "images.npy", images)
    arguments = [str(out / "digits.lam"), str(tmp_path / "images.npy"), str(tmp_path / "logits.npy")]
    subprocess.run([sys.executable, "-c", ALONE, *arguments], check=True)
    model = network(lamina)
    model.load_state_dict(lamina.load(out / "model.safetensors"))
    with lamina.no_grad():
        wanted = model.eval()(lamina.tensor(images)).numpy()
    # As in the table: roundings of four layers of at most 288 products, beside logits of about ten.
    assert np.abs(np.load(tmp_path / "logits.npy") - wanted).max() < 1e-3


TRAINED = """
import sys, lamina
from lamina.demo.digits import load
from lamina.demo.train import Training
training = Training(load(), 1, 7, lamina.jit.trace)
training.epoch()
lamina.save(training.network.state_dict(), sys.argv[1])
"""


def test_demo_same_seed_same_network(tmp_path):
    # What is recorded first runs eagerly, and there native code takes over for NumPy at some time.
    environment = os.environ | {"LAMINA_NATIVE": "0"}
    paths = [tmp_path / "first", tmp_path / "second"]
    for path in paths:
        subprocess.run([sys.executable, "-c", TRAINED, str(path)], check=True, env=environment)
    first, second = map(lamina.load, paths)
    assert all((first[name] == second[name]).all() for name in first)


def test_demo_without_pictures_draws_none(tmp_path, unmeasured):
    main(["--epochs", "1", "--no-pictures", "--out", str(tmp_path)])
    assert {f.suffix for f in tmp_path.iterdir()} == {".txt", ".safetensors"}


ENDS = {
    "both": ({"eager": 0.98, "traced": 0.98}, 0, ""),
    "below": ({"eager": 0.98, "traced": 0.96}, 1, "trained traced, the network got 96.0% of the test digits"),
    "apart": (
        {"eager": 0.99, "traced": 0.975},
        1,
        "ended at 99.00% and 97.50% of the test digits: more than 1",
    ),
}


@pytest.mark.parametrize("accuracies, status, said", ENDS.values(), ids=list(ENDS))
def test_demo_exit_status(accuracies, status, said, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(show, "show", lambda *_: accuracies)
    assert main(["--out", str(tmp_path)]) == status
    assert said in capsys.readouterr().err


def test_demo_says_that_a_step_was_not_compiled(tmp_path, capsys, monkeypatch):
    def refused(*_):
        raise graphs.NotCompiled("step: not served, because it was planted")

    monkeypatch.setattr(graphs, "must_be_compiled", refused)
    assert main(["--epochs", "1", "--out", str(tmp_path)]) == 1
    assert "ran eagerly:\nstep: not served, because it was planted" in capsys.readouterr().err


def test_demo_function_that_was_never_compiled_is_found_out():
    traced = lamina.jit.trace(lambda x: x + x)
    with pytest.raises(graphs.NotCompiled, match="<lambda>: not called yet"):
        graphs.must_be_compiled(traced)
    traced(lamina.ones(3))
    graphs.must_be_compiled(traced)


def test_demo_compile_time_is_what_the_first_epoch_took_beyond_the_others():
    seconds = [3.5, 0.5, 0.7, 0.6]
    history = [report.Row(n, Epoch(1.0, s), 0.9) for n, s in enumerate(seconds, 1)]
    assert report.warm(history) == 0.6 and report.compile_time(history) == "2.90 s"
    assert report.compile_time(history[:1]) == "in its epoch"


@pytest.mark.parametrize(
    "value, said",
    [(12.0, "12.0 s"), (2.504, "2.50 s"), (0.2, "200 ms"), (32e-6, "32.0 us"), (1e-7, "0.10 us")],
)
def test_demo_seconds_have_fitting_units(value, said):
    assert report.seconds(value) == said


def test_demo_names_what_is_missing(capsys, monkeypatch):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert main([]) == 1
    assert capsys.readouterr().err == (
        "lamina demo: the demo needs scikit-learn and tqdm and matplotlib: pip install 'lamina[demo]'\n"
    )
    assert main(["--no-pictures"]) == 1
    assert "matplotlib" not in capsys.readouterr().err


def test_demo_explains_a_peer_that_does_not_import(monkeypatch):
    def broken(name):
        raise OSError("libgomp.so.1: cannot open shared object file")

    monkeypatch.setattr(peer, "find_spec", lambda name: name)
    monkeypatch.setattr(peer, "import_module", broken)
    assert peer.torch() == (
        None,
        "takes no part: it can't be imported: libgomp.so.1: cannot open shared object file",
    )


def test_demo_interrupted_while_training(tmp_path, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(show, "learn", interrupted)
    assert main(["--out", str(tmp_path / "out")]) == 130
    assert "Interrupted." in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_demo_interrupted_while_drawing(tmp_path, monkeypatch, unmeasured):
    from matplotlib.figure import Figure

    def half(self, file, **_):
        file.write(b"half a picture")
        raise KeyboardInterrupt

    monkeypatch.setattr(Figure, "savefig", half)
    assert main(["--epochs", "1", "--out", str(tmp_path)]) == 130
    assert {f.name for f in tmp_path.iterdir()} == {*GRAPHS, "model.safetensors"}


def test_demo_interrupted_while_exporting(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(show, "timed", lambda *_: None)
    monkeypatch.setattr(peer, "find_spec", lambda name: None)
    monkeypatch.setattr(fresh, "compiling", lambda: (None, None))
    monkeypatch.setattr(subprocess, "run", interrupted)  # the export tries its file in a fresh process
    assert main(["--epochs", "1", "--no-pictures", "--out", str(tmp_path)]) == 130
    texts = {name for name in GRAPHS if name.endswith("txt")}
    assert {f.name for f in tmp_path.iterdir()} == {*texts, "model.safetensors"}


def test_demo_refuses_a_file_as_folder(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["--out", str(tmp_path / "file")]) == 1
    assert "is a file" in capsys.readouterr().err


@pytest.mark.parametrize("epochs", ["0", "-1", "many"])
def test_demo_refuses_epochs(epochs, capsys):
    with pytest.raises(SystemExit):
        main([f"--epochs={epochs}"])
    assert "a whole number from 1 on is needed" in capsys.readouterr().err
