"""Programs that hang attributes on tensors and copy them."""

import copy
import pickle

from tensor_programs import program, raised


@program
def attributes_hang_on_objects(t):
    x = t.ones(2)
    x.scale = 2
    x.list = [1]
    y = copy.deepcopy(x)
    z = copy.copy(x)
    again = pickle.loads(pickle.dumps(x))
    derived = x + 1, x.detach(), x.view(2), x.clone(), x[0]
    return (y.scale, y.list, y.list is x.list, z.list is x.list, again.list,
            [hasattr(d, "scale") for d in derived], raised(getattr, x, "none"), sorted(vars(x)))  # fmt: skip


@program
def attributes_of_parameters(t):
    p = t.nn.Parameter(t.ones(2))
    p.is_decoder = True
    p.grad = t.ones(2)
    q = copy.deepcopy(p)
    again = pickle.loads(pickle.dumps(p))
    return hasattr(q, "is_decoder"), q.grad, q, again.is_decoder, again.grad, again


@program
def attributes_that_hold_tensors(t):
    x, y = t.ones(2), t.zeros(2)
    x.other, y.other = y, x
    a = copy.deepcopy(x)
    return a.other is not y, a.other


@program
def attributes_are_deleted(t):
    x = t.ones(2)
    x.a = 1
    del x.a

    def delete():
        del x.a

    return hasattr(x, "a"), raised(delete), vars(x)


@program
def attributes_stay_under_writes(t):
    x = t.ones(2)
    x.a = 1
    y = x.add_(1)
    x.data = t.zeros(3)
    return y is x, y.a, x.a, x


@program
def a_number_of_a_tensor_alone(t):
    module = t.nn.Linear(2, 2)
    x, held = module.weight, dict(module.named_parameters())["weight"]
    y = x.detach()
    return type(x._cdata), x._cdata == held._cdata, x._cdata == y._cdata, x._cdata == x.view(4)._cdata
