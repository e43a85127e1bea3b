"""HTTP as storms and benchmarks speak it: one connection that is kept, and nothing that takes time."""

import asyncio


class Lost(Exception):
    """The connection ended before an answer did."""


class Wire:
    """A connection to a port of this machine; opened when it is needed."""

    def __init__(self, port):
        self.port, self.reader, self.writer = port, None, None

    async def open(self):
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)

    def close(self):
        if self.writer is not None:
            self.writer.close()
        self.writer = None

    async def ask(self, request):
        """(status, body) of the answer to the bytes of a request.  Raises Lost."""
        try:
            await self.open()
            self.writer.write(request)
            return await self.answer()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            self.close()
            raise Lost(str(error)) from None

    async def answer(self):
        """(status, body) of the next answer."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        status = int(head[9:12])
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        body = await self.reader.readexactly(length) if length else b""
        if b"\r\nconnection: close" in head:
            self.close()
        return status, body


def post(path, body, kind, host="localhost"):
    """The bytes of a request."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
