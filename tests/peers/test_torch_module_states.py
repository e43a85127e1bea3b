"""Hooks, states, lazy modules, gradients of convolutions, schedules: step by step the same as PyTorch's."""

import copy
import importlib
import pickle
import warnings
from collections import OrderedDict, UserDict, namedtuple

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the peer here: pip install lamina[peers]")

import lamina  # noqa: E402

BOTH = (torch, lamina)


Pair = namedtuple("Pair", "first second")


def answers(program):
    """What a program tells on PyTorch and on Lamina."""
    return [program(world) for world in BOTH]


def same(program):
    theirs, ours = answers(program)
    assert theirs == ours


def test_a_state_tells_versions_of_modules():
    def program(t):
        model = t.nn.Sequential(t.nn.Linear(2, 2), t.nn.BatchNorm1d(2))
        return dict(model.state_dict()._metadata)

    same(program)


def test_hooks_of_a_child_see_its_part_of_a_state_and_its_version():
    def program(t):
        model = t.nn.Sequential(t.nn.Linear(2, 2), t.nn.Sequential(t.nn.BatchNorm1d(2)))
        seen = []
        model[1].register_load_state_dict_pre_hook(
            lambda m, state, prefix, local, *rest: seen.append((sorted(state), prefix, dict(local)))
        )
        model.load_state_dict(model.state_dict())
        model.load_state_dict(model.state_dict(), assign=True)
        return seen

    same(program)


@pytest.mark.parametrize("strict", [True, False])
def test_hooks_after_loading_add_to_what_is_missing_and_take_away(strict):
    def program(t):
        model = t.nn.ModuleList([t.nn.Linear(1, 1)])
        told = []

        def add(module, keys):
            keys.missing_keys.append("foo")

        handle = model[0].register_load_state_dict_post_hook(add)
        try:
            told.append(model.load_state_dict(model.state_dict(), strict=strict).missing_keys)
        except RuntimeError as error:
            told.append("foo" in str(error))
        handle.remove()
        model[0].register_load_state_dict_post_hook(lambda m, keys: keys.missing_keys.clear())
        told.append(model.load_state_dict({"0.bias": t.ones(1)}, strict=strict).missing_keys)
        return told, model[0].bias.item()

    same(program)


def test_global_hooks_are_forgotten_where_their_dictionaries_are_replaced():
    def program(t):
        file = importlib.import_module(f"{t.__name__}.nn.modules.module")
        calls = []
        t.nn.modules.module.register_module_forward_hook(lambda *_: calls.append(1))
        t.nn.ReLU()(t.ones(1))
        file._global_forward_hooks = OrderedDict()
        t.nn.ReLU()(t.ones(1))
        return calls, len(file._global_forward_hooks)

    same(program)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_backward_hooks_return_as_many_gradients_as_there_are(count):
    def program(t):
        module, x = t.nn.Sigmoid(), t.ones(2, requires_grad=True)
        module.register_full_backward_hook(lambda m, given, out: (t.ones(2),) * count)
        try:
            module(x).sum().backward()
        except RuntimeError as error:
            return f"got {count}, but expected 1" in str(error)
        return x.grad.tolist()

    same(program)


def test_modules_with_backward_hooks_keep_named_tuples_and_warn_of_dicts():
    def program(t):
        model = t.nn.Identity()
        model.register_full_backward_hook(lambda *_: None)
        pair = Pair(t.ones(1, requires_grad=True), t.ones(1))
        kind = type(model(pair)) is type(pair)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            model({"x": t.ones(1, requires_grad=True)})
        return kind, ["should be a Tensor or a tuple of Tensors" in str(w.message) for w in told]

    same(program)


