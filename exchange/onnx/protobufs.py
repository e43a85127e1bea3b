"""Make an ONNX file of what `declared` says: the form of protobufs, which the package onnx knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import IO, Any

import numpy as np

from .declared import Declared, Kind, Node, Subgraph
from .element_types import element_number

try:
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:  # an extra
    raise ImportError("lamina.onnx needs the package onnx: pip install 'lamina[onnx]'") from error

# Of the form, by the newest opset that it came with.
FORMS = {18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11, 24: 12, 25: 13, 26: 13}
ALIGNED = 4096  # bytes to which weights beside a model are aligned, so that they can be mapped


def model_of(declared: Declared, location: str | None = None) -> Any:
    """The protobuf of a model.  location: the name of the file that holds its weights, without its folder."""
    graph = _graph(declared.graph, location)
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in declared.opsets.items()],
        ir_version=FORMS[declared.opsets[""]],
        producer_name=declared.producer,
    )


def write_weights(file: IO[bytes], weights: Mapping[str, np.ndarray]) -> None:
    """Write arrays into the file beside a model's."""
    for name, (offset, _) in places(weights).items():
        file.seek(offset)
        file.write(np.ascontiguousarray(weights[name]).data.cast("B") if weights[name].size else b"")


def places(weights: Mapping[str, np.ndarray]) -> dict[str, tuple[int, int]]:
    """Where arrays stand in the file beside a model's: offset and length."""
    found, end = {}, 0
    for name, array in weights.items():
        found[name] = end, array.nbytes
        end += -(-array.nbytes // ALIGNED) * ALIGNED
    return found


def _graph(graph: Subgraph, location: str | None = None) -> Any:
    outside = places(graph.constants) if location else {}
    constants = []
    for name, array in graph.constants.items():
        if location:
            tensor = TensorProto(name=name, dims=array.shape, data_type=element_number(array.dtype))
            tensor.data_location = TensorProto.EXTERNAL
            offset, length = outside[name]
            for key, value in (("location", location), ("offset", offset), ("length", length)):
                tensor.external_data.add(key=key, value=str(value))
            constants.append(tensor)
        else:
            constants.append(_tensor(array, name))
    return helper.make_graph(
        [*map(_node, graph.nodes)], graph.name, _infos(graph.inputs), _infos(graph.outputs), constants
    )


def _tensor(array: np.ndarray, name: str = "") -> Any:
    made = TensorProto(name=name, dims=array.shape, data_type=element_number(array.dtype))
    made.raw_data = numpy_helper.from_array(np.asarray(array, order="C")).raw_data
    return made


def _infos(kinds: Mapping[str, Kind]) -> list[Any]:
    return [
        helper.make_tensor_value_info(name, element_number(kind.dtype), kind.shape)
        for name, kind in kinds.items()
    ]


def _node(node: Node) -> Any:
    made = helper.make_node(node.op, node.inputs, node.outputs, name=node.name, domain=node.domain)
    made.attribute.extend(_attributes(node.attrs))
    return made


def _attributes(attrs: Mapping[str, Any]) -> Iterable[Any]:
    for name, value in sorted(attrs.items()):
        match value:
            case Subgraph():
                value = _graph(value)
            case np.dtype():
                value = element_number(value)
            case np.ndarray():
                value = _tensor(value)
            case bool():
                value = int(value)
        yield helper.make_attribute(name, value)
