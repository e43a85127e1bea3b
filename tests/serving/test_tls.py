"""TLS: answers by it alone, handshakes that end, and files that don't fit."""

import http.client
import shutil
import socket
import ssl
import subprocess

import pytest
from server_process import Process, in_thread, write_small

from lamina.serving.bounds import Bounds
from lamina.serving.http_bounds import tls_of
from lamina.serving.refusals import ServeError
from lamina.serving.serve_options import read
from lamina.serving.served_models import opened

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the command openssl")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    write_small(folder / "small.lam")
    for name, more in (("", ["-nodes"]), ("locked", ["-passout", "pass:secret"])):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-days", "2",
             "-keyout", f"{name}key.pem", "-out", f"{name}chain.pem", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=DNS:localhost", *more],
            cwd=folder, check=True, capture_output=True,
        )  # fmt: skip
    return folder


def asked(port, folder):
    """(status, TLS version) of a request by a client that trusts the certificate."""
    trusts = ssl.create_default_context(cafile=folder / "chain.pem")
    client = http.client.HTTPSConnection("localhost", port, timeout=30, context=trusts)
    client.request("GET", "/health")
    answer = client.getresponse()
    answer.read()
    version = client.sock.version()
    client.close()
    return answer.status, version


@pytest.mark.parametrize("http", ["httptools", "h11"])
def test_it_answers_by_tls_alone_and_waits_for_no_handshake(folder, http):
    if http == "httptools":
        pytest.importorskip("httptools", reason="httptools is not installed")
    bounds = Bounds(header_time=0.3)
    models = [opened("small", folder / "small.lam", bounds)]
    with in_thread(models, bounds, http=http, tls=tls_of(folder / "chain.pem", folder / "key.pem")) as port:
        assert asked(port, folder) == (200, "TLSv1.3")
        for begun in (b"", b"\x16\x03\x01", b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", port), timeout=20) as wire:
                wire.sendall(begun)
                try:
                    while piece := wire.recv(1000):
                        assert not piece.startswith(b"HTTP")
                except ConnectionResetError:
                    pass
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with old.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=20)) as wire:
            assert wire.version() == "TLSv1.2"
        assert asked(port, folder)[0] == 200


@pytest.mark.sampled(2)
def test_the_command_speaks_tls(folder):
    args = ["--certfile", folder / "chain.pem", "--keyfile", folder / "key.pem"]
    with Process(folder / "small.lam", *args) as server:
        assert asked(server.port, folder)[0] == 200
        assert server.stop() == 0


def test_files_that_do_not_fit_are_refused(folder):
    (folder / "whole.pem").write_text((folder / "key.pem").read_text() + (folder / "chain.pem").read_text())
    assert tls_of(folder / "whole.pem", None) is not None and tls_of(None, None) is None
    for certificate, key in (
        ("chain", "lockedkey"),
        ("key", None),
        ("lockedchain", "lockedkey"),
        ("none", None),
    ):
        with pytest.raises(ServeError, match="TLS does not start with"):
            tls_of(folder / f"{certificate}.pem", key and folder / f"{key}.pem")
    with pytest.raises(SystemExit):
        read([str(folder / "small.lam"), "--keyfile", str(folder / "key.pem")])
