"""The cache on disk: entries are whole or not there, many writers, a bounded size, disks that fail."""

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lamina.ir.own_files import DAY, temporary_beside
from lamina.passes import cache as module
from lamina.passes.cache import Cache, folder, key, pack, unpack


def entries(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file() and path.name != module.TAG)


def test_what_is_put_is_got_by_other_processes(tmp_path):
    name = key("a", b"b")
    Cache(tmp_path / "c").put(name, b"data")
    other = Cache(tmp_path / "c")
    assert other.get(name) == b"data" and other.get(key("a", "c")) is None
    assert (other.hits, other.misses) == (1, 1)
    (entry,) = entries(tmp_path)
    assert entry == tmp_path / "c" / module.FOLDER / name[:2] / f"{name[2:]}.code"
    assert entry.stat().st_mode & 0o777 == 0o600
    assert {path.stat().st_mode & 0o777 for path in (*entry.parents[:3],)} == {0o700}


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


def test_what_is_no_file_is_no_entry_and_not_waited_for(tmp_path, monkeypatch):
    """Nobody writes to the pipe, and the device never ends."""
    cache, name = Cache(tmp_path), key("x")
    cache.put(name, b"data")
    (path,) = entries(tmp_path)
    monkeypatch.chdir(path.parent)  # names of sockets are short
    with socket.socket(socket.AF_UNIX) as end:
        makers = {
            "pipe": os.mkfifo, "folder": os.mkdir, "device": lambda path: os.symlink("/dev/zero", path),
            "socket": lambda path: end.bind(path.name),
        }  # fmt: skip
        for kind, make in makers.items():
            path.unlink()
            make(path)
            assert Cache(tmp_path).get(name) is None, kind
            Cache(tmp_path).put(name, b"data")  # over what can be replaced
            if kind == "folder":
                path.rmdir()
                Cache(tmp_path).put(name, b"data")
            assert Cache(tmp_path).get(name) == b"data", kind


def test_an_entry_under_another_name_is_a_damaged_one(tmp_path):
    one, two = key("one"), key("two")
    cache = Cache(tmp_path)
    cache.put(one, b"1")
    target = cache._path(two)
    target.parent.mkdir(exist_ok=True)
    os.replace(cache._path(one), target)
    assert Cache(tmp_path).get(two) is None


def test_what_is_not_written_leaves_nothing_and_is_kept_in_the_process(tmp_path, monkeypatch):
    cache = Cache(unusable(tmp_path, monkeypatch, "full"))
    cache.put(key("x"), b"data")
    assert cache.get(key("x")) == b"data" and entries(tmp_path) == []


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
    assert {path.parent.name + path.stem for path in left} == set(names[-len(left) :])


def test_an_entry_in_use_stays_young(tmp_path):
    name = key("x")
    cache = Cache(tmp_path)
    cache.put(name, b"data")
    old = time.time() - 10 * DAY
    os.utime(cache._path(name), (old, old))
    assert Cache(tmp_path).get(name) == b"data"
    assert time.time() - cache._path(name).stat().st_mtime < DAY


