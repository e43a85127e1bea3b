"""Connections of strangers: slow, endless, many, silent, from other sites; by both parsers of HTTP."""

import json
import socket
import time

import numpy as np
import pytest
from server_process import Client, eventually, in_thread, raw, write_small

from lamina.serving.bounds import Bounds
from lamina.serving.served_models import opened
from lamina.serving.wire_arrays import to_safetensors

BOUNDS = Bounds(
    connections=8, header_bytes=4000, header_time=0.4, body_time=0.4, idle=1, body=200_000, values=300_000
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "small.lam"
    write_small(path)
    return opened("small", path, BOUNDS)


@pytest.fixture(scope="module", params=["httptools", "h11"])
def port(request, model):
    if request.param == "httptools":
        pytest.importorskip("httptools", reason="httptools is not installed")
    with in_thread([model], BOUNDS, http=request.param) as port:
        yield port
        client = Client(port)
        assert eventually(lambda: client.json("GET", "/health")[0] == 200)  # whatever came before


def test_headers_that_do_not_end_are_cut(port):
    assert b" 408 " in raw(port, b"GET / HTTP/1.1\r\nhost: localhost\r\n")
    assert b" 408 " in raw(port, b"")
    got = raw(port, b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"a: b\r\n" * 2000)
    assert b" 431 " in got or got == b""  # closed over bytes that were on their way


def test_a_second_request_is_bounded_as_the_first(port):
    first = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    got = raw(port, first + b"GET / HTTP/1.1\r\nhost: localhost\r\n")
    assert got.startswith(b"HTTP/1.1 200") and got.count(b"HTTP/1.1") == 1  # closed, as silent
    with socket.create_connection(("127.0.0.1", port), timeout=10) as wire:
        wire.sendall(first)
        got = b""
        while b"generation" not in got:
            got += wire.recv(1 << 16)
        wire.sendall(b"GET / HTTP/1.1\r\n")
        assert b" 408 " in wire.recv(1 << 16)


@pytest.mark.sampled(3)
def test_bodies_that_do_not_come_are_cut(port):
    head = b"POST /v1/models/small HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    assert b" 408 " in raw(port, head + b"content-length: 1000\r\n\r\n{")
    assert b" 408 " in raw(port, head + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n")
    assert b" 413 " in raw(port, head + b"content-length: 999999999999\r\n\r\n{")
    assert b" 400 " in raw(port, head + b"content-length: 999999999999999999999\r\n\r\n{")
    many = b"".join(b"8000\r\n" + b" " * 0x8000 + b"\r\n" for _ in range(7))
    assert b" 413 " in raw(port, head + b"transfer-encoding: chunked\r\n\r\n" + many)


def test_connections_are_counted(port):
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
    try:
        assert b" 503 " in raw(port, b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
    finally:
        for each in idle:
            each.close()


def test_a_connection_that_is_silent_is_closed(port):
    begun = time.monotonic()
    got = raw(port, b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 200") and time.monotonic() - begun < 20


@pytest.mark.parametrize(
    "data", [b"\0" * 100, b"GET\r\n\r\n", b"\x16\x03\x01" * 50, b"GET / HTTP/9.9\r\n\r\n"]
)
def test_what_is_no_request_is_answered_so(port, data):
    answer = raw(port, data)
    assert b" 400 " in answer or b" 421 " in answer  # h11 asks no version; there is no Host then


def test_other_hosts_and_origins_are_refused(port):
    client = Client(port)
    assert client("GET", "/health", Host="evil.example")[0] == 421
    assert client("GET", "/health", Host=f"localhost:{port}", Origin="https://evil.example")[0] == 403
    assert client("GET", "/health", Host=f"localhost:{port}", Origin=f"http://localhost:{port}")[0] == 200
    assert client("GET", "/health", Host="[::1]:80")[0] == 200
    assert client("GET", "/health", Host=f"LocalHost:{port}")[0] == 200


def test_tokens(model):
    with in_thread([model], BOUNDS, tokens=("first", "sécond")) as port:
        client = Client(port)
        for shown in (None, "Bearer", "Bearer wrong", "Basic first", "Bearer first2", "Bearer \xff"):
            headers = {} if shown is None else {"Authorization": shown}
            status, got, text = client("POST", "/v1/models/small", b"x" * 10_000, **headers)
            assert (status, got["www-authenticate"]) == (401, "Bearer"), shown
            assert json.loads(text)["error"]["type"] == "authentication_error"
        assert client("GET", "/v1/models", Authorization="bearer first")[0] == 200
        assert client("GET", "/v1/models", Authorization="Bearer sécond".encode())[0] == 200
        assert client("GET", "/metrics")[0] == 401
        assert (
            client("GET", "/health")[0] == client("GET", "/")[0] == client("GET", "/v2/health/live")[0] == 200
        )
        assert client("POST", "/v1/reload", Authorization="Bearer first")[0] == 403  # nobody loads here


def test_large_answers_come_whole_and_wait_for_their_reader(model):
    x = np.zeros((100_000, 8), np.float32)
    bounds = Bounds(body=8 << 20)
    with in_thread([model], bounds) as port:
        client = Client(port)
        status, _, got = client(
            "POST", "/v1/models/small", to_safetensors({"input": x}), Content_Type="application/octet-stream"
        )
        assert status == 200 and len(got) > 100_000 * 12
