"""Programs that print, log, warn and count: each effect happens in order, and as often as undecorated."""

from __future__ import annotations

import logging
import sys
import warnings

from battery import program


class Bar:
    """A progress bar as libraries draw them: it rewrites one line of the errors' stream."""

    def __init__(self, total):
        self.total, self.n, self.postfix = total, 0, {}

    def update(self, by=1):
        self.n += by
        sys.stderr.write(f"\r{self.n}/{self.total} {self.postfix}")
        sys.stderr.flush()

    def set_postfix(self, **values):
        self.postfix = values


@program("effects")
def prints_a_constant(w):
    step = 1.0

    @w.trace
    def f(x):
        print("called")
        return x * step

    for step in w.rounds(1.0, 2.0):
        w.call(f, w.x)


@program("effects")
def prints_a_number_that_changes(w):
    step = 1

    @w.trace
    def f(x):
        print("step", step, sep="=", end=";\n")
        return x * step

    for step in w.rounds(1, 2, 1):
        w.call(f, w.x)


@program("effects")
def prints_a_counter(w):
    step = 0

    @w.trace
    def f(x):
        nonlocal step
        step += 1
        print(f"step {step:03d}")
        return x * 2

    for step in w.rounds(0, 50):
        w.call(f, w.x)


@program("effects")
def prints_a_value_of_a_tensor(w):
    @w.trace
    def f(x):
        y = x * 2
        print("first", y[0].item())
        return y + 1

    for by in w.rounds(1.0, 2.0, 1.0):
        w.call(f, w.x * by)


@program("effects")
def prints_a_tensor(w):
    @w.trace
    def f(x):
        print(x * 2)
        return x + 1

    for by in w.rounds(1.0, 2.0):
        w.call(f, w.x * by)


@program("effects")
def prints_the_shape(w):
    @w.trace
    def f(x):
        print(tuple(x.shape), x.dtype, x.requires_grad)
        return x + 1

    for x in w.rounds(w.x, w.m, w.x):
        w.call(f, x)


@program("effects")
def prints_around_a_branch_on_a_value(w):
    @w.trace
    def f(x):
        print("before")
        if x.sum() > 0:
            print("positive")
            x = x + 1
        else:
            print("negative")
            x = x - 1
        print("after")
        return x * 2

    for sign in w.rounds(1.0, -1.0, 1.0, -1.0):
        w.call(f, w.x * sign)


@program("effects")
def print_goes_to_the_stream_of_the_moment(w):
    class Stream:
        def __init__(self):
            self.lines = []

        def write(self, text):
            self.lines.append(text)

        def flush(self):
            pass

    one, two = Stream(), Stream()
    w.see(one=one, two=two)

    @w.trace
    def f(x):
        print("hello")
        return x * 2

    w.undo(setattr, sys, "stdout", sys.stdout)
    for sys.stdout in w.rounds(one, two, one):
        w.call(f, w.x)


@program("effects")
def print_to_a_file_that_is_named(w):
    class Stream:
        def __init__(self):
            self.lines = []

        def write(self, text):
            self.lines.append(prefix + text)

    stream, prefix = Stream(), "a:"
    w.see(stream=stream)

    @w.trace
    def f(x):
        print("hello", file=stream)
        return x * 2

    for prefix in w.rounds("a:", "b:"):
        w.call(f, w.x)


@program("effects")
def print_itself_is_replaced(w):
    lines = []
    w.see(lines=lines)

    @w.trace
    def f(x):
        print("hello")
        return x * 2

    for quiet in w.rounds(False, True, False):
        globals().pop("print", None)
        if quiet:
            globals()["print"] = lambda *texts: lines.append(texts)
        w.call(f, w.x)
    globals().pop("print", None)


@program("effects")
def prints_an_object_with_a_repr(w):
    class Thing:
        def __repr__(self):
            return f"Thing({value})"

    thing, value = Thing(), 1

    @w.trace
    def f(x):
        print(thing, [thing])
        return x * 2

    for value in w.rounds(1, 2, 1):
        w.call(f, w.x)


