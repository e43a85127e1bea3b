"""Texts of errors, whole: rule, operands, remedy.  And that what is refused changes nothing."""

import numpy as np
import pytest

import lamina
from lamina import nn, optim
from lamina.ir.op import REGISTRY
from lamina.nn import functional as F
from lamina.runtime import dispatch
from lamina.utils.data import DataLoader, TensorDataset

x = lamina.ones(2, 3)
linear = nn.Linear(3, 4)


class Bare(nn.Module):
    def __init__(self):
        self.inner = nn.Linear(2, 2)


TEXTS = {
    "matmul": (
        lambda: x @ lamina.ones(4, 3),
        """matmul(a, b): the columns of a must equal the rows of b (3 != 4)
  a: f32[2,3]
  b: f32[4,3]
  matmul(a, b.T) would give f32[2,4]""",
    ),
    "add": (
        lambda: x + lamina.ones(2, 4),
        """add: sizes 3 and 4 of dimension -1 don't broadcast
  input: f32[2,3]
  other: f32[2,4]
  shapes [2, 3] and [2, 4]: a dimension must be equal, 1 or missing""",
    ),
    "linear: columns": (
        lambda: linear(lamina.ones(2, 5)),
        """linear(input, weight): the columns of input must equal the columns of weight (5 != 3)
  input: f32[2,5]
  weight: f32[4,3]
  bias: f32[4]
  a Linear for this input has in_features=5""",
    ),
    "linear: integers": (
        lambda: linear(lamina.ones(2, 3, dtype=lamina.int64)),
        """linear(input, weight, bias): the dtypes of input and weight must be equal (int64 and float32)
  input: i64[2,3]
  weight: f32[4,3]
  bias: f32[4]
  cast one: input.to(lamina.float32)""",
    ),
    "linear: NumPy's float64": (
        lambda: linear(np.ones((2, 3))),
        """linear(input, weight, bias): the dtypes of input and weight must be equal (float64 and float32)
  input: f64[2,3]
  weight: f32[4,3]
  bias: f32[4]
  cast one: input.to(lamina.float32)""",
    ),
    "matmul: integers": (
        lambda: x @ lamina.ones(3, 2, dtype=lamina.int64),
        """matmul(a, b): the dtypes of a and b must be equal (float32 and int64)
  a: f32[2,3]
  b: i64[3,2]
  cast one: b.to(lamina.float32)""",
    ),
    "linear: None": (
        lambda: linear(None),
        "linear(input, weight, bias): input must be a tensor, not NoneType",
    ),
    "relu: a list": (lambda: F.relu([1.0]), "relu(input): input must be a tensor or a number, not list"),
    "conv2d: None": (
        lambda: nn.Conv2d(1, 1, 1)(None),
        "conv2d(input, weight, bias): input must be a tensor, not NoneType",
    ),
    "conv2d: channels": (
        lambda: nn.Conv2d(3, 8, 3)(lamina.ones(1, 4, 8, 8)),
        """conv2d(input, weight): the channels of input must be weight.shape[1] * groups (4 != 3 * 1)
  input: f32[1,4,8,8]
  weight: f32[8,3,3,3]
  bias: f32[8]""",
    ),
    "cat: no list": (
        lambda: lamina.cat(x, x),
        """cat(): tensors must be tuple of Tensors, not Tensor
  write cat([a, b])""",
    ),
    "cat: None within": (
        lambda: lamina.cat([x, None]),
        "cat(*tensors): tensors must hold tensors, not NoneType",
    ),
    "cross_entropy: one-hot integers": (
        lambda: F.cross_entropy(x, lamina.tensor([[1, 0, 0], [0, 1, 0]])),
        """cross_entropy: a target of the scores' shape holds probabilities, not int64
  of one-hot rows target.argmax(1) makes indices, target.float() probabilities""",
    ),
    "cross_entropy: a class too many": (
        lambda: F.cross_entropy(x, lamina.tensor([0, 3])),
        """cross_entropy: target 3 is out of range for 3 classes
  targets lie in [0, 2], or are ignore_index=-100""",
    ),
    "attention: mask": (
        lambda: F.scaled_dot_product_attention(*[lamina.ones(1, 3, 4)] * 3, attn_mask=lamina.ones(5, 5)),
        """scaled_dot_product_attention: attn_mask must broadcast to [..., queries, keys]
  attn_mask [5, 5], and there are [3, 3] scores""",
    ),
    "x[index] = value": (
        lambda: x.__setitem__(0, lamina.ones(4)),
        "x[index] = value: shape mismatch: a value of shape [4] cannot be broadcast to what the index "
        "selects, [3]",
    ),
    "x[mask] = value": (
        lambda: x.__setitem__(x > 0, lamina.ones(4)),
        "x[index] = value: shape mismatch: a value of shape [4] cannot be broadcast to what the index "
        "selects, [6]",
    ),
    "to: a dtype's name": (
        lambda: x.to("float64"),
        """to('float64'): a dtype is no string
  lamina.float64 is that dtype""",
    ),
    "zeros: a dtype's name": (
        lambda: lamina.zeros(2, dtype="float32"),
        """zeros: dtype must be a lamina dtype, not 'float32'
  lamina.float32, for example""",
    ),
    "len of 0-d": (
        lambda: len(lamina.tensor(1)),
        """len() of a 0-d tensor
  x.numel() counts its elements: 1""",
    ),
    "clamp_min_ into integers": (
        lambda: lamina.arange(3).clamp_min_(0.5),
        """clamp_min_: a result of lamina.float32 can't be cast to lamina.int64, the dtype written
  written: i64[3]
  write y = clamp_min(…) to get a new tensor""",
    ),
    "fill_diagonal_ of a vector": (
        lambda: lamina.ones(3).fill_diagonal_(1),
        """fill_diagonal_: takes a matrix, or more dimensions of one size
  tensor: f32[3]""",
    ),
    "optimizer: a module": (
        lambda: optim.Adam(linear),
        """params must be an iterable of tensors or of dicts, not Linear
  pass module.parameters()""",
    ),
    "optimizer: nothing": (
        lambda: optim.SGD([], lr=0.1),
        """an optimizer got an empty list of parameters
  a module's parameters() can be gone through once: call it anew for each use""",
    ),
    "module: no super().__init__()": (
        Bare,
        """cannot assign modules before Module.__init__() call
  Bare.__init__ must begin with super().__init__()""",
    ),
    "Sequential: a class": (
        lambda: nn.Sequential(nn.Linear(2, 2), nn.ReLU),
        """a child must be a Module or None, not type: '1'
  ReLU is the class: ReLU() makes a module""",
    ),
    "Sequential: a list": (
        lambda: nn.Sequential([nn.Linear(2, 2)]),
        """a child must be a Module or None, not list: '0'
  unpack it: Sequential(*modules), or keep it as ModuleList(modules)""",
    ),
    "Sequential: a function": (
        lambda: nn.Sequential(F.relu),
        """a child must be a Module or None, not function: '0'
  only modules have parameters: nn.ReLU() is the module of the function relu, and so on""",
    ),
    "load_state_dict": (
        lambda: linear.load_state_dict({"weight": lamina.ones(3, 4), "bias": lamina.ones(4)}),
        """Error(s) in loading state_dict for Linear: the state does not fit the module; nothing was loaded
  size mismatch for weight: copying a param with shape f32[3,4] from the state into f32[4,3]""",
    ),
    "GRU: an LSTM's state": (
        lambda: nn.GRU(4, 5)(lamina.ones(2, 3, 4), (lamina.zeros(1, 3, 5), lamina.zeros(1, 3, 5))),
        "GRU: h_0 must be a tensor, not tuple",
    ),
    "loader: ragged": (
        lambda: next(iter(DataLoader([lamina.ones(2), lamina.ones(3)], batch_size=2))),
        """default_collate: the samples' tensors must have one shape
  sample 0: f32[2]
  sample 1: f32[3]
  pass a collate_fn that brings them to one shape, for example by nn.utils.rnn.pad_sequence""",
    ),
    "dataset: lengths": (
        lambda: TensorDataset(lamina.ones(3), lamina.ones(4)),
        """TensorDataset(*tensors): the tensors must have one length
  tensor 0: f32[3]
  tensor 1: f32[4]""",
    ),
    "complex numbers": (
        lambda: lamina.ones(2, dtype=lamina.complex32),
        """ones: dtype must be a lamina dtype, not torch.complex32, which is not built: complex64 is
  lamina.float32, for example""",
    ),
    "what is not built": (
        lambda: lamina.sparse_bsr_tensor,
        """Lamina has no sparse_bsr_tensor
  blocks are not built: sparse_csr_tensor is""",
    ),
    "a misspelt op": (lambda: lamina.softmaxx, "module 'lamina' has no 'softmaxx'"),
    "NumPy's out": (
        lambda: np.add(np.ones(3), lamina.ones(3), out=np.ones(3)),
        """np.add(out=…) does not take tensors
  give it x.detach().numpy(), an array over the same memory""",
    ),
    "a function of NumPy's only": (
        lambda: np.spacing(lamina.ones(3)),
        """np.spacing has no counterpart for tensors
  give it x.detach().numpy(), an array over the same memory""",
    ),
    "quantile": (lambda: lamina.quantile(x, 1.5), "quantile: q lies in [0, 1]: 1.5"),
    "cdist": (
        lambda: lamina.cdist(x, lamina.ones(2, 4)),
        "cdist(x1, x2): they are [..., m, k] and [..., n, k], not [2, 3] and [2, 4]",
    ),
    "lstsq": (
        lambda: lamina.linalg.lstsq(x, lamina.ones(2)),
        """linalg_lstsq(A, B): takes [..., m, n] and [..., m, k], not [2, 3], [2]
  B.unsqueeze(-1) makes a matrix of a vector""",
    ),
}


