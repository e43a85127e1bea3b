"""What is kept for each set of sizes, when threads ask for many."""

import sys
import threading

from lamina.jit.sized import MOST_OWN, Sized


def test_threads_that_ask_for_many_sizes_disturb_each_other_nowhere():
    sized, wrong = Sized(["n"], lambda sizes: ("made of", sizes["n"]), lambda is_new: None), []

    def ask(start):
        try:
            for number in range(60_000):
                size = start + number % (2 * MOST_OWN)
                if sized.of((size,)) != ("made of", size) or sized.last[0] != "made of":
                    wrong.append(size)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask, args=(start,)) for start in (0, 1, 2)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert wrong == [] and len(sized) <= MOST_OWN + len(threads)


def test_the_last_is_the_one_that_was_asked_for():
    sized = Sized(["n"], lambda sizes: sizes["n"] * 10, lambda is_new: None)
    assert sized.last is None
    assert [sized.of((n,)) for n in (1, 2, 1)] == [10, 20, 10] and sized.last == 10
