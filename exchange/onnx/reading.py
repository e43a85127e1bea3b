"""Read an ONNX file.  The one module that imports `onnx`, and so protobuf.

A file is somebody else's: nothing of it is run, what it names outside of its own folder is not opened, and
what it says of sizes is held against what is there before memory is asked for.
"""

from __future__ import annotations

import heapq
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ...runtime.allowance import afford
from .declared import STANDARD, Declared, Function, Kind, Node, OnnxError, Reference, Subgraph
from .element_types import TEXT, bits_of, element_type

try:
    import onnx
    from onnx import TensorProto, numpy_helper
except ImportError as error:  # an extra
    raise ImportError("lamina.onnx needs the package onnx: pip install 'lamina[onnx]'") from error

NEWEST, OLDEST = 28, 7  # opsets of the standard domain that are known
DEEPEST = 32  # graphs inside of graphs, and calls of functions inside of functions
EXTERNAL = TensorProto.EXTERNAL


def read(source: str | os.PathLike | bytes) -> Declared:
    """What a file says, or its bytes.  Raises OnnxError, and OSError where there is no such file."""
    folder: Path | None = None
    if isinstance(source, bytes):
        data = source
    else:
        folder = Path(os.fspath(source)).resolve().parent
        data = Path(source).read_bytes()
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except Exception as error:  # protobuf's own, by whichever implementation is installed
        raise OnnxError("this is no ONNX file", f"protobuf: {error}") from None
    return declared(proto, folder)


def declared(proto: Any, folder: Path | None = None) -> Declared:
    """What a ModelProto says.  folder: where tensors may lie that are kept outside."""
    try:
        return _declared(proto, folder)
    except (TypeError, ValueError, LookupError, ArithmeticError) as error:  # such as names that are no text
        raise OnnxError("this ONNX file is damaged", f"{type(error).__name__}: {error}") from error


def _declared(proto: Any, folder: Path | None) -> Declared:
    if not proto.HasField("graph"):
        raise OnnxError("this is no ONNX model: it has no graph")
    reader = _Reader(folder)
    opsets = reader.opsets(proto.opset_import)
    functions = {}
    for each in proto.functions:
        functions[_domain(each.domain), each.name] = reader.function(each, opsets)
    graph = reader.graph(proto.graph, opsets, set(), 0)
    metadata = {entry.key: entry.value for entry in proto.metadata_props}
    _names("the model", (proto.producer_name, *metadata, *metadata.values(), *opsets))
    return Declared(graph, opsets, functions, proto.producer_name, metadata)


def _domain(name: str) -> str:
    return STANDARD if name == "ai.onnx" else name


