"""What can't be planned is refused with the rule, the numbers and the way out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.planning import DEVICES, Layout, Mesh, PlanError, plan, transformer

TEXT = "layers=8,hidden=512,heads=8,vocab=8192,seq=256"

FOUR_HEADS, SHORT, THREE_LAYERS = (
    TEXT.replace(*pair) for pair in (("heads=8", "heads=4"), ("256", "24"), ("layers=8", "layers=3"))
)

REFUSED = {
    "mesh_zero": ({"mesh": "0x8"}, r"plan\(mesh\): devices of a node x nodes, both at least 1, not '0x8'"),
    "mesh_words": ({"mesh": "many"}, r"not 'many'\n  8x64 are 64 nodes of 8 devices"),
    "mesh_negative": ({"mesh": -8}, "at least 1, not -8"),
    "mesh_half_a_node": ({"mesh": 12}, r"12 devices don't fill nodes of 8\n  write the shape, as in 6x2"),
    "device": ({"device": "abacus"}, r"no device 'abacus' in the table\n  one of: a100-40, .*, cpu"),
    "batch_zero": ({"batch": 0}, r"plan\(batch\): samples of a step, an int of at least 1, not 0"),
    "batch_kind": ({"batch": 2.5}, "not 2.5"),
    "precision": ({"precision": "bf12"}, r"plan\(precision\): one of fp32, .*, not 'bf12'"),
    "precision_of_device": ({"precision": "fp8", "device": "a100-80"}, r"has no fp8\n  it has: fp32, tf32"),
    "optimizer": ({"optimizer": "magic"}, r"plan\(optimizer\): one of sgd, .*, not 'magic'"),
    "measured": ({"measured": 0}, r"plan\(measured\): seconds, above 0, not 0"),
    "too_few": ({"layout": "dp=4"}, r"must be the devices of the mesh \(4 != 8\)\n  layout: dp=4"),
    "too_many": ({"layout": "dp=4,tp=4"}, r"\(16 != 8\)"),
    "batch_divides": ({"layout": "dp=8", "batch": 12}, r"must divide the batch \(8 x 1, 12\)"),
    "heads": ({"layout": "tp=8", "model": FOUR_HEADS}, r"tp must divide heads \(8, 4\)"),
    "experts": ({"layout": "dp=8,ep=4"}, r"ep must divide the experts \(4, 0\)"),
    "experts_of_data": ({"layout": "tp=8,ep=4"}, r"ep must divide dp x cp \(4, 1\)"),
    "context": ({"layout": "cp=8", "model": SHORT}, r"2 x cp must divide the tokens .*\(8, 24\)"),
    "layers": ({"layout": "pp=8", "model": THREE_LAYERS}, r"\(3 < 6\)\n  model: gpt of 3"),
    "rounds": ({"layout": "pp=8,chunks=2", "batch": 12}, r"\(12 micro-batches, pp=8\)\n  use chunks=1"),
    "axis_zero": ({"layout": "dp=0"}, r"Layout\(dp\): an int of at least 1, not 0"),
    "axis_unknown": ({"layout": "xp=8"}, r"there is no 'xp'\n  one of: dp, tp, pp"),
    "axis_word": ({"layout": "dp=eight"}, "dp is a whole number, not 'eight'"),
    "axis_twice": ({"layout": "dp=8,dp=8"}, "dp is given twice"),
    "no_value": ({"layout": "dp"}, "name=value, separated by commas, not 'dp'"),
    "zero": ({"layout": "dp=8,zero=4"}, r"Layout\(zero\): 0, 1, 2 or 3, not 4"),
    "recompute": ({"layout": "dp=8,recompute=some"}, "one of none, selective, full, not 'some'"),
    "order": ({"layout": "dp=8,order=dp-tp"}, r"Layout\(order\): tp, cp, dp, pp in some order"),
    "flag": ({"layout": "dp=8,overlap=maybe"}, "overlap is 0 or 1, not 'maybe'"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_plan_is_refused(name):
    arguments, text = REFUSED[name]
    with pytest.raises(PlanError, match=f"(?s){text}"):
        plan(
            arguments.get("model", TEXT),
            **({"mesh": "8x1"} | {k: v for k, v in arguments.items() if k != "model"}),
        )


TRANSFORMERS = {
    "nothing": ("", "transformer: '' is not known\n  one of: gpt3-175b"),
    "name": ("gpt9", "'gpt9' is not known"),
    "missing": ("layers=2,hidden=8", "heads, vocab, seq must be given"),
    "unknown": (f"{TEXT},colour=1", "there is no 'colour'"),
    "zero": (TEXT.replace("layers=8", "layers=0"), r"transformer\(layers\): at least 1, not 0"),
    "very_many": (TEXT.replace("layers=8", "layers=999999999999"), r"layers\): at most 100000, not"),
    "negative": (TEXT.replace("layers=8", "layers=-1"), "layers is a whole number, not '-1'"),
    "heads": (TEXT.replace("heads=8", "heads=7"), r"transformer\(heads\): must divide hidden \(7, 512\)"),
    "kv_heads": (f"{TEXT},kv_heads=3", r"kv_heads\): must divide heads \(3, 8\)"),
    "attention": (f"{TEXT},attention=none", "fused or stored, not 'none'"),
    "top": (f"{TEXT},experts=2,top=3", r"top\): at most experts \(3 > 2\)"),
}


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_transformer_is_refused(name):
    text, message = TRANSFORMERS[name]
    with pytest.raises(PlanError, match=message):
        transformer(text)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text):
    for read in (transformer, Layout.parse, lambda text: Mesh.parse(text, 8)):
        try:
            made = read(text)
        except PlanError as error:
            assert str(error)
        else:
            assert made is not None


@given(st.builds(
    Layout, dp=st.integers(1, 9), tp=st.integers(1, 9), pp=st.integers(1, 9), cp=st.integers(1, 3),
    micro_batch=st.integers(1, 9), chunks=st.integers(1, 3), zero=st.integers(0, 3), overlap=st.booleans(),
    recompute=st.sampled_from(["none", "selective", "full"]),
    order=st.permutations(["tp", "cp", "dp", "pp"]).map(tuple),
))  # fmt: skip
def test_a_layout_is_read_as_it_is_printed(layout):
    assert Layout.parse(str(layout)) == layout


def test_a_mesh_is_read_as_it_is_printed():
    assert Mesh.parse("8x64", 8) == Mesh.parse(" 8 X 64 ", 4) == Mesh.parse(512, 8) == Mesh(8, 64)
    assert str(Mesh(8, 64)) == "8x64" and Mesh.parse(4, 8) == Mesh(4, 1)


def test_every_device_has_a_rate_for_what_it_is_asked():
    for name, device in DEVICES.items():
        assert device.name == name and device.peak["fp32"] <= device.peak["tf32"] <= device.peak["bf16"]
        assert device.node.bandwidth > device.network.bandwidth and 0 < device.products < 1