@program("effects")
def prints_a_list_that_changed_since(w):
    held = [1]

    @w.trace
    def f(x):
        print(held)
        held.append(2)
        print(held)
        return x * 2

    w.see(held=held)
    for held[:] in w.rounds([1], [5, 5]):
        w.call(f, w.x)


@program("effects")
def writes_to_the_stream_without_print(w):
    line = "a"

    @w.trace
    def f(x):
        sys.stdout.write(f"line {line}\n")
        return x * 2

    for line in w.rounds("a", "b", "a"):
        w.call(f, w.x)


@program("effects")
def logs_with_arguments(w):
    epoch = 1

    @w.trace
    def f(x):
        w.logger.info("epoch %d of %s", epoch, "many")
        return x * epoch

    for epoch in w.rounds(1, 2, 1):
        w.call(f, w.x)


@program("effects")
def the_level_of_a_logger_changes(w):
    @w.trace
    def f(x):
        w.logger.info("shown or not")
        w.logger.warning("shown")
        return x * 2

    for level in w.rounds(logging.INFO, logging.ERROR, logging.WARNING):
        w.logger.setLevel(level)
        w.call(f, w.x)


@program("effects")
def a_logger_is_asked_for_its_level(w):
    @w.trace
    def f(x):
        return x * 2 if w.logger.isEnabledFor(logging.INFO) else x * 3

    for level in w.rounds(logging.INFO, logging.ERROR, logging.INFO):
        w.logger.setLevel(level)
        w.call(f, w.x)


@program("effects")
def logging_is_disabled_for_all(w):
    w.undo(logging.disable, logging.NOTSET)

    @w.trace
    def f(x):
        w.logger.info("perhaps")
        return x * 2

    for level in w.rounds(logging.NOTSET, logging.CRITICAL, logging.NOTSET):
        logging.disable(level)
        w.call(f, w.x)


@program("effects")
def a_filter_is_added_to_a_logger(w):
    def no(record):
        return False

    @w.trace
    def f(x):
        w.logger.info("perhaps")
        return x * 2

    for quiet in w.rounds(False, True, False):
        (w.logger.addFilter if quiet else w.logger.removeFilter)(no)
        w.call(f, w.x)


@program("effects")
def a_warning_each_time(w):
    text = "one"

    @w.trace
    def f(x):
        warnings.warn(text, RuntimeWarning, stacklevel=2)
        return x * 2

    for text in w.rounds("one", "two", "one"):
        w.call(f, w.x)


@program("effects")
def warnings_become_errors(w):
    @w.trace
    def f(x):
        warnings.warn("beware", UserWarning, stacklevel=1)
        return x * 2

    for action in w.rounds("always", "error", "always"):
        warnings.simplefilter(action)
        w.call(f, w.x)


@program("effects")
def a_progress_bar_moves(w):
    bar = Bar(10)

    @w.trace
    def f(x):
        y = x * 2
        bar.set_postfix(loss=1.5)
        bar.update()
        return y

    w.see(bar=bar)
    for bar.n in w.rounds(0, 5):
        w.call(f, w.x)


@program("effects")
def a_progress_bar_shows_a_loss(w):
    bar = Bar(10)

    @w.trace
    def f(x):
        loss = (x * 2).sum()
        bar.set_postfix(loss=float(loss))
        bar.update()
        return loss

    w.see(bar=bar)
    for by in w.rounds(1.0, 2.0, 1.0):
        w.call(f, w.x * by)


@program("effects")
def a_bar_around_a_loop(w):
    def drawn(values):
        bar = Bar(len(values))
        for value in values:
            yield value
            bar.update()

    values = [1.0, 2.0]

    @w.trace
    def f(x):
        for value in drawn(values):
            x = x * value
        return x

    for values[:] in w.rounds([1.0, 2.0], [2.0], [1.0, 2.0]):
        w.call(f, w.x)
