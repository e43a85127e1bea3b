"""How modules print."""

import lamina.nn as nn


def test_repr_of_a_model(golden):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(10, 4, padding_idx=0)
            self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)] + [nn.Linear(4, 2, bias=False)])
            self.blocks = nn.ModuleDict({"conv": nn.Conv2d(1, 2, 3, padding=1), "norm": nn.BatchNorm2d(2)})
            self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.1), nn.LSTM(4, 5, 2, bidirectional=True))
            self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 2)
            self.missing = None

    golden("nn/model", repr(Model()))


def test_extra_repr_of_several_lines():
    class Wordy(nn.Module):
        def extra_repr(self):
            return "one\ntwo"

    assert repr(Wordy()) == "Wordy(\n  one\n  two\n)"
    assert repr(nn.Module()) == "Module()" and repr(nn.Sequential()) == "Sequential()"
    assert repr(nn.ReLU(inplace=True)) == "ReLU(inplace=True)"