@pytest.mark.parametrize("call, text", TEXTS.values(), ids=TEXTS)
def test_an_error_reads(call, text):
    with pytest.raises(Exception) as caught:
        call()
    assert str(caught.value) == text


def test_what_is_refused_changes_nothing():
    kept = {name: p.detach().clone() for name, p in linear.named_parameters()}
    optimizer = optim.SGD(linear.parameters(), lr=0.1)
    for wrong in (
        lambda: x.__setitem__(0, lamina.ones(4)),
        lambda: x.copy_(lamina.ones(5)),
        lambda: x.addmm_(lamina.ones(2, 2), lamina.ones(3, 3)),
        lambda: linear.load_state_dict({"bias": lamina.zeros(4), "weight": lamina.zeros(3, 4)}),
        lambda: optimizer.add_param_group({"params": [lamina.ones(1, requires_grad=True), linear.weight]}),
        lambda: setattr(linear, "weight", lamina.ones(4, 3)),
        lambda: linear.add_module("weight", nn.ReLU()),
    ):
        with pytest.raises(Exception):  # noqa: B017 - each of its own class
            wrong()
    assert lamina.equal(x, lamina.ones(2, 3)) and x.grad_fn is None
    assert all(lamina.equal(p, kept[name]) for name, p in linear.named_parameters())
    assert len(optimizer.param_groups) == 1 and not list(linear.children())


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
def test_losses_of_shapes_that_broadcast_warn(name):
    with pytest.warns(UserWarning, match=rf"{name}: input \[4, 1\] and target \[4\] broadcast") as caught:
        getattr(F, name)(lamina.ones(4, 1), lamina.zeros(4))
    assert caught[0].filename == __file__


def test_an_operand_that_is_missing_is_asked_for():
    x = lamina.ones(3)
    with pytest.raises(lamina.ArgumentError, match="lerp"):
        lamina.lerp(x, x)
    with pytest.raises(lamina.ArgumentError, match="lerp"):
        lamina.lerp(x, x, None)


OF_SEVERAL = sorted(name for name, op in REGISTRY.items() if not op.variadic and len(op.operands) > 1)


@pytest.mark.parametrize("name", OF_SEVERAL)
def test_an_absent_operand_is_named_whatever_the_ranks(name):
    """Rules of shapes pass over operands that are None: those of a 0-d tensor would take what may not be."""
    op = REGISTRY[name]
    call = f"{name}({', '.join(op.operands)})"
    for x in (lamina.tensor(2.0), lamina.ones(3)):
        for n, absent in enumerate(op.operands[1:], 1):
            if absent in op.optional:
                continue
            operands = tuple(None if i == n else x for i in range(len(op.operands)))
            with pytest.raises(lamina.ArgumentError) as caught:
                dispatch.plan_for(op, operands, {})
            assert str(caught.value) == f"{call}: {absent} must be a tensor, not NoneType"
