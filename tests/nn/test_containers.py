"""Sequences, lists and dictionaries of modules and of parameters."""

from collections import OrderedDict

import pytest

import lamina
import lamina.nn as nn
from lamina import ArgumentError, DimError


def kinds(container):
    return [type(m).__name__ for m in container]


def test_sequential_runs_slices_and_edits():
    a, b, c = nn.ReLU(), nn.Tanh(), nn.Sigmoid()
    s = nn.Sequential(a, b)
    assert s(lamina.tensor(-1.0)).item() == 0.0
    assert s.append(c) is s and len(s) == 3 and s[-1] is c and c in s
    assert isinstance(s[1:], nn.Sequential) and kinds(s[1:]) == ["Tanh", "Sigmoid"]
    del s[0]
    assert list(s._modules) == ["0", "1"] and s[0] is b
    s.insert(1, a)
    assert kinds(s) == ["Tanh", "ReLU", "Sigmoid"]
    s[0] = nn.GELU()
    assert kinds(s) == ["GELU", "ReLU", "Sigmoid"]
    assert s.pop(1) is a and kinds(s) == ["GELU", "Sigmoid"]
    assert kinds(s + nn.Sequential(a)) == ["GELU", "Sigmoid", "ReLU"]
    s += nn.Sequential(a)
    assert kinds(s.extend([b])) == ["GELU", "Sigmoid", "ReLU", "Tanh"]
    del s[1:3]
    assert list(s._modules) == ["0", "1"] and kinds(s) == ["GELU", "Tanh"]


def test_sequential_by_names():
    s = nn.Sequential(OrderedDict(conv=nn.ReLU(), act=nn.Tanh()))
    assert s.act is s[1] and list(s[:1]._modules) == ["conv"]
    del s[0]
    assert list(s._modules) == ["act"]


def test_sequential_refuses():
    with pytest.raises(ArgumentError, match="a child must be a Module or None, not function: '0'"):
        nn.Sequential(lambda x: x)
    with pytest.raises(DimError, match="Sequential has 1 items: there is no index 3"):
        nn.Sequential(nn.ReLU())[3]
    with pytest.raises(IndexError):
        nn.Sequential()[0]
    with pytest.raises(ArgumentError, match="other must be a Sequential, not list"):
        nn.Sequential() + []


def test_module_list():
    m = nn.ModuleList([nn.ReLU(), nn.Tanh()])
    m.insert(0, nn.GELU())
    m += [nn.Sigmoid()]
    assert kinds(m) == ["GELU", "ReLU", "Tanh", "Sigmoid"] and kinds(m[::2]) == ["GELU", "Tanh"]
    del m[1]
    assert list(m._modules) == ["0", "1", "2"] and isinstance(m + [nn.ReLU()], nn.ModuleList)
    with pytest.raises(ArgumentError, match="can't be called"):
        m(1)


def test_module_dict():
    m = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
    m["c"] = nn.GELU()
    m.update([("a", nn.Sigmoid())])
    assert list(m) == list(m.keys()) == ["a", "b", "c"] and kinds(m.values()) == ["Sigmoid", "Tanh", "GELU"]
    assert isinstance(m.pop("b"), nn.Tanh) and "b" not in m and len(m) == 2
    del m["a"]
    m.clear()
    assert not len(m) and not list(m.children())
    with pytest.raises(KeyError, match="attribute 'pop' already exists"):
        m["pop"] = nn.ReLU()


def test_parameter_list():
    p = nn.ParameterList([lamina.ones(2), nn.Parameter(lamina.zeros(1))])
    p.append("text").extend([lamina.ones(1)])
    assert [name for name, _ in p.named_parameters()] == ["0", "1", "3"]
    assert len(p) == 4 and p[2] == "text" and p[-1].tolist() == [1.0] and len(p[1:]) == 3
    p[0] = lamina.zeros(3)
    assert isinstance(p[0], nn.Parameter) and list(p.state_dict()) == ["0", "1", "3"]
    with pytest.raises(DimError):
        p[4]
    assert repr(p) == (
        "ParameterList(\n    (0): Parameter containing: [lamina.float32 of size 3]\n"
        "    (1): Parameter containing: [lamina.float32 of size 1]\n    (2): Object of type: str\n"
        "    (3): Parameter containing: [lamina.float32 of size 1]\n)"
    )


def test_parameter_dict_takes_mappings_by_key_and_pairs_in_order():
    p = nn.ParameterDict({"b": lamina.ones(1), "a": lamina.ones(1)})
    p.update([("d", lamina.ones(1)), ("c", lamina.ones(1))])
    p.update(OrderedDict(f=1, e=2))
    assert list(p) == ["a", "b", "d", "c", "f", "e"]


def test_parameter_dict():
    p = nn.ParameterDict({"a": lamina.ones(2)})
    p["b"] = nn.Parameter(lamina.zeros(1))
    p.update({"c": 3})
    assert list(p) == ["a", "b", "c"] and p.get("d", 5) == 5 and p["c"] == 3 and len(p) == 3
    assert list(p.state_dict()) == ["a", "b"] and list(reversed(p)) == ["c", "b", "a"]
    assert list((p | {"z": 1}).keys()) == ["a", "b", "c", "z"]
    assert p.popitem() == ("c", 3)
    del p["a"]
    assert "a" not in p and list(p.named_parameters())[0][0] == "b"
    with pytest.raises(KeyError):
        p["a"]
    with pytest.raises(KeyError, match="already exists"):
        p["keys"] = lamina.ones(1)


def test_parameter_dicts_take_pairs_as_pytorchs():
    d = nn.ParameterDict({"b": nn.Parameter(lamina.ones(2)), "a": 3})
    for given, kind, says in (
        (1, TypeError, "should be called with an iterable of key/value pairs, but got int"),
        ([1], TypeError, "element #0 should be Iterable; is int"),
        ([("a", 1), (1, 2, 3)], ValueError, "element #1 has length 3; 2 is required"),
    ):
        with pytest.raises(kind, match=says):
            d.update(given)
    made = {"z": nn.Parameter(lamina.ones(1))} | d
    assert type(made) is nn.ParameterDict and list(made) == ["z", "a", "b"] and made["b"] is d["b"]
    assert dict(d.fromkeys(["x", "y"], 2).items()) == {"x": 2, "y": 2}
    assert "(b): Parameter containing: [torch.FloatTensor of size 2]" in repr(d)
