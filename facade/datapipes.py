"""Answer `torch.utils.data.datapipes`: kinds that programs ask a dataset for; none is made here."""

from __future__ import annotations

from .absent import kind

_INSTEAD = "data pipes are not PyTorch's way any more: datasets and loaders are here"
IterDataPipe = kind("IterDataPipe", "utils.data", _INSTEAD)
MapDataPipe = kind("MapDataPipe", "utils.data", _INSTEAD)
ShufflerIterDataPipe = kind("ShufflerIterDataPipe", "utils.data.datapipes.iter.combinatorics", _INSTEAD)
SamplerIterDataPipe = kind("SamplerIterDataPipe", "utils.data.datapipes.iter.combinatorics", _INSTEAD)
