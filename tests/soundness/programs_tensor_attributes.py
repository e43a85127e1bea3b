"""Programs that hang attributes on tensors, and read what hangs on them."""

from battery import lib as t
from battery import program


def tagged(x, **fields):
    for name, value in fields.items():
        setattr(x, name, value)
    return x


@program("tensor attributes")
def an_attribute_of_an_argument_changes(w):
    f = w.trace(lambda x: x * x.scale)
    for scale in w.rounds(2.0, 3.0, 2.0):
        w.call(f, tagged(w.x.clone(), scale=scale))


@program("tensor attributes")
def an_attribute_of_a_captured_tensor_comes_and_goes(w):
    weight = t.ones(4)

    @w.trace
    def f(x):
        return x * weight * (5 if getattr(weight, "frozen", False) else 2)

    def freeze():
        weight.frozen = True

    def thaw():
        del weight.frozen

    for change in w.rounds(freeze, thaw):
        change()
        w.call(f, w.x)


@program("tensor attributes")
def what_is_written_on_tensors_is_seen(w):
    @w.trace
    def f(x):
        y = x * 2
        y.made_of = x
        y.note = x.note if hasattr(x, "note") else "none"
        x.seen = True
        return y

    for note in w.rounds(None, "first", "second"):
        w.call(f, w.x.clone() if note is None else tagged(w.x.clone(), note=note))


@program("tensor attributes")
def a_list_that_hangs_on_a_tensor_is_appended_to(w):
    history = []
    w.see(history=history)

    @w.trace
    def f(x):
        y = x + 1
        y.history = history
        y.history.append("called")
        return y * 2

    for _ in w.rounds(1, 2):
        del history[:]
        w.call(f, w.x)


@program("tensor attributes")
def a_table_by_tensors_attribute_chooses(w):
    tables = [{"a": 2.0}, {"a": 3.0}]
    weight = tagged(t.ones(4), table=tables[0])
    f = w.trace(lambda x: x * weight.table["a"])
    for table in w.rounds(*tables):
        weight.table = table
        w.call(f, w.x)
