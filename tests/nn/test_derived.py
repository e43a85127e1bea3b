"""Classes derived from Lamina's, by the private names that PyTorch's have and libraries replace or call."""

import copy
import pickle

import numpy as np
import pytest

import lamina
from lamina import nn
from lamina.nn import functional as F


class Standardised(nn.Conv2d):
    def forward(self, x):
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return self._conv_forward(x, weight, self.bias)


class Doubled(nn.Conv2d):
    def _conv_forward(self, input, weight, bias):
        return super()._conv_forward(input, 2 * weight, bias)


@pytest.mark.parametrize("mode", ["zeros", "reflect"])
def test_convolutions_by_other_weights(mode):
    x = lamina.randn(2, 3, 6, 6)
    settings = {"padding": 1, "padding_mode": mode, "stride": 2}
    plain = nn.Conv2d(3, 4, 3, **settings)
    for kind, weight in (
        (Standardised, plain.weight - plain.weight.mean((1, 2, 3), keepdim=True)),
        (Doubled, 2 * plain.weight),
    ):
        derived = kind(3, 4, 3, **settings)
        derived.load_state_dict(plain.state_dict())
        padded = x if mode == "zeros" else F.pad(x, derived._reversed_padding_repeated_twice, mode=mode)
        wanted = F.conv2d(padded, weight, plain.bias, 2, 1 if mode == "zeros" else 0)
        for function in (derived, lamina.jit.trace(derived)):
            for _ in range(3):
                np.testing.assert_allclose(function(x).detach().numpy(), wanted.detach().numpy(), atol=1e-5)


def test_a_transposed_convolution_tells_its_output_padding():
    conv = nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1)
    x = lamina.randn(1, 3, 5, 5)
    sizes = conv.stride, conv.padding, conv.kernel_size
    assert conv._output_padding(x, [10, 9], *sizes, 2, conv.dilation) == [1, 0]
    assert conv._output_padding(x, None, *sizes, 2) == [0, 0]
    assert conv(x, output_size=[10, 9]).shape == (1, 4, 10, 9)
    with pytest.raises(lamina.ir.errors.ShapeError, match="is not between"):
        conv._output_padding(x, [11, 9], *sizes, 2)


class AnyRank(nn.modules.batchnorm._BatchNorm):
    def _check_input_dim(self, input):
        self.seen = input.ndim


class AnyInstance(nn.modules.instancenorm._InstanceNorm):
    def _check_input_dim(self, input):
        assert input.ndim == 4

    def _get_no_batch_dim(self):
        return 3


def test_norms_of_other_ranks():
    x = lamina.randn(5, 3, 2, 2, 2, 2)
    norm = AnyRank(3)
    wanted = F.batch_norm(x.reshape(5, 3, 16), None, None, training=True).reshape(x.shape)
    np.testing.assert_allclose(norm(x).detach().numpy(), wanted.numpy(), atol=1e-5)
    assert norm.seen == 6
    y = x[..., 0, 0]
    np.testing.assert_allclose(AnyInstance(3)(y).numpy(), nn.InstanceNorm2d(3)(y).numpy(), atol=1e-6)
    for kind in (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm):
        with pytest.raises(NotImplementedError, match="which ranks it takes"):
            kind(3)(x)


class Recorded:
    """Writes down which blocks were called."""

    def _note(self, name, x):
        self.__dict__.setdefault("blocks", []).append(name)
        return x


class Encoder(Recorded, nn.TransformerEncoderLayer):
    def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
        return self._note("self", super()._sa_block(x, attn_mask, key_padding_mask, is_causal))

    def _ff_block(self, x):
        return self._note("feed", super()._ff_block(x))


class Decoder(Recorded, nn.TransformerDecoderLayer):
    def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
        return self._note("self", super()._sa_block(x, attn_mask, key_padding_mask, is_causal))

    def _mha_block(self, x, mem, attn_mask, key_padding_mask, is_causal=False):
        return self._note("other", super()._mha_block(x, mem, attn_mask, key_padding_mask, is_causal))

    def _ff_block(self, x):
        return self._note("feed", super()._ff_block(x))


