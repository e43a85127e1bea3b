"""The server's own interface: arrays by name, as JSON or as safetensors, and back as they came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .bounded_json import written
from .fleet import Fleet
from .gate import Call, call_of
from .refusals import Refusal
from .served_models import TensorModel
from .wire_arrays import in_order, of_lists, of_safetensors, to_lists, to_safetensors

BINARY = ("application/x-safetensors", "application/octet-stream")
TEXT = ("application/json", "application/x-www-form-urlencoded")  # the second is what curl -d says
LIST_BYTES = 40  # that a number takes as an item of a list and as text


def kind_of(request: Request) -> str:
    return request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()


async def computed(
    fleet: Fleet, model: TensorModel, given: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The model's outputs by name.  Raises Refusal."""
    arrays = [array for _, array in in_order(given, model.inputs)]
    model.check(arrays)
    outputs = await fleet.batchers[model.name](arrays)
    return {spec.name: array for spec, array in zip(model.outputs, outputs, strict=True)}


def lists_of(call: Call, arrays: Mapping[str, np.ndarray], binary: str) -> dict[str, Any]:
    """Arrays as nested lists.  Raises Refusal for too many numbers: `binary` says how to get them then."""
    most, elements = call.gate.bounds.values, sum(x.size for x in arrays.values())
    if elements > most:
        raise Refusal(
            413, f"the outputs have {elements:,} elements, more than JSON is written of ({most:,}): {binary}"
        )
    call.hold(LIST_BYTES * elements)
    return {name: to_lists(array) for name, array in arrays.items()}


def routes(fleet: Fleet) -> list[Route]:
    """The path of the interface, for these models."""

    async def run(request: Request) -> Response:
        call = call_of(request, "own")
        model = fleet.tensors(request.path_params["name"])
        call.model = model.name
        kind = kind_of(request)
        if kind in BINARY:
            outputs = await computed(fleet, model, of_safetensors(await call.body()))
            call.hold(sum(x.nbytes for x in outputs.values()))
            return call.answer(to_safetensors(outputs), BINARY[0])
        if kind not in TEXT:
            raise Refusal(415, f"a body is application/json or {BINARY[0]}, not {kind[:100]!r}")
        asked = await call.json()
        inputs = asked.get("inputs") if isinstance(asked, dict) else None
        if not isinstance(inputs, dict) or len(asked) > 1:
            raise Refusal(400, 'the body is {"inputs": {NAME: nested lists, …}}', param="inputs")
        given = {spec.name: of_lists(value, spec) for spec, value in in_order(inputs, model.inputs)}
        outputs = await computed(fleet, model, given)
        lists = lists_of(call, outputs, f"send {BINARY[0]}")
        return call.answer(written({"outputs": lists}))

    return [Route("/v1/models/{name}", run, methods=["POST"])]
