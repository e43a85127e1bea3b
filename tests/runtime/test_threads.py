"""Many threads build and differentiate graphs at once, sharing parameters; modes belong to a thread."""

import threading

import pytest

import lamina


def run_in_threads(count: int, body) -> None:
    """Run `body(number)` in threads that start together; raise what any of them raised."""
    barrier, failures = threading.Barrier(count), []

    def guarded(number: int) -> None:
        barrier.wait()
        try:
            body(number)
        except BaseException as error:  # handed to the test
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def accumulate_in_eight_threads(times: int) -> None:
    w = lamina.tensor([1.0, 2.0], requires_grad=True)
    x = lamina.tensor([3.0, 4.0])

    def body(number: int) -> None:
        for _ in range(times // 8):
            (w * x + w).sum().backward()

    run_in_threads(8, body)
    assert w.grad.tolist() == [4.0 * times, 5.0 * times]


def test_eight_threads_accumulate_into_one_parameter():
    accumulate_in_eight_threads(80)


@pytest.mark.slow
def test_eight_threads_accumulate_a_thousand_times_over():
    for _ in range(1000):
        accumulate_in_eight_threads(8)


def test_the_same_history_differentiated_by_many_threads():
    w = lamina.tensor([1.0, 2.0], requires_grad=True)
    y = (w * w).sum()
    run_in_threads(8, lambda _: y.backward(retain_graph=True))
    assert w.grad.tolist() == [16.0, 32.0]


def test_no_grad_in_one_thread_is_not_seen_by_another():
    inside, done = threading.Event(), threading.Event()

    def quiet() -> None:
        with lamina.no_grad():
            inside.set()
            done.wait()

    thread = threading.Thread(target=quiet)
    thread.start()
    inside.wait()
    try:
        w = lamina.tensor([1.0], requires_grad=True)
        assert lamina.is_grad_enabled()
        assert (w * 2).requires_grad and w.view(1, 1).requires_grad and w.exp().requires_grad
    finally:
        done.set()
        thread.join()
    assert not lamina.runtime.modes.CHANGED


def test_threads_in_different_modes_stay_in_their_own():
    w = lamina.tensor([1.0], requires_grad=True)

    def body(number: int) -> None:
        for _ in range(300):
            if number % 2:
                with lamina.no_grad():
                    assert not (w * 2).requires_grad
            else:
                assert (w * 2).requires_grad

    run_in_threads(8, body)
    assert not lamina.runtime.modes.CHANGED


def test_one_generator_shared_by_threads_hands_out_every_number_once():
    generator = lamina.Generator().manual_seed(3)
    drawn = [None] * 8

    def body(number: int) -> None:
        drawn[number] = [lamina.rand(5, generator=generator).tolist() for _ in range(20)]

    run_in_threads(8, body)
    together = [tuple(row) for rows in drawn for row in rows]
    alone = lamina.Generator().manual_seed(3)
    expected = {tuple(lamina.rand(5, generator=alone).tolist()) for _ in range(160)}
    assert set(together) == expected