@pytest.mark.parametrize("norm_first", [False, True])
def test_blocks_of_a_transformers_layers(norm_first):
    x, memory = lamina.randn(4, 2, 8), lamina.randn(3, 2, 8)
    for derived, plain, given, blocks in (
        (Encoder, nn.TransformerEncoderLayer, (x,), ["self", "feed"]),
        (Decoder, nn.TransformerDecoderLayer, (x, memory), ["self", "other", "feed"]),
    ):
        one, other = (kind(8, 2, 16, dropout=0.0, norm_first=norm_first) for kind in (derived, plain))
        other.load_state_dict(one.state_dict())
        np.testing.assert_allclose(one(*given).detach().numpy(), other(*given).detach().numpy(), atol=1e-6)
        assert one.blocks == blocks


def test_tables_sequences_and_calls():
    table = nn.Embedding(4, 2, padding_idx=1)
    with lamina.no_grad():
        table.weight.fill_(3.0)
    table._fill_padding_idx_with_zero()
    assert table.weight.tolist() == [[3, 3], [0, 0], [3, 3], [3, 3]]
    chain = nn.Sequential(nn.ReLU(), nn.Tanh())
    assert chain._get_item_by_idx(iter(chain), -1) is chain[1]
    assert nn.ModuleList(chain)._get_abs_string_index(-1) == "1"
    with pytest.raises(lamina.ir.errors.DimError):
        chain._get_item_by_idx(iter(chain), 2)
    x = lamina.randn(3)
    assert chain._call_impl(x).tolist() == chain._wrapped_call_impl(x).tolist() == chain(x).tolist()
    recurrent = nn.LSTM(2, 3, proj_size=1, bidirectional=True)
    recurrent._update_flat_weights()
    ends = [
        f"{kind}_l0{end}"
        for end in ("", "_reverse")
        for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
    ]
    assert sum(recurrent._all_weights, []) == ends == recurrent._flat_weights_names
    modes = [
        each.mode
        for each in (recurrent, nn.GRU(2, 3), nn.RNN(2, 3), copy.deepcopy(nn.RNN(2, 3, nonlinearity="relu")))
    ]
    assert modes == ["LSTM", "GRU", "RNN_TANH", "RNN_RELU"]


class Warmup(lamina.optim.lr_scheduler.LRScheduler):
    """As they are derived from PyTorch's, with all that the class there lets them ask."""

    def __init__(self, optimizer, steps, last_epoch=-1):
        self.steps = steps
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        assert self._get_lr_called_within_step
        return [base * min(1.0, (self.last_epoch + 1) / self.steps) for base in self.base_lrs]

    def step(self, epoch=None):
        self._step_count += 1
        super().step(epoch)


def test_schedules_and_optimizers():
    weight = nn.Parameter(lamina.ones(2))

    class Plain(lamina.optim.Optimizer):
        def __init__(self, params, lr=0.1):
            super().__init__(params, {"lr": lr})

        @lamina.no_grad()
        def step(self, closure=None):
            self._cuda_graph_capture_health_check()
            for group in self.param_groups:
                params = [p for p in group["params"] if p.grad is not None]
                grads = [p.grad for p in params]
                for lists, places in self._group_tensors_by_device_and_dtype([params, grads], True).values():
                    assert places == [*range(len(params))]
                    for p, grad in zip(*lists, strict=True):
                        p.add_(grad, alpha=-group["lr"])

    optimizer = Plain([weight], lr=1.0)
    schedule = Warmup(optimizer, 4)
    rates = [schedule.get_last_lr()[0]]
    for _ in range(4):
        weight.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        rates += schedule.get_last_lr()
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0] and not schedule._is_initial
    assert weight.tolist() == [1 - 2.5] * 2


class Aged(lamina.optim.SGD):
    """Gives groups of old states what they lacked, as PyTorch's optimizers do."""

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("warm", 3)


def test_optimizers_are_asked_about_old_states():
    weight = nn.Parameter(lamina.ones(2))
    optimizer = Aged([weight], lr=0.5, momentum=0.5)
    weight.sum().backward()
    optimizer.step()
    for again in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert again.param_groups[0]["warm"] == 3 and again.param_groups[0]["lr"] == 0.5
        assert type(again) is Aged and len(again.state) == 1
    assert "warm" not in optimizer.param_groups[0]
    optimizer.load_state_dict(optimizer.state_dict())
    assert optimizer.param_groups[0]["warm"] == 3
    optimizer.step()
    assert weight.tolist() == [1 - 0.5 - 0.5 * 1.5] * 2
