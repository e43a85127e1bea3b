"""Programs that ask for the values of tensors: branches, loops, running sums, sizes, texts."""

import math

from battery import lib as t
from battery import program


@program("values of tensors")
def a_branch_on_a_sum(w):
    @w.trace
    def f(x):
        if x.sum() > 2:
            return x * 2
        return x - 1

    for x in w.rounds(w.x, w.x - 1, w.x + 1):
        w.call(f, x)


@program("values of tensors")
def a_branch_against_a_captured_number(w):
    limit = 2.0

    @w.trace
    def f(x):
        return x * 2 if x.sum() > limit else x - 1

    for limit in w.rounds(2.0, 3.0, 2.5):
        w.call(f, w.x)


@program("values of tensors")
def a_loop_until_a_tensor_is_small(w):
    @w.trace
    def f(x):
        steps = 0
        while x.abs().max() > 1:
            x = x / 2
            steps += 1
        return x, steps

    for factor in w.rounds(1, 3, 0.1):
        w.call(f, w.x * factor)


@program("values of tensors")
def an_item_is_returned(w):
    @w.trace
    def f(x):
        return x.sum().item(), float(x[0]), int(x[2]), bool(x[1] < 0), x.tolist()

    for x in w.rounds(w.x, w.x * 2, -w.x):
        w.call(f, x)


@program("values of tensors")
def an_item_is_a_factor(w):
    @w.trace
    def f(x):
        return x * x.max().item()

    for x in w.rounds(w.x, w.x * 2, w.x * 3):
        w.call(f, x)


@program("values of tensors")
def an_item_is_a_size(w):
    @w.trace
    def f(x, n):
        return t.zeros(int(n.sum())) + x.sum(), x[: int(n[0])]

    for n in w.rounds([1, 2], [2, 2], [0, 0]):
        w.call(f, w.x, t.tensor(n))


@program("values of tensors")
def an_item_is_an_index_of_a_list(w):
    choices = [t.sin, t.cos, t.exp]

    @w.trace
    def f(x, i):
        return choices[i](x) + choices[i.item() - 1](x)

    for i in w.rounds(0, 2, 1):
        w.call(f, w.x, t.tensor(i))


@program("values of tensors")
def the_count_of_nonzero_elements(w):
    @w.trace
    def f(x):
        found = x.nonzero()
        return len(found), found.sum(), x[x > 0]

    for x in w.rounds(w.x, w.x * 0, w.x.abs()):
        w.call(f, x)


@program("values of tensors")
def a_running_sum_of_losses(w):
    total = 0.0
    w.see(total=lambda: total)

    @w.trace
    def f(x):
        nonlocal total
        loss = (x * x).mean()
        total += loss.item()
        return loss

    for x in w.rounds(w.x, w.x * 2):
        w.call(f, x)


@program("values of tensors")
def a_running_sum_in_a_tensor(w):
    total = t.zeros(())
    w.see(total=lambda: total)

    @w.trace
    def f(x):
        nonlocal total
        loss = (x * x).mean()
        total = total + loss
        return loss

    for x in w.rounds(w.x, w.x * 2):
        w.call(f, x)


@program("values of tensors")
def the_best_loss_is_kept(w):
    best = math.inf
    w.see(best=lambda: best)

    @w.trace
    def f(x):
        nonlocal best
        loss = x.abs().sum()
        if loss < best:
            best = loss.item()
            print("better", round(best, 3))
        return loss

    for x in w.rounds(w.x, w.x * 0.5, w.x * 2):
        w.call(f, x)


@program("values of tensors")
def a_nan_takes_the_other_branch(w):
    @w.trace
    def f(x):
        y = x.sum()
        return x * 0 if not y == y else x * 2 if y <= 1e9 else x * 3

    for value in w.rounds(1.0, float("nan"), float("inf")):
        w.call(f, w.x * value)


@program("values of tensors")
def a_tensor_is_the_condition(w):
    @w.trace
    def f(x, flag):
        return x if flag and not x[0] > 1 else -x

    for flag in w.rounds(True, False):
        w.call(f, w.x, t.tensor(flag))
        w.call(f, w.x * 2, t.tensor(flag))