class _Reader:
    def __init__(self, folder: Path | None):
        self.folder = folder

    def opsets(self, imports: Iterable[Any]) -> dict[str, int]:
        found = {_domain(each.domain): int(each.version) for each in imports} or {STANDARD: 1}
        version = found.get(STANDARD, NEWEST)
        if not 1 <= version <= NEWEST:
            raise OnnxError(
                f"opset {version} of ONNX is not known: {OLDEST} to {NEWEST} are",
                "export the model by an older one",
            )
        return found

    def graph(self, proto: Any, opsets: Mapping[str, int], around: set[str], depth: int) -> Subgraph:
        if depth > DEEPEST:
            raise OnnxError(
                f"graphs are more than {DEEPEST} deep inside of each other", f"graph: {proto.name}"
            )
        ends = (*proto.initializer, *proto.input, *proto.output)
        sparse = (each.values.name for each in proto.sparse_initializer)
        _names("a graph", (proto.name, *sparse, *(each.name for each in ends)))
        constants = {each.name: self.array(each) for each in proto.initializer}
        for each in proto.sparse_initializer:
            constants[each.values.name] = self.dense(each)
        inputs = {each.name: self.kind(each.type) for each in proto.input}
        known = around | constants.keys() | inputs.keys()
        nodes = [self.node(each, opsets, known, depth) for each in _in_order(proto.node)]
        missing = [each.name for each in proto.output if each.name not in known]
        if missing:
            raise OnnxError(
                f"the graph returns what nothing makes: {', '.join(missing)}", f"graph: {proto.name}"
            )
        outputs: dict[str, Kind] = {}
        for each in proto.output:
            name = each.name
            if name in outputs:  # returned twice: once under another name
                name = f"{name}:{len(outputs)}"
                nodes.append(Node("Identity", STANDARD, opsets.get(STANDARD, NEWEST), (each.name,), (name,)))
            outputs[name] = self.kind(each.type)
        return Subgraph(proto.name, tuple(nodes), inputs, outputs, constants)

    def node(self, proto: Any, opsets: Mapping[str, int], known: set[str], depth: int) -> Node:
        domain = _domain(proto.domain)
        named = (each.name for each in proto.attribute)
        _names("a node", (proto.op_type, domain, proto.name, *proto.input, *proto.output, *named))
        for name in proto.input:
            if name and name not in known:
                raise OnnxError(
                    f"{proto.op_type} reads {name!r}, which nothing before it makes", f"node: {proto.name}"
                )
        attrs = {each.name: self.attribute(each, opsets, known, depth) for each in proto.attribute}
        known.update(name for name in proto.output if name)
        opset = opsets.get(domain, 1)
        return Node(proto.op_type, domain, opset, tuple(proto.input), tuple(proto.output), attrs, proto.name)

    def function(self, proto: Any, outer: Mapping[str, int]) -> Function:
        named = (*proto.attribute, *(each.name for each in proto.attribute_proto))
        _names("a function", (proto.domain, proto.name, *proto.input, *proto.output, *named))
        opsets = dict(outer) | self.opsets(proto.opset_import)
        attrs: dict[str, Any] = dict.fromkeys(proto.attribute)
        for each in proto.attribute_proto:
            attrs[each.name] = self.attribute(each, opsets, set(), 0)
        known = set(proto.input)
        nodes = tuple(self.node(each, opsets, known, 0) for each in proto.node)
        return Function(
            _domain(proto.domain), proto.name, tuple(proto.input), tuple(proto.output), nodes, attrs
        )

    def attribute(self, proto: Any, opsets: Mapping[str, int], around: set[str], depth: int) -> Any:
        if proto.ref_attr_name:
            return Reference(proto.ref_attr_name)
        kinds = onnx.AttributeProto
        match proto.type:
            case kinds.FLOAT:
                return float(proto.f)
            case kinds.INT:
                return int(proto.i)
            case kinds.STRING:
                return _text(proto.s)
            case kinds.TENSOR:
                return self.array(proto.t)
            case kinds.SPARSE_TENSOR:
                return self.dense(proto.sparse_tensor)
            case kinds.GRAPH:
                return self.graph(proto.g, opsets, set(around), depth + 1)
            case kinds.TYPE_PROTO:
                return self.kind(proto.tp)
            case kinds.FLOATS:
                return tuple(map(float, proto.floats))
            case kinds.INTS:
                return tuple(map(int, proto.ints))
            case kinds.STRINGS:
                return tuple(map(_text, proto.strings))
            case kinds.TENSORS:
                return tuple(map(self.array, proto.tensors))
            case kinds.GRAPHS:
                return tuple(self.graph(each, opsets, set(around), depth + 1) for each in proto.graphs)
            case kinds.TYPE_PROTOS:
                return tuple(map(self.kind, proto.type_protos))
        raise OnnxError(f"the attribute {proto.name!r} is of a kind that ONNX does not know: {proto.type}")

    def kind(self, proto: Any) -> Kind:
        match proto.WhichOneof("value"):
            case "tensor_type":
                tensor = proto.tensor_type
            case "sparse_tensor_type":
                tensor = proto.sparse_tensor_type
            case "sequence_type":
                inner = self.kind(proto.sequence_type.elem_type)
                return Kind(inner.dtype, inner.shape, sequence=True)
            case "optional_type":
                inner = self.kind(proto.optional_type.elem_type)
                return Kind(inner.dtype, inner.shape, inner.sequence, optional=True)
            case _:
                return Kind()
        dtype = element_type(tensor.elem_type) if tensor.elem_type else None
        if not tensor.HasField("shape"):
            return Kind(dtype)
        sizes = {"dim_value": lambda d: d.dim_value, "dim_param": lambda d: d.dim_param, None: lambda _: None}
        _names("a shape", (dim.dim_param for dim in tensor.shape.dim))
        return Kind(dtype, tuple(sizes[dim.WhichOneof("value")](dim) for dim in tensor.shape.dim))

    # ---- tensors
    def array(self, proto: Any) -> np.ndarray:
        """A tensor's values; of strings an array of Python's."""
        shape, dtype = tuple(proto.dims), element_type(proto.data_type)
        if any(size < 0 for size in shape) or prod(shape) > 1 << 48:
            raise OnnxError(f"the tensor {proto.name!r} has the shape {list(shape)}")
        if proto.data_location == EXTERNAL:
            return self.outside(proto, dtype, shape)
        if dtype == TEXT:
            if len(proto.string_data) != prod(shape):
                raise OnnxError(
                    f"the tensor {proto.name!r} has {len(proto.string_data)} strings for {list(shape)}"
                )
            texts = np.empty(prod(shape), object)
            texts[:] = [_text(each) for each in proto.string_data]
            return texts.reshape(shape)
        if proto.HasField("raw_data") and len(proto.raw_data) < _bytes_of(dtype, prod(shape)):
            raise OnnxError(
                f"the tensor {proto.name!r} has too few bytes for {list(shape)} of {dtype}",
                f"bytes: {len(proto.raw_data)}",
            )
        if not proto.HasField("raw_data") and prod(shape) > 16 * _listed(proto) + 1:
            raise OnnxError(f"the tensor {proto.name!r} has too few numbers for {list(shape)}")
        try:
            return numpy_helper.to_array(proto)
        except Exception as error:
            raise OnnxError(f"the tensor {proto.name!r} can't be read", str(error)) from None

    def outside(self, proto: Any, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """A tensor that lies in a file beside the model's: in its folder, and a plain file.  It is mapped."""
        about = {each.key: each.value for each in proto.external_data}
        location = about.get("location", "")
        if self.folder is None:
            raise OnnxError(
                f"the tensor {proto.name!r} lies in {location!r}, and a model of bytes has no folder"
            )
        parts = Path(location).parts
        path = self.folder.joinpath(*parts) if parts else self.folder
        inside = (
            bool(parts) and not Path(location).is_absolute() and ".." not in parts and "\\" not in location
        )
        if not inside or self.folder not in path.resolve().parents:
            raise OnnxError(f"the tensor {proto.name!r} lies outside of the model's folder: {location!r}")
        try:
            offset, length = int(about.get("offset", 0)), int(about.get("length", -1))
            info = os.stat(path, follow_symlinks=False)
        except (OSError, ValueError) as error:
            raise OnnxError(
                f"the tensor {proto.name!r} can't be read from {location!r}", str(error)
            ) from None
        if not stat.S_ISREG(info.st_mode):
            raise OnnxError(f"the tensor {proto.name!r} lies in {location!r}, which is no plain file")
        nbytes = _bytes_of(dtype, prod(shape))
        if offset < 0 or offset + nbytes > info.st_size or length not in (-1, nbytes):
            raise OnnxError(
                f"the tensor {proto.name!r} is to be {nbytes} bytes at {offset} of {location!r}",
                f"its size: {info.st_size}",
            )
        if not nbytes:
            return np.empty(shape, dtype)
        raw = np.asarray(np.memmap(path, np.uint8, "r", offset, (nbytes,)))
        if dtype.itemsize * prod(shape) == nbytes and bits_of(dtype) >= 8:
            return raw.view(dtype).reshape(shape)
        inner = onnx.TensorProto(dims=shape, data_type=proto.data_type, raw_data=raw.tobytes())
        return numpy_helper.to_array(inner)

    def dense(self, proto: Any) -> np.ndarray:
        """A sparse tensor, with its zeros."""
        values, indices, shape = self.array(proto.values), self.array(proto.indices), tuple(proto.dims)
        if any(size < 0 for size in shape) or prod(shape) > 1 << 31:
            raise OnnxError(f"a sparse tensor has the shape {list(shape)}")
        flat = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), shape, mode="wrap")
        if flat.size != values.size or flat.size and not 0 <= flat.min() <= flat.max() < prod(shape):
            raise OnnxError("a sparse tensor has values outside of itself", f"shape: {list(shape)}")
        afford(shape, 2 * values.dtype.itemsize, "a sparse tensor")  # the module has a copy
        made = np.zeros(prod(shape), values.dtype)
        made[flat] = values
        return made.reshape(shape)