def test_hooks_that_are_always_called_run_after_hooks_that_fail():
    def program(t):
        model, stack = t.nn.ReLU(), []

        def fails(*_):
            raise ValueError("first")

        model.register_forward_pre_hook(fails)
        model.register_forward_hook(lambda *_: stack.append("seen"), always_call=True)
        model.register_forward_hook(fails, always_call=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(ValueError, match="first"):
                model(t.ones(1))
        return stack, len(model._forward_hooks_always_called), len(model._forward_hooks_with_kwargs)

    same(program)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_of_lazy_modules_become_ordinary_ones(copied):
    def program(t):
        model = copied(t.nn.LazyLinear(3))
        model(t.ones(2, 4))
        again = copied(model)
        return type(again).__name__, tuple(again(t.ones(2, 4)).shape), len(again._forward_pre_hooks)

    same(program)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("side", ["input", "weight"])
def test_gradients_of_convolutions(n, side):
    draw = torch.Generator().manual_seed(n)
    x = torch.randn(2, 4, *(7,) * n, generator=draw, dtype=torch.float64)
    w = torch.randn(6, 2, *(3,) * n, generator=draw, dtype=torch.float64)
    settings = {"stride": 2, "padding": 1, "groups": 2}
    out = torch.randn(2, 6, *(4,) * n, generator=draw, dtype=torch.float64)

    def program(t):
        a, b, c = (t.from_numpy(v.numpy()) for v in (x, w, out))
        first = (tuple(x.shape), b) if side == "input" else (a, tuple(w.shape))
        return getattr(t.nn.grad, f"conv{n}d_{side}")(*first, c, **settings).numpy()

    theirs, ours = answers(program)
    # at most 2 * 4**3 * 6 products of normal numbers are added up
    assert theirs.shape == ours.shape and abs(theirs - ours).max() < 768 * 2.0**-53 * 8


def test_tensors_with_history_are_pickled_without_it():
    def program(t):
        made = pickle.loads(pickle.dumps(t.ones(2, requires_grad=True) * 2))
        return made.tolist(), made.requires_grad, made.is_leaf

    same(program)


@pytest.mark.parametrize(
    "family", ["batchnorm._BatchNorm", "conv._ConvNd", "loss._Loss", "dropout._DropoutNd"]
)
def test_private_bases_stand_where_programs_look_for_them(family):
    def program(t):
        file, name = family.split(".")
        base = getattr(importlib.import_module(f"{t.__name__}.nn.modules.{file}"), name)
        kinds = (
            t.nn.BatchNorm2d(2),
            t.nn.Conv1d(1, 1, 1),
            t.nn.ConvTranspose2d(1, 1, 1),
            t.nn.MSELoss(),
            t.nn.Dropout(),
        )
        return [isinstance(module, base) for module in kinds]

    same(program)


def test_an_empty_weight_is_told_of_and_stays():
    def program(t):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            t.nn.init.kaiming_uniform_(t.empty(0, 1))
        return [str(w.message) for w in told]

    same(program)


def test_trees_are_mapped_leaf_by_leaf():
    def program(t):
        trees = importlib.import_module(f"{t.__name__}.utils._pytree")
        tree = {"a": [1, (2, None)], "b": 3.0}
        leaves, spec = trees.tree_flatten(tree)
        return (
            leaves, trees.tree_unflatten(leaves, spec), trees.tree_map(repr, tree), trees.tree_leaves(tree),
            trees.tree_map_only(int, lambda x: x + 1, tree), trees.tree_any(lambda x: x == 3.0, tree),
        )  # fmt: skip

    same(program)


def test_hooks_of_states_are_shown_as_they_are_called():
    def program(t):
        module, told = t.nn.Linear(1, 1), []
        module.register_state_dict_pre_hook(lambda *args: told.append(("before", len(args))))
        module.register_state_dict_post_hook(lambda *args: told.append(("after", len(args))))
        module._register_state_dict_hook(lambda *args: told.append(("replacing", len(args))))
        module.register_load_state_dict_pre_hook(lambda *args: told.append(("bound", len(args))))
        module._register_load_state_dict_pre_hook(lambda *args: told.append(("bare", len(args))))
        module.register_load_state_dict_post_hook(lambda *args: told.append(("loaded", len(args))))
        calls = {
            "_state_dict_pre_hooks": (module, "", True),
            "_state_dict_hooks": (module, {}, "", {}),
            "_load_state_dict_pre_hooks": ({}, "", {}, True, [], [], []),
            "_load_state_dict_post_hooks": (module, None),
        }
        for name, args in calls.items():
            for hook in getattr(module, name).values():
                hook(*args)
        return told

    same(program)


def test_hooks_of_what_is_registered_are_shown():
    def program(t):
        file = importlib.import_module(f"{t.__name__}.nn.modules.module")
        told = []
        for kind in ("parameter", "buffer", "module"):
            shown = getattr(file, f"_global_{kind}_registration_hooks")
            handle = getattr(file, f"register_module_{kind}_registration_hook")(lambda *args: len(args))
            told += [hook(1, 2, 3) for hook in shown.values()]
            handle.remove()
            told.append(len(shown))
        return told

    same(program)


def test_a_state_that_answers_calls_of_torch_functions_is_loaded():
    class State(UserDict):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    def program(t):
        module = t.nn.Linear(1, 1)
        module.load_state_dict(State(weight=t.ones(1, 1), bias=t.zeros(1)))
        return module.weight.tolist()

    same(program)


def test_members_are_swapped_whatever_they_are():
    def program(t):
        swap = importlib.import_module(f"{t.__name__}.nn.utils._named_member_accessor").swap_tensor
        module = t.nn.BatchNorm1d(1)
        module.plain = t.full((1,), 7.0)
        told = [swap(module, name, t.full((1,), 3.0)).tolist() for name in ("weight", "running_var", "plain")]
        told += [module.weight.tolist(), "weight" in module._parameters, module.plain.tolist()]
        nothing = swap(module, "new", t.ones(1), allow_missing=True)
        told += [module.new.tolist(), swap(module, "new", nothing).tolist(), hasattr(module, "new")]
        try:
            swap(module, "absent", t.ones(1))
        except AttributeError:
            told.append("refused")
        return told

    same(program)


def test_places_of_containers_have_a_name():
    def program(t):
        layers = t.nn.ModuleList([t.nn.ReLU(), t.nn.Tanh()])
        layers.__setitem__(idx=0, module=t.nn.Sigmoid())
        weights = t.nn.ParameterList([t.ones(1), t.zeros(1)])
        found = weights.__getitem__(idx=1).tolist(), repr(layers.__getitem__(idx=0))
        layers.__delitem__(idx=0)
        return *found, len(layers)

    same(program)


class Wrapped:
    """What a module of a program's own does with its attributes, as Lightning's modules do."""

    def __getstate__(self):
        return {**self.__dict__, "trainer": None}


def test_a_state_of_all_attributes_is_copied():
    def program(t):
        class Net(Wrapped, t.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.weight = t.nn.Linear(1, 1), t.nn.Parameter(t.ones(1))
                self.register_buffer("count", t.zeros(1))
                self.register_parameter("none", None)
                self.trainer = [1]

        net = Net()
        again = copy.deepcopy(net)
        again.weight.data += 1
        again.layer = t.nn.Linear(1, 2)
        names = [name for name, _ in again.named_parameters()]
        return (
            names,
            again.trainer,
            again.none,
            again.layer.out_features,
            net.weight.item(),
            "layer" in again._modules,
        )

    same(program)


RULES = {
    "StepLR": (1, 0.5), "ExponentialLR": (0.5,), "CosineAnnealingLR": (10, 0.1), "MultiStepLR": ([1, 2], 0.1),
    "LinearLR": (0.1, 1, 5), "ConstantLR": (0.5, 2), "PolynomialLR": (5,),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_groups_that_join_later_follow_a_schedule(rule):
    def program(t):
        optimizer = t.optim.SGD([t.nn.Parameter(t.ones(1))], lr=1.0)
        schedule, rates = getattr(t.optim.lr_scheduler, rule)(optimizer, *RULES[rule]), []
        for i in range(4):
            optimizer.step()
            schedule.step()
            if not i:
                optimizer.add_param_group({"params": [t.nn.Parameter(t.ones(1))], "lr": 0.3})
            rates += [group["lr"] for group in optimizer.param_groups]
        return rates

    theirs, ours = answers(program)
    assert ours == pytest.approx(theirs, rel=1e-12)


def test_averaged_rates_go_on_from_where_they_are_begun():
    def program(t):
        optimizer = t.optim.SGD([t.nn.Parameter(t.ones(1))], lr=1.0)
        optimizer.param_groups[0]["initial_lr"] = 1.0
        schedule, told = t.optim.swa_utils.SWALR(optimizer, 0.1, 3, last_epoch=8), []
        for i in range(4):
            optimizer.step()
            schedule.step()
            told += [round(optimizer.param_groups[0]["lr"], 9), schedule._step_count, schedule.last_epoch]
            if i == 1:
                state = schedule.state_dict()
                schedule = t.optim.swa_utils.SWALR(optimizer, 0.1, 3, last_epoch=8)
                schedule.load_state_dict(state)
        return told

    same(program)