@program("values of tensors")
def the_truth_of_several_elements(w):
    @w.trace
    def f(x):
        return 1 if x else 2

    for x in w.rounds(w.x[:1], w.x, w.x[:1] * 0):
        w.call(f, x)


@program("values of tensors")
def all_any_and_equal(w):
    @w.trace
    def f(x, y):
        if t.equal(x, y):
            return "equal", x + 1
        if (x > y).all():
            return "above", y
        return ("some", x) if (x > y).any() else ("none", y)

    for y in w.rounds(w.x.clone(), w.x - 1, w.x + 1, w.x.abs() - 1):
        w.call(f, w.x, y)


@program("values of tensors")
def an_assertion_on_a_value(w):
    @w.trace
    def f(x):
        assert x.max() < 10, f"too large: {x.max().item():.1f}"
        return x * 2

    for factor in w.rounds(1, 4, 2):
        w.call(f, w.x * factor)


@program("values of tensors")
def an_exception_is_raised_on_a_value(w):
    seen = []
    w.see(seen=seen)

    @w.trace
    def f(x):
        try:
            if x[0] < 0:
                raise ValueError("negative")
            return x.sqrt()[0]
        except ValueError as error:
            seen.append(str(error))
            return x
        finally:
            seen.append("done")
            del seen[:-4]

    for x in w.rounds(w.x, -w.x):
        w.call(f, x)


@program("values of tensors")
def a_value_is_printed(w):
    @w.trace
    def f(x):
        y = x * 2
        print(f"loss {y.sum().item():.3f} of {tuple(y.shape)}", y[0])
        return y

    for x in w.rounds(w.x, w.x * 3):
        w.call(f, x)


@program("values of tensors")
def a_value_is_a_key(w):
    table = {1: "one", 3: "three"}

    @w.trace
    def f(x):
        return table.get(int(x.max()), "none"), x + len(table)

    for x in w.rounds(w.x, w.x * 2, w.x / 3):
        w.call(f, x)
        table[6] = "six"
        w.call(f, x)
        del table[6]


@program("values of tensors")
def rows_are_iterated(w):
    @w.trace
    def f(x):
        out = []
        for i, row in enumerate(x):
            out.append(row.sum() * i if row[0] > 0.7 else row.max())
        return out, [float(v) for v in x[0]]

    for x in w.rounds(w.m, -w.m, w.m[:1]):
        w.call(f, x)


@program("values of tensors")
def numpy_reads_the_values(w):
    @w.trace
    def f(x):
        array = (x * 2).numpy()
        return x + float(array[0]), array

    for x in w.rounds(w.x, w.x + 1):
        w.call(f, x)


@program("values of tensors")
def a_sort_decides(w):
    @w.trace
    def f(x):
        order = sorted(range(4), key=lambda i: x[i].item())
        return x[order[0]] * 2, order, max(x.tolist())

    for x in w.rounds(w.x, -w.x, w.x.flip(0)):
        w.call(f, x)


@program("values of tensors")
def a_question_between_two_writes(w):
    count = t.zeros(())
    w.see(count=count)

    @w.trace
    def f(x):
        count.add_(1)
        if x.sum() > 2:
            count.add_(10)
            x.mul_(0.5)
        else:
            x.add_(1.0)
        count.mul_(0.5)
        return x.clone()

    for x in w.rounds(w.x, w.x.clone()):
        w.call(f, x)


@program("values of tensors")
def a_step_size_is_halved_on_a_rise(w):
    state = {"lr": 0.1, "last": math.inf}
    w.see(state=state)

    @w.trace
    def f(x):
        loss = (x * x).sum()
        if loss > state["last"]:
            state["lr"] /= 2
        state["last"] = loss.item()
        return x - state["lr"] * x

    for x in w.rounds(w.x, w.x * 2):
        w.call(f, x)


@program("values of tensors")
def newton_steps_until_convergence(w):
    tolerance = 1e-3

    @w.trace
    def f(a):
        x = a.clone()
        for step in range(20):
            new = (x + a / x) / 2
            if (new - x).abs().max() < tolerance:
                return new, step
            x = new
        return x, -1

    for tolerance in w.rounds(1e-3, 1.0, -1.0):
        w.call(f, w.x.abs())