def _in_order(protos: Sequence[Any]) -> Sequence[Any]:
    """Nodes behind those that make what they read, else in their order: some converters append what is read
    first, and ONNX Runtime takes that.  In a circle they stay as they are."""
    makers = {name: at for at, each in enumerate(protos) for name in each.output if name}
    if all(makers.get(name, -1) < at for at, each in enumerate(protos) for name in each.input):
        return protos
    waits = [{makers[name] for name in _read_by(each) if name in makers} for each in protos]
    followers: dict[int, list[int]] = {}
    for at, makes in enumerate(waits):
        for before in makes:
            followers.setdefault(before, []).append(at)
    left = [len(makes) for makes in waits]
    ready = [at for at, count in enumerate(left) if not count]
    order: list[int] = []
    while ready:
        order.append(heapq.heappop(ready))
        for at in followers.get(order[-1], ()):
            left[at] -= 1
            if not left[at]:
                heapq.heappush(ready, at)
    return [protos[at] for at in order] if len(order) == len(protos) else protos


def _read_by(proto: Any) -> set[str]:
    """The names that a node reads, its graphs included."""
    found = {*proto.input}
    for attribute in proto.attribute:
        for graph in (attribute.g, *attribute.graphs):
            found.update(*map(_read_by, graph.node))
    return found


def _bytes_of(dtype: np.dtype, count: int) -> int:
    return -(-count * bits_of(dtype) // 8)


def _listed(proto: Any) -> int:
    fields: Sequence[str] = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
    return sum(len(getattr(proto, each)) for each in fields)


def _names(of: str, texts: Iterable[Any]) -> None:
    """Raises OnnxError for names that are no text: protobuf gives bytes for what is no UTF-8."""
    wrong = next((each for each in texts if type(each) is not str), None)
    if wrong is not None:
        raise OnnxError(f"{of} has names that are no text", f"name: {wrong!r}")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
