"""A process that tells the ranks of a job each other's addresses: a server of PMI-1, MPICH's wire protocol.

    python pmi_server.py SIZE HOST PORT MAPPING

MAPPING says which ranks share a machine, as MPICH writes it; where it is empty, those do that connect from
one address.  It prints its port, answers until every rank has said goodbye or is gone, and ends.  Python's
own library is all that it needs.  A line is at most 8 KB, a rank keeps at most 4,096 values.
"""

from __future__ import annotations

import os
import secrets
import signal
import socketserver
import sys
import threading

LONGEST, MOST = 8192, 4096
MAPPING = "PMI_process_mapping"


class Table:
    """What ranks told, and who waits at the barrier.

    waiting: the open answers of those who do.  left: ranks that said goodbye or are gone.  hosts: where each
    rank is.
    """

    def __init__(self, size: int, mapping: str):
        self.size, self.lock = size, threading.Lock()
        self.values = {MAPPING: mapping} if mapping else {}
        self.hosts: dict[int, str] = {}
        self.known = threading.Condition(self.lock)
        self.name = f"job_{os.getpid()}_{secrets.token_hex(8)}"  # shared memory is named by it
        self.waiting: list[Rank] = []
        self.joined: set[int] = set()
        self.left: set[int] = set()

    def wait(self, rank: Rank) -> None:
        """Answer all once all ask."""
        with self.lock:
            self.waiting.append(rank)
            if len(self.waiting) < self.size:
                return
            for one in self.waiting:
                one.say("cmd=barrier_out rc=0 msg=success")
            self.waiting = []

    def place(self, number: int, host: str) -> None:
        """Note a rank, and where it is; with the last, who shares a machine is known."""
        with self.lock:
            self.joined.add(number)
            self.hosts[number] = host
            if len(self.hosts) == self.size:
                self.values.setdefault(MAPPING, mapping_of([self.hosts[n] for n in range(self.size)]))
                self.known.notify_all()

    def get(self, key: str) -> str | None:
        """A value; who shares a machine once that is known."""
        with self.lock:
            while key == MAPPING and key not in self.values:
                self.known.wait()
            return self.values.get(key)

    def is_needed(self) -> bool:
        """Whether ranks that met are still to say goodbye; MPICH crashes where nobody answers that.

        Where one waits at the barrier it does so in vain once the first rank is gone.
        """
        with self.lock:
            return not self.waiting and not self.joined <= self.left

    def leave(self, number: int) -> None:
        """Note a rank that will ask no more; with the last, all is done."""
        with self.lock:
            self.left.add(number)
            if len(self.left) == self.size or self.joined <= self.left and len(self.joined) < self.size:
                os._exit(0)


def mapping_of(hosts: list[str]) -> str:
    """Which ranks share a machine, as MPICH writes it: (number of the machine, 1, ranks in a row there)…"""
    numbers = {host: n for n, host in enumerate(dict.fromkeys(hosts))}
    blocks: list[list[int]] = []
    for host in hosts:
        if blocks and blocks[-1][0] == numbers[host]:
            blocks[-1][1] += 1
        else:
            blocks.append([numbers[host], 1])
    return f"(vector,{','.join(f'({number},1,{ranks})' for number, ranks in blocks)})"


class Rank(socketserver.StreamRequestHandler):
    """One rank's connection."""

    number = -1

    def say(self, line: str) -> None:
        """Answer with a line."""
        try:
            self.wfile.write(f"{line}\n".encode())
        except OSError:
            pass  # it is gone, as its own loop will see

    def handle(self) -> None:
        """Answer its questions until it leaves."""
        table: Table = self.server.table  # type: ignore[attr-defined]
        while (data := self.rfile.readline(LONGEST)).endswith(b"\n"):
            line = data.decode("utf-8", "replace").rstrip("\n")
            words = dict(word.partition("=")[::2] for word in line.split(" ") if word)
            if not self.answer(table, words.get("cmd", ""), words, line):
                break
        if self.number >= 0:
            table.leave(self.number)

    def answer(self, table: Table, command: str, words: dict[str, str], line: str) -> bool:
        """Do what a line asks; False once it was goodbye, or nonsense."""
        if command == "initack":
            number = words.get("pmiid", "")
            if not number.isdigit() or not int(number) < table.size:
                return False
            self.number = int(number)
            table.place(self.number, self.client_address[0])
            for said in ("initack rc=0", f"set size={table.size}", f"set rank={number}", "set debug=0"):
                self.say(f"cmd={said}")
        elif command == "init":
            self.say("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0")
        elif command == "get_maxes":
            self.say("cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=4096 rc=0")
        elif command == "get_appnum":
            self.say("cmd=appnum appnum=0 rc=0")
        elif command == "get_my_kvsname":
            self.say(f"cmd=my_kvsname kvsname={table.name} rc=0")
        elif command == "get_universe_size":
            self.say(f"cmd=universe_size size={table.size} rc=0")
        elif command == "put":
            with table.lock:
                if len(table.values) < MOST * table.size:
                    table.values[words.get("key", "")] = line.partition("value=")[2]
            self.say("cmd=put_result rc=0 msg=success")
        elif command == "get":
            value = table.get(words.get("key", ""))
            found = "rc=-1 msg=key_not_found" if value is None else f"rc=0 msg=success value={value}"
            self.say(f"cmd=get_result {found}")
        elif command == "barrier_in":
            table.wait(self)
        elif command == "finalize":
            self.say("cmd=finalize_ack rc=0")
            return False
        else:  # abort, or what no rank of ours asks
            return False
        return True


class Server(socketserver.ThreadingTCPServer):
    """Listens for ranks."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 1024


def main(size: int, host: str, port: int, mapping: str) -> None:
    """Serve until all ranks have left, or who started this process is gone and nobody is still to leave."""
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which a terminal sends to all; ranks still say goodbye
    with Server((host, port), Rank) as server:
        server.table = Table(size, mapping)  # type: ignore[attr-defined]
        print(server.server_address[1], flush=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        while os.getppid() == parent or server.table.is_needed():  # type: ignore[attr-defined]
            threading.Event().wait(1.0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4])
