"""The demo: it learns, reports and writes; what goes wrong ends in a sentence and leaves no half file."""

import pytest

import lamina
from lamina.demo import command, main

for library in ("sklearn", "matplotlib", "tqdm"):
    pytest.importorskip(library, reason=f"the demo uses {library}: pip install 'lamina[demo]'")


def test_demo_learns_and_writes(tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["--epochs", "4", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "final test accuracy" in said and "images a second" in said
    assert sorted(f.name for f in out.iterdir()) == ["curve.png", "digits.png", "model.safetensors"]
    from lamina.demo import digits
    from lamina.demo.network import Network

    network = Network()
    network.load_state_dict(lamina.load(out / "model.safetensors"))
    test = digits.load().test
    network.eval()
    right = (network(test.images).argmax(1) == test.labels).sum().item()
    assert f"({right} of 360)" in said


def test_demo_same_seed_same_network(tmp_path):
    for name in ("first", "second"):
        main(["--epochs", "1", "--seed", "7", "--no-pictures", "--out", str(tmp_path / name)])
    first, second = (lamina.load(tmp_path / name / "model.safetensors") for name in ("first", "second"))
    assert all((first[name] == second[name]).all() for name in first)


def test_demo_fails_below_what_is_required(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "REQUIRED", 1.01)
    assert main(["--epochs", "1", "--no-pictures", "--out", str(tmp_path)]) == 1
    assert "of the test digits right, and 101% are required" in capsys.readouterr().err


def test_demo_names_what_is_missing(capsys, monkeypatch):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert main([]) == 1
    assert capsys.readouterr().err == (
        "lamina demo: the demo needs scikit-learn and tqdm and matplotlib: pip install 'lamina[demo]'\n"
    )
    assert main(["--no-pictures"]) == 1
    assert "matplotlib" not in capsys.readouterr().err


def test_demo_interrupted_while_training(tmp_path, capsys, monkeypatch):
    from lamina.demo import show

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(show, "train", interrupted)
    assert main(["--out", str(tmp_path / "out")]) == 130
    assert "Interrupted." in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_demo_interrupted_while_drawing(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    def half(self, path, **_):
        path.write_bytes(b"half a picture")
        raise KeyboardInterrupt

    monkeypatch.setattr(Figure, "savefig", half)
    assert main(["--epochs", "1", "--out", str(tmp_path)]) == 130
    assert [f.name for f in tmp_path.iterdir()] == ["model.safetensors"]


def test_demo_refuses_a_file_as_folder(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["--out", str(tmp_path / "file")]) == 1
    assert "is a file" in capsys.readouterr().err


@pytest.mark.parametrize("epochs", ["0", "-1", "many"])
def test_demo_refuses_epochs(epochs, capsys):
    with pytest.raises(SystemExit):
        main([f"--epochs={epochs}"])
    assert "a whole number from 1 on is needed" in capsys.readouterr().err
