"""The Open Inference Protocol, version 2, over HTTP, with its extension for binary tensors.

Source: github.com/kserve/open-inference-protocol, specification/protocol/inference_rest.md, and Triton's
protocol/extension_binary_data.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..ir.version import __version__
from .bounded_json import written
from .fleet import Fleet
from .gate import Call, call_of
from .own_front import computed, lists_of
from .refusals import Refusal
from .served_models import VERSION, TensorModel, TextModel
from .wire_arrays import DATATYPES, MOST_DIMS, Spec, in_order, of_bytes, of_lists, to_bytes

LENGTH = "Inference-Header-Content-Length"


def tensor_described(spec: Spec) -> dict:
    """An input or output as the protocol writes it: sizes that change are -1."""
    shape = [n if isinstance(n, int) else -1 for n in spec.shape]
    return {"name": spec.name, "datatype": DATATYPES[spec.dtype], "shape": shape}


def flag(where: Any, name: str, of: str) -> bool | None:
    """A parameter that is true or false, if it is there.  Raises Refusal."""
    parameters = where.get("parameters", {})
    if not isinstance(parameters, dict):
        raise Refusal(400, f"parameters of {of} is an object")
    value = parameters.get(name)
    if value is not None and not isinstance(value, bool):
        raise Refusal(400, f"the parameter {name} of {of} is true or false")
    return value


class Asked:
    """An inference request, read.  Raises Refusal for what the protocol does not allow.

    arrays: by name.  id: the client's, or nothing.  outputs: names that are wanted, and whether as bytes.
    """

    def __init__(self, head: Any, tail: memoryview, model: TensorModel):
        if not isinstance(head, dict):
            raise Refusal(400, "an inference request is an object")
        self.id = head.get("id")
        if self.id is not None and (not isinstance(self.id, str) or len(self.id) > 1000):
            raise Refusal(400, "id is a string, of 1000 characters at most", param="id")
        self.arrays: dict[str, np.ndarray] = {}
        given: dict[str, dict] = {}
        for entry in _entries(head, "inputs"):
            if entry["name"] in given:
                raise Refusal(400, f"input {entry['name'][:100]!r} came twice", param=entry["name"])
            given[entry["name"]] = entry
        by_name = {spec.name: (spec, entry) for spec, entry in in_order(given, model.inputs)}
        at = 0
        for name in given:  # bytes lie in the order of the request
            spec, entry = by_name[name]
            shape = _shape(entry, spec)
            if entry.get("datatype") != DATATYPES[spec.dtype]:
                came = str(entry.get("datatype"))[:50]
                raise spec.refused(f"its datatype is {DATATYPES[spec.dtype]}, {came} came")
            parameters = entry.get("parameters", {})
            size = parameters.get("binary_data_size") if isinstance(parameters, dict) else "?"
            if size is None:
                if "data" not in entry:
                    raise spec.refused("data is missing")
                self.arrays[name] = of_lists(entry["data"], spec, shape)
                continue
            if "data" in entry or type(size) is not int or not 0 <= size <= len(tail) - at:
                raise spec.refused(
                    "binary_data_size is a number of bytes that follow the JSON, and then there is no data"
                )
            self.arrays[name] = of_bytes(tail[at : at + size], spec, shape)
            at += size
        if at != len(tail):
            raise Refusal(400, f"{len(tail) - at} bytes behind the JSON belong to no input")
        whole = flag(head, "binary_data_output", "the request") or False
        self.outputs = {spec.name: whole for spec in model.outputs}
        if head.get("outputs"):
            wanted = _entries(head, "outputs")
            unknown = [entry["name"][:100] for entry in wanted if entry["name"] not in self.outputs]
            if unknown:
                raise Refusal(
                    400, f"the model's outputs are {', '.join(self.outputs)}, not {', '.join(unknown[:5])}"
                )
            said = {entry["name"]: flag(entry, "binary_data", "an output") for entry in wanted}
            self.outputs = {name: whole if one is None else one for name, one in said.items()}


def _entries(head: dict, what: str) -> list[dict]:
    entries = head.get(what)
    if not isinstance(entries, list) or not all(
        isinstance(x, dict) and isinstance(x.get("name"), str) for x in entries
    ):
        raise Refusal(400, f"{what} is a list of objects with a name", param=what)
    return entries


def _shape(entry: dict, spec: Spec) -> list[int]:
    shape = entry.get("shape")
    if isinstance(shape, list) and len(shape) <= MOST_DIMS:
        if all(type(n) is int and 0 <= n < 1 << 40 for n in shape):
            return shape
    raise spec.refused("its shape is a list of sizes")


def written_answer(
    call: Call, model: TensorModel, asked: Asked, found: dict[str, np.ndarray]
) -> tuple[bytes, dict[str, str], str]:
    """The body of an answer, its further headers, and its kind."""
    arrays = {name: found[name] for name in asked.outputs}
    lists = lists_of(call, {n: x for n, x in arrays.items() if not asked.outputs[n]}, "ask for binary_data")
    entries, tail = [], []
    for spec in model.outputs:
        if spec.name not in arrays:
            continue
        array = arrays[spec.name]
        entry = tensor_described(spec) | {"shape": [*array.shape]}
        if spec.name in lists:
            entry["data"] = _flat(lists[spec.name], array.ndim)
        else:
            entry["parameters"] = {"binary_data_size": array.nbytes}
            tail.append(to_bytes(array))
        entries.append(entry)
    head: dict[str, Any] = {"model_name": model.name, "model_version": VERSION}
    if asked.id is not None:
        head["id"] = asked.id
    text = written(head | {"outputs": entries})
    if not tail:
        return text, {}, "application/json"
    return b"".join([text, *tail]), {LENGTH: str(len(text))}, "application/octet-stream"


def _flat(value: Any, ndim: int) -> list:
    """Nested lists as one, in the order of rows."""
    if ndim == 0:
        return [value]
    for _ in range(ndim - 1):
        value = [x for inner in value for x in inner]
    return value


def routes(fleet: Fleet) -> list[Route]:
    """The protocol's paths, for these models."""

    def says(value: Any) -> Response:
        return Response(written(value), media_type="application/json")

    async def live(request: Request) -> Response:
        call_of(request, "v2")
        return says({"live": True})

    async def ready(request: Request) -> Response:
        call_of(request, "v2")
        return says({"ready": True})

    async def server(request: Request) -> Response:
        call_of(request, "v2")
        return says({"name": "lamina", "version": __version__, "extensions": ["binary_tensor_data"]})

    def model_of(request: Request) -> TensorModel:
        call = call_of(request, "v2")
        model = fleet.tensors(request.path_params["name"])
        call.model = model.name
        has_version(request, model.name)
        return model

    def has_version(request: Request, name: str) -> None:
        version = request.path_params.get("version", VERSION)
        if version != VERSION:
            raise Refusal(404, f"{name} has the version {VERSION}, not {version[:100]!r}")

    async def model_ready(request: Request) -> Response:
        name = request.path_params["name"]
        call_of(request, "v2")
        if isinstance(fleet.models.get(name), TextModel):
            has_version(request, name)
        else:
            model_of(request)
        return says({"name": name, "ready": True})

    async def model_described(request: Request) -> Response:
        model = model_of(request)
        return says(
            {
                "name": model.name,
                "versions": [VERSION],
                "platform": model.platform,
                "inputs": [*map(tensor_described, model.inputs)],
                "outputs": [*map(tensor_described, model.outputs)],
            }
        )

    async def infer(request: Request) -> Response:
        model = model_of(request)
        call = call_of(request, "v2")
        body = await call.body()
        length = request.headers.get(LENGTH)
        if length is not None and (not length.isdecimal() or len(length) > 18 or int(length) > len(body)):
            raise Refusal(
                400, f"{LENGTH} is the length of the JSON ahead of {len(body)} bytes, not {length[:50]!r}"
            )
        split = len(body) if length is None else int(length)
        head = call.parsed(body if length is None else body[:split])
        asked = Asked(head, memoryview(body)[split:], model)
        found = await computed(fleet, model, asked.arrays)
        call.hold(sum(x.nbytes for x in found.values()))
        text, headers, kind = written_answer(call, model, asked, found)
        return call.answer(text, kind, headers)

    found = [
        Route("/v2", server),
        Route("/v2/health/live", live),
        Route("/v2/health/ready", ready),
    ]
    for path in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
        found += [
            Route(path, model_described),
            Route(f"{path}/ready", model_ready),
            Route(f"{path}/infer", infer, methods=["POST"]),
        ]
    return found
