"""Files that a run makes in memory: what is read of them tells every number that was written."""

import contextlib
import csv
import io
import json
import pickle
import pprint

import numpy as np
import pytest

import lamina
from lamina import jit


class Upper(io.StringIO):
    def write(self, text):
        return super().write(text.upper())


class Lines(list):
    def write(self, text):
        self.append(text)


def shown(*values, **how):
    """What print() writes."""
    out = io.StringIO()
    print(*values, file=out, **how)
    return out.getvalue()


def held(kind, *pieces):
    """What a file holds that was given these pieces."""
    out = kind()
    for piece in pieces:
        out.write(piece)
    return out.getvalue()


def after(act, kind=io.StringIO):
    """What a file holds once something was done with it."""
    out = kind()
    act(out)
    return out.getvalue()


def back(read, text):
    """What a reader makes of a file that was written and wound back."""
    out = io.StringIO()
    print(text, end="\n1\n2\n", file=out)
    out.seek(0)
    return read(out)


def of_bytes(text):
    out = io.TextIOWrapper(io.BytesIO())
    out.write(text)
    out.flush()
    return out.buffer.getvalue()


def redirected(n, v):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        print(n, v)
    return out.getvalue()


def saved(n, x):
    out = io.BytesIO()
    lamina.save({"a": n, "x": x}, out)
    out.seek(0)
    return lamina.load(out)["a"]


def closed(text):
    out = io.StringIO()
    with out:
        out.write(text)
        found = out.getvalue()
    return found, out.closed


def told(text):
    out = io.StringIO()
    return out.write(text), out.tell(), out.truncate(1), out.seek(0), out.read()


def stated(text):
    out = io.StringIO()
    out.__setstate__((text, "\n", 0, None))
    return out.getvalue()


def listed(text):
    out = Lines()
    print(text, 2, file=out)
    return list(out)


def skipped(n):
    out = io.BytesIO(b"abcdef")
    out.seek(n % 3)
    into = bytearray(2)
    return out.read(n % 2 + 1), out.tell(), out.readinto(into), bytes(into)


# Of a count n that is one more at each call, an answer v, and the tensor x.
BODIES = {
    "written": lambda n, v, x: held(io.StringIO, f"{n};", str(v)),
    "written by a class of the user's": lambda n, v, x: held(Upper, f"{n};", str(v)),
    "bytes": lambda n, v, x: held(io.BytesIO, bytes([n]), b"%d" % n, str(v).encode()),
    "formatted": lambda n, v, x: held(io.StringIO, "%d" % n, "{:.1f}".format(v), str(n).zfill(3)),  # noqa: UP031, UP032
    "printed": lambda n, v, x: shown(n, v),
    "a tensor printed": lambda n, v, x: shown(x),
    "parted by it": lambda n, v, x: shown("a", "b", sep=str(n), end=str(v)),
    "printed into a list": lambda n, v, x: listed(n),
    "given at first": lambda n, v, x: io.StringIO(str(n)).getvalue(),
    "lines written": lambda n, v, x: after(lambda out: out.writelines([str(n), str(v)])),
    "read": lambda n, v, x: back(io.StringIO.read, n),
    "a line": lambda n, v, x: back(io.StringIO.readline, v),
    "lines": lambda n, v, x: back(io.StringIO.readlines, v),
    "gone through": lambda n, v, x: back(lambda out: [line.strip() for line in out], n),
    "the next": lambda n, v, x: back(next, v),
    "joined": lambda n, v, x: back("".join, n),
    "a list of it": lambda n, v, x: back(list, n),
    "csv read": lambda n, v, x: back(lambda out: list(csv.reader(out)), n),
    "csv written": lambda n, v, x: after(lambda out: csv.writer(out).writerow([n, v])),
    "json": lambda n, v, x: after(lambda out: json.dump({"a": n, "b": v}, out)),
    "pprint": lambda n, v, x: after(lambda out: pprint.pprint({"a": n, "b": v}, stream=out)),
    "pickle": lambda n, v, x: after(lambda out: pickle.dump([n, v], out), io.BytesIO),
    "np.save": lambda n, v, x: after(lambda out: np.save(out, np.array([n, v])), io.BytesIO),
    "a checkpoint": lambda n, v, x: saved(n, x),
    "a buffer": lambda n, v, x: bytes(io.BytesIO(bytes([n])).getbuffer()),
    "wrapped": lambda n, v, x: of_bytes(str(n)),
    "redirected": lambda n, v, x: redirected(n, v),
    "closed": lambda n, v, x: closed(str(n)),
    "where it stands": lambda n, v, x: told(str(v)),
    "its state": lambda n, v, x: stated(str(n)),
    "somewhere in it": lambda n, v, x: skipped(n),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_what_is_read_of_it_is_what_was_written(body):
    def ran(decorate):
        count = [0]

        @decorate
        def f(x):
            count[0] += 1
            return x * 2, body(count[0], x.sum().item(), x)

        inputs = [lamina.full((2,), 10.0 ** (i % 3) + i) for i in range(8)]
        return [(y.tolist(), told) for y, told in map(f, inputs)]

    assert ran(jit.trace) == ran(lambda f: f)


def test_it_compiles():
    @jit.trace
    def f(x):
        out = io.StringIO()
        print("sum", 3, file=out)
        out.write("done")
        return x * 2, out.getvalue()

    for _ in range(5):
        assert f(lamina.ones(3))[1] == "sum 3\ndone"
    assert f.counts()["served"] >= 3, f.explain()
