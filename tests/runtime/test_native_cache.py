"""The cache on disk: entries are whole or not there, many writers, a bounded size, disks that fail."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lamina.passes import cache as module
from lamina.passes.cache import Cache, folder, key, pack, unpack


def entries(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def test_what_is_put_is_got_by_other_processes(tmp_path):
    name = key("a", b"b")
    Cache(tmp_path / "c").put(name, b"data")
    other = Cache(tmp_path / "c")
    assert other.get(name) == b"data" and other.get(key("a", "c")) is None
    assert (other.hits, other.misses) == (1, 1)
    assert [path.name for path in entries(tmp_path)] == [name[2:]]
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700


def test_keys_tell_parts_apart():
    assert key("ab", "c") != key("a", "bc") != key("abc") and key("a") == key(b"a")


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    damaged = {
        "cut": data[:-1],
        "empty": b"",
        "flipped": data[:-3] + bytes([data[-3] ^ 1]) + data[-2:],
        "digest": data[:10] + bytes([data[10] ^ 1]) + data[11:],
        "longer": data + b"x",
        "foreign": b"\x7fELF" + data[4:],
    }[how]
    path.write_bytes(damaged)


@pytest.mark.parametrize("how", ["cut", "empty", "flipped", "digest", "longer", "foreign"])
def test_a_damaged_entry_is_removed(tmp_path, how):
    name = key("x")
    Cache(tmp_path).put(name, b"some data")
    (path,) = entries(tmp_path)
    damage(path, how)
    assert Cache(tmp_path).get(name) is None
    assert entries(tmp_path) == []


def test_an_entry_under_another_name_is_a_damaged_one(tmp_path):
    one, two = key("one"), key("two")
    cache = Cache(tmp_path)
    cache.put(one, b"1")
    target = cache._path(two)
    target.parent.mkdir(exist_ok=True)
    os.replace(cache._path(one), target)
    assert Cache(tmp_path).get(two) is None


def test_a_disk_that_fails_means_no_cache(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    for directory in (blocked, blocked / "below", None):
        cache = Cache(directory)
        cache.put(key("x"), b"data")
        assert cache.get(key("x")) == b"data"  # the process's own memory
        assert Cache(directory).get(key("x")) is None

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "replace", full)
    cache = Cache(tmp_path / "full")
    cache.put(key("x"), b"data")
    assert cache.get(key("x")) == b"data" and entries(tmp_path / "full") == []


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(module.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Cache(tmp_path).put(key("x"), b"data")
    assert entries(tmp_path) == []


def test_the_folder_of_another_user_is_not_used(tmp_path, monkeypatch):
    Cache(tmp_path).put(key("x"), b"data")
    monkeypatch.setattr(module.os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)
    assert Cache(tmp_path).get(key("x")) is None
    Cache(tmp_path).put(key("y"), b"data")
    assert len(entries(tmp_path)) == 1


def test_the_size_is_bounded_and_the_oldest_go(tmp_path):
    cache = Cache(tmp_path, limit=10_000, held=1)
    names = [key(str(k)) for k in range(40)]
    for age, name in enumerate(names):
        cache.put(name, bytes(500))
        path = cache._path(name)
        if path.exists():
            os.utime(path, (1e9 + age, 1e9 + age))
    cache.trim()
    left = entries(tmp_path)
    assert sum(path.stat().st_size for path in left) <= 10_000
    assert {path.parent.name + path.name for path in left} == set(names[-len(left) :])


def test_an_entry_in_use_stays_young(tmp_path):
    name = key("x")
    cache = Cache(tmp_path)
    cache.put(name, b"data")
    old = time.time() - 10 * module.DAY
    os.utime(cache._path(name), (old, old))
    assert Cache(tmp_path).get(name) == b"data"
    assert time.time() - cache._path(name).stat().st_mtime < module.DAY


def test_what_a_killed_process_left_is_removed(tmp_path):
    cache = Cache(tmp_path)
    cache.put(key("x"), b"data")
    left = cache._path(key("x")).parent / ".tmpxyz"
    left.write_bytes(b"half")
    cache.trim()
    assert left.exists()  # perhaps someone is writing it
    os.utime(left, (1e9, 1e9))
    cache.trim()
    assert not left.exists() and cache.get(key("x")) == b"data"


def test_many_threads_and_processes_write_at_once(tmp_path):
    script = (
        "import sys; from pathlib import Path; from lamina.passes.cache import Cache, key\n"
        "c = Cache(Path(sys.argv[1]), held=1)\n"
        "for r in range(30):\n"
        "    n = key(str(r % 5)); c.put(n, str(r % 5).encode() * 5000)\n"
        "    for k in range(5):\n"
        "        d = c.get(key(str(k))); assert d in (None, str(k).encode() * 5000)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(3)]
    cache, failures = Cache(tmp_path, held=1), []

    def body() -> None:
        for r in range(100):
            cache.put(key(str(r % 5)), str(r % 5).encode() * 5000)
            if cache.get(key(str(r % 5))) != str(r % 5).encode() * 5000:
                failures.append(r)

    threads = [threading.Thread(target=body) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [(process.communicate()[1], process.returncode) for process in running] == [(b"", 0)] * 3
    assert len(entries(tmp_path)) == 5


def test_the_process_keeps_no_more_than_it_says(tmp_path):
    cache = Cache(None, held=3)
    for k in range(5):
        cache.put(key(str(k)), b"x")
    assert [cache.get(key(str(k))) for k in range(5)] == [None, None, b"x", b"x", b"x"]


def test_the_folder_is_what_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("LAMINA_CACHE_DIR", str(tmp_path))
    assert folder() == tmp_path
    monkeypatch.setenv("LAMINA_CACHE_DIR", "")
    assert folder() is None
    monkeypatch.delenv("LAMINA_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folder().parent == tmp_path / "lamina"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder().parent == tmp_path / ".cache" / "lamina"


def test_packed_pieces_come_back():
    for pieces in ([], [b""], [b"a", b"", b"ccc"]):
        assert unpack(pack(*pieces)) == pieces
    for wrong in (b"\xff" * 8, pack(b"abc")[:-1], pack(b"abc") + b"x", b"abc"):
        with pytest.raises(ValueError, match="packed pieces"):
            unpack(wrong)
