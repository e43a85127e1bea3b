"""Check that SummaryWriter writes what tensors hold, by reading its files."""

import struct

import numpy as np
import pytest

pytest.importorskip("tensorboardX", reason="the extra lamina[tensorboard] brings it")

from tensorboardX.proto.event_pb2 import Event

import lamina
from lamina.ir.errors import ArgumentError
from lamina.utils.tensorboard import SummaryWriter


def events(folder):
    """The values in a folder's file, of records: a length, its checksum, data, its checksum (TFRecord)."""
    (file,) = [path for path in folder.iterdir() if path.name.startswith("events.out")]
    data, at, found = file.read_bytes(), 0, []
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        event = Event.FromString(data[at + 12 : at + 12 + length])
        found += [(value.tag, event.step, value) for value in event.summary.value]
        at += 12 + length + 4
    return found


def test_what_is_written(tmp_path):
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("loss", lamina.tensor(0.5, requires_grad=True), 3)
        writer.add_scalar(tag="half", scalar_value=lamina.tensor(0.25, dtype=lamina.bfloat16), global_step=4)
        writer.add_histogram("weights", lamina.tensor([1.0, 2.0, 4.0]).bfloat16(), 5)
        writer.add_image("picture", lamina.zeros(3, 4, 5), 6)
    (loss, half, weights, picture) = events(tmp_path)
    assert loss[:2] == ("loss", 3) and loss[2].simple_value == 0.5
    assert half[:2] == ("half", 4) and half[2].simple_value == 0.25
    assert weights[:2] == ("weights", 5) and weights[2].histo.num == 3 and weights[2].histo.sum == 7
    assert picture[:2] == ("picture", 6)
    assert (picture[2].image.height, picture[2].image.width) == (4, 5)


def test_scalars_and_hyperparameters_of_tensors(tmp_path):
    with SummaryWriter(str(tmp_path / "a")) as writer:
        writer.add_scalars("both", {"one": lamina.tensor(1.0), "two": np.float32(2)}, 1)
        writer.add_hparams({"lr": lamina.tensor(0.5)}, {"accuracy": lamina.tensor(0.75)})
    (one,) = events(tmp_path / "a" / "both" / "one")
    assert one[2].simple_value == 1.0


def test_graphs_are_refused(tmp_path):
    with SummaryWriter(str(tmp_path)) as writer, pytest.raises(ArgumentError, match="summary"):
        writer.add_graph(lamina.nn.Linear(2, 2), lamina.ones(1, 2))