def aged(path: Path, data: bytes = b"precious") -> Path:
    """A file of old, as the user may have one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (1e9, 1e9))
    return path


def test_what_a_killed_process_left_is_removed(tmp_path):
    cache = Cache(tmp_path)
    cache.put(key("x"), b"data")
    path = cache._path(key("x"))
    left = Path(temporary_beside(str(path)))
    left.write_bytes(b"half")
    cache.trim()
    assert left.exists()  # perhaps someone is writing it
    os.utime(left, (1e9, 1e9))
    cache.trim()
    assert not left.exists() and cache.get(key("x")) == b"data"


OWN = f"{module.FOLDER}/ab/{'c' * 38}.code"
FOREIGN = {
    "dot_file": ".bashrc",
    "in_git": ".git/HEAD",
    "deeper": "src/ab/.env",
    "large": "dataset.bin",
    "entry_without_folder": f"ab/{'c' * 38}.code",
    "beside_folders": f"{module.FOLDER}/notes.txt",
    "beside_entries": f"{module.FOLDER}/ab/notes.txt",
    "dot_beside_entries": f"{module.FOLDER}/ab/.tmpxyz",
    "longer_name": OWN + ".bak",
    "shorter_name": f"{module.FOLDER}/ab/{'c' * 37}.code",
    "newline": f"{module.FOLDER}/ab/{'c' * 38}.code\n",
    "capitals": f"{module.FOLDER}/ab/{'C' * 38}.code",
    "below_an_entry": f"{module.FOLDER}/ab/{'c' * 37}d.code/{'c' * 38}.code",
    "another_folder": f"{module.FOLDER}/abc/{'c' * 38}.code",
    "another_layout": f"{module.FOLDER}2/ab/{'c' * 38}.code",
    "part_of_another": f"{module.FOLDER}/ab/.thesis.tex.0123456789ab.part",
}


@pytest.mark.parametrize("case", FOREIGN)
def test_what_is_not_the_caches_own_is_never_removed(tmp_path, case):
    cache = Cache(tmp_path, limit=0)
    cache.put(key("x"), b"data")
    foreign = aged(tmp_path / FOREIGN[case], bytes(1000))
    own = aged(tmp_path / OWN)
    cache.trim()
    assert entries(tmp_path) == [foreign] and not own.exists()


def test_what_is_not_the_caches_own_does_not_count(tmp_path):
    cache = Cache(tmp_path, limit=10_000)
    cache.put(key("x"), b"data")
    for path in FOREIGN.values():
        aged(tmp_path / path, bytes(20_000))
    cache.trim()
    assert cache._path(key("x")).exists()


def test_no_link_is_followed_to_what_is_removed(tmp_path):
    cache = Cache(tmp_path / "c", limit=0)
    cache.put(key("x"), b"data")
    folder, target = tmp_path / "c" / module.FOLDER, aged(tmp_path / "mine" / f"{'c' * 38}.code")
    (folder / "ff").symlink_to(target.parent)
    cache._path(key("x")).with_name("d" * 38 + ".code").symlink_to(target)
    cache.trim()
    assert target.exists() and (folder / "ff").is_symlink()
    assert [path for path in entries(tmp_path) if not path.is_symlink()] == [target]
    # a whole cache of another's that is linked to in place of this one
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / module.FOLDER).symlink_to(folder)
    other = aged(folder / "ab" / f"{'c' * 38}.code")
    linked = Cache(tmp_path / "d", limit=0)
    linked.put(key("y"), b"data")
    linked.trim()
    assert other.exists() and not cache._path(key("y")).exists()


def test_what_is_no_regular_file_is_not_removed(tmp_path):
    cache = Cache(tmp_path, limit=0)
    cache.put(key("x"), b"data")
    place = cache._path(key("x")).parent
    (place / f"{'d' * 38}.code").mkdir()
    os.mkfifo(place / f"{'e' * 38}.code")
    cache.trim()
    assert sorted(path.name[0] for path in place.iterdir()) == ["d", "e"]


def test_a_folder_without_the_mark_is_not_trimmed(tmp_path):
    cache = Cache(tmp_path, limit=0)
    own = aged(tmp_path / OWN)
    cache.trim()
    for text in ("", "Signature: of something else\n"):
        (tmp_path / module.FOLDER / module.TAG).write_text(text)
        cache.trim()
    assert own.exists()


@pytest.fixture
def unwarned(monkeypatch):
    monkeypatch.setattr(module, "_warned", False)


def unusable(tmp_path: Path, monkeypatch, how: str) -> Path:
    """A folder that takes no entries."""
    directory = tmp_path / "c"
    failing = {
        "read-only": (30, "mkdir"), "full": (28, "replace"), "no_room": (28, "open"),
        "quota": (122, "replace"),
    }  # fmt: skip
    if how in failing:
        number, call = failing[how]
        real = getattr(os, call)

        def fails(*args, **kwargs):
            if "lamina-code" in str(args[0]):
                raise OSError(number, os.strerror(number))
            return real(*args, **kwargs)

        monkeypatch.setattr(os, call, fails)
    elif how == "file":
        directory.write_text("a file")
    elif how == "below_a_file":
        aged(tmp_path / "file")
        directory = tmp_path / "file" / "c"
    elif how == "own_folder_is_a_file":
        aged(directory / module.FOLDER)
    elif how == "loop":
        directory.symlink_to(directory)
    elif how == "too_long":
        directory = tmp_path / ("c" * 300)
    else:
        directory.mkdir()
        owner = os.stat(directory).st_uid
        monkeypatch.setattr(module.os, "getuid", lambda: owner + 1)
    return directory


UNUSABLE = (
    "read-only", "full", "no_room", "quota", "file", "below_a_file", "own_folder_is_a_file", "loop",
    "too_long", "of_another_user",
)  # fmt: skip


@pytest.mark.parametrize("how", UNUSABLE)
def test_a_chosen_folder_that_is_no_use_is_told_of_once(tmp_path, monkeypatch, unwarned, how):
    directory = unusable(tmp_path, monkeypatch, how)
    cache = Cache(directory, chosen=True)
    with pytest.warns(RuntimeWarning, match="LAMINA_CACHE_DIR: .* Compiled code is not kept") as told:
        for k in range(3):
            cache.put(key(str(k)), b"data")
        cache.trim()
        assert [cache.get(key(str(k))) for k in range(4)] == [b"data"] * 3 + [None]
    assert len(told) == 1
    Cache(directory).put(key("x"), b"data")  # the ordinary folder: without a word


def test_a_folder_that_disappears_comes_again(tmp_path):
    cache = Cache(tmp_path / "c", chosen=True)
    cache.put(key("x"), b"data")
    shutil.rmtree(tmp_path / "c")
    cache.trim()
    cache.put(key("y"), b"data")
    assert [path.stem for path in entries(tmp_path)] == [key("y")[2:]]


@pytest.mark.parametrize("name", ["~nobody-of-this-name/x", "relative"])
def test_a_name_that_leads_nowhere_means_no_cache(tmp_path, monkeypatch, unwarned, name):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setenv("LAMINA_CACHE_DIR", name)
    with pytest.warns(RuntimeWarning, match=f"LAMINA_CACHE_DIR: {name} is no folder"):
        assert folder() is None


def test_a_relative_name_stays_where_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAMINA_CACHE_DIR", "c")
    cache = Cache(folder())
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    cache.put(key("x"), b"data")
    assert entries(tmp_path / "elsewhere") == [] and len(entries(tmp_path / "c")) == 1


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
