"""The collector of garbage is put off while code is made, and comes back whatever happens."""

import gc
import os
import threading

import interrupting
import pytest

from lamina.ir import collector


def test_it_is_back_when_nobody_holds_it():
    assert gc.isenabled()
    held = collector.put_off()
    assert held is not None
    assert not gc.isenabled()
    assert collector.put_off() is None
    assert not gc.isenabled()
    del held
    assert gc.isenabled()


def test_an_error_brings_it_back():
    def fails():
        held = collector.put_off()
        assert not gc.isenabled()
        raise ValueError(held)

    with pytest.raises(ValueError) as error:
        fails()
    del error
    assert gc.isenabled()


def test_an_interrupt_at_any_step_brings_it_back():
    def run():
        held = collector.put_off()
        assert not gc.isenabled()
        del held

    steps = 0
    for _ in interrupting.at_each_step(run, lambda code: code.co_filename == collector.__file__):
        assert gc.isenabled()
        steps += 1
    assert steps > 5


def test_who_has_it_off_keeps_it_off():
    gc.disable()
    try:
        held = collector.put_off()
        del held
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_child_of_a_fork_has_it_on():
    entered, leave = threading.Event(), threading.Event()

    def stay():
        held = collector.put_off()
        entered.set()
        leave.wait()
        del held

    thread = threading.Thread(target=stay)
    thread.start()
    entered.wait()
    assert not gc.isenabled()
    child = os.fork()
    if not child:
        os._exit(0 if gc.isenabled() else 1)
    _, status = os.waitpid(child, 0)
    leave.set()
    thread.join()
    assert status == 0
    assert gc.isenabled()
