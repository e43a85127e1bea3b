"""Compressed bodies: the same answers, and bounds on what they unpack to."""

import gzip
import json
import zlib
from functools import partial

import pytest
from server_process import Client, in_thread, write_small

from lamina.serving.bounds import Bounds
from lamina.serving.content_coding import PIECE, Unpacker
from lamina.serving.refusals import Refusal
from lamina.serving.served_models import opened

PATH = "/v1/models/small"
ASKED = json.dumps({"inputs": {"input": [[1, 2, 3, 4, 5, 6, 7, 8]]}}).encode()
packed = partial(gzip.compress, mtime=0)  # the same bytes at any time: they are tests' parameters


def raw(data):
    made = zlib.compressobj(wbits=-15)
    return made.compress(data) + made.flush()


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "small.lam"
    write_small(path)
    bounds = Bounds(body=200_000, bodies=600_000)
    with in_thread([opened("small", path, bounds)], bounds) as port:
        made = Client(port)
        yield made
        made.http.close()


@pytest.mark.parametrize(
    "coding, pack",
    [("gzip", gzip.compress), ("x-gzip", gzip.compress), (" GZip", gzip.compress), ("deflate", zlib.compress),
     ("deflate", raw), ("identity", bytes)],
)  # fmt: skip
def test_a_packed_body_is_answered_as_a_plain_one(client, coding, pack):
    plain = client.json("POST", PATH, ASKED)
    assert plain[0] == 200
    for _ in range(3):  # each gives back what it held
        assert client.json("POST", PATH, pack(ASKED), Content_Encoding=coding) == plain


@pytest.mark.parametrize(
    "coding, body, status, told",
    [
        ("gzip", packed(b" " * 50_000_000), 413, "larger than 200,000"),
        ("deflate", raw(b" " * 50_000_000), 413, "larger than 200,000"),
        ("gzip", packed(ASKED)[:-9], 400, "cut short"),
        ("gzip", b"", 400, "cut short"),
        ("gzip", packed(ASKED) * 2, 400, "bytes follow the end"),
        ("gzip", ASKED, 400, "no gzip"),
        ("deflate", b"\xff" * 100, 400, "no deflate"),
        ("br", ASKED, 415, "gzip or deflate, not 'br'"),
        ("gzip, gzip", ASKED, 415, "gzip or deflate"),
    ],
    ids=[
        "gzip large",
        "deflate large",
        "cut short",
        "empty",
        "twice",
        "plain",
        "no deflate",
        "br",
        "two codings",
    ],
)
def test_what_unpacks_to_nothing_good_is_refused(client, coding, body, status, told):
    got, headers, text = client("POST", PATH, body, Content_Encoding=coding)
    assert (got, told in json.loads(text)["error"]["message"]) == (status, True), text
    assert headers.get("accept-encoding") == ("gzip, deflate" if status == 415 else None)
    assert client.json("GET", "/health")[0] == 200


def test_pieces_are_small_and_whole_however_the_bytes_come():
    """Also where a piece is full when the last byte was read, and more of it waits inside."""
    for size in (0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE):
        packed = gzip.compress(bytes(size))
        for step in (1, 7, len(packed)):
            unpacker = Unpacker("gzip")
            pieces = [
                p for at in range(0, len(packed), step) for p in unpacker.pieces(packed[at : at + step])
            ]
            unpacker.end()
            assert sum(map(len, pieces)) == size and max(map(len, pieces), default=0) <= PIECE
    with pytest.raises(Refusal, match="bytes follow"):
        unpacker = Unpacker("gzip")
        for piece in (gzip.compress(b"x"), b"\0"):
            list(unpacker.pieces(piece))
