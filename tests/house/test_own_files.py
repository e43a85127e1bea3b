"""Hold what the package writes, replaces and removes on disk to a list that someone has read.

Removing or overwriting a file of the user's can't be undone.  So every call that could is listed here, with
the reason why it can't hit anything but what it is for; a new call fails until it is listed.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator

import package_tree

# Names of functions that take files away, put others in their place, or make new ones.
WRITING = {
    "unlink", "rmtree", "rmdir", "removedirs", "rename", "renames", "truncate", "ftruncate", "write_text",
    "write_bytes", "touch", "mkdir", "makedirs", "mkdtemp", "mkstemp", "TemporaryDirectory", "TemporaryFile",
    "NamedTemporaryFile", "SpooledTemporaryFile", "savefig", "savez", "savez_compressed", "savetxt", "tofile",
    "open_memmap", "memmap", "symlink", "symlink_to", "hardlink_to", "link_to", "copyfile", "copy2",
    "copytree", "SharedMemory", "memfd_create", "chmod", "chown", "utime", "mkfifo", "mknod", "shm_open",
    "make_archive", "unpack_archive", "extractall", "replacing", "remove_parts",
}  # fmt: skip
# Names that also mean other things: only on these modules.
ON_MODULES = {
    "os": {"remove", "replace", "link", "open", "fdopen"},
    "np": {"save"},
    "numpy": {"save"},
    "shutil": {"copy", "move"},
}
READING = {"r", "rb", "rt"}
# One of these stands in each module that writes: others need not be parsed.
SPELLED = WRITING.union(*ON_MODULES.values(), {"ZipFile"})

# (file, function, call) -> why nothing of the user's is lost
REVIEWED = {
    ("ir/own_files.py", "replacing", "open"): "a pipe or device that was named; else a fresh name, mode x",
    ("ir/own_files.py", "replacing", "os.replace"): "the path that was to be written, once it is whole",
    ("ir/own_files.py", "replacing", "remove_parts"): "own, regular, a day old, and of our names",
    ("ir/own_files.py", "replacing", "os.open"): "a folder, for reading: fsync",
    ("ir/own_files.py", "replacing", "remove"): "the fresh name",
    ("ir/own_files.py", "remove", "os.unlink"): "as its callers say",
    ("ir/own_files.py", "remove_parts", "remove"): "own, regular, a day old, and named as only we name files",
    ("distributed/checkpoint/disk.py", "Opened.__init__", "os.open"): "for reading, no link",
    ("distributed/checkpoint/disk.py", "sync_folder", "os.open"): "a folder, for reading: fsync",
    ("distributed/checkpoint/disk.py", "write_file", "os.open"): "a name in the save's own folder, O_EXCL",
    ("distributed/checkpoint/leftovers.py", "_taken", "os.open"): "a lock file, no link; it is only read",
    ("distributed/checkpoint/leftovers.py", "remove_checkpoint", "os.rmdir"): "if nothing else is in it",
    ("distributed/checkpoint/leftovers.py", "remove_checkpoint", "os.unlink"): "our index, files of saves",
    ("distributed/checkpoint/leftovers.py", "remove_files", "os.unlink"): "files of one save, by its number",
    ("distributed/checkpoint/leftovers.py", "remove_folder", "os.rmdir"): "if nothing else is in it",
    ("distributed/checkpoint/leftovers.py", "remove_folder", "os.unlink"): "the index in a save's own folder",
    ("distributed/checkpoint/leftovers.py", "removed", "remove"): "as its callers say",
    ("distributed/checkpoint/leftovers.py", "sweep", "os.unlink"): "a lock of a save that is dead",
    ("distributed/checkpoint/scratch.py", "Scratch.__init__", "os.mkdir"): "a fresh name",
    ("distributed/checkpoint/scratch.py", "Scratch._end", "os.unlink"): "the lock file that it made",
    ("distributed/checkpoint/scratch.py", "Scratch.commit", "os.rename"): "fresh names, to where nothing is",
    ("distributed/checkpoint/scratch.py", "Scratch.commit", "os.replace"): "the index, which was ours",
    ("distributed/checkpoint/scratch.py", "_abandoned", "os.unlink"): "the lock file that it made",
    ("distributed/checkpoint/scratch.py", "_locked", "os.open"): "a fresh name, O_EXCL",
    ("distributed/checkpoint/scratch.py", "_make_folders", "os.makedirs"): "makes what is not there",
    ("distributed/file_store.py", "_Log._catch_up", "os.ftruncate"): "a store's, behind what is whole",
    ("distributed/file_store.py", "_Log._locked", "os.open"): "the path that was named, if a store",
    ("distributed/file_store.py", "_leave", "os.unlink"): "that path, where it is a store that all have left",
    ("distributed/transport.py", "World.__init__", "segments.unlink"): "MPI's of this job, mapped by all",
    ("distributed/launching/job.py", "Job.run", "shutil.rmtree"): "Open MPI's folder, of an mpiexec of ours",
    ("distributed/launching/launch.py", "_silence", "os.open"): "the null device",
    ("distributed/launching/segments.py", "unlink", "os.unlink"): "in /dev/shm, as its callers say",
    ("distributed/launching/spawn.py", "_pickled", "os.memfd_create"): "memory without a name",
    ("distributed/launching/spawn.py", "_pickled", "open"): "that memory",
    ("distributed/launching/spawn.py", "run_call", "os.open"): "a pipe of the parent's",
    ("distributed/launching/watch_rank.py", "Watcher._finish", "segments.unlink"): "the rank's or nobody's",
    ("distributed/launching/watch_rank.py", "Watcher.abandon", "segments.unlink"): "the rank's or nobody's",
    ("runtime/shared_memory.py", "_new_block", "os.memfd_create"): "memory without a name",
    ("runtime/shared_memory.py", "_new_block", "os.ftruncate"): "that memory",
    ("exchange/c_library/trial.py", "tried", "np.savez"): "to memory",
    ("exchange/c_library/writing.py", "write", "replacing"): "the paths that were named, and the header's",
    ("exchange/onnx/writing.py", "_place", "replacing"): "the path that was named, and the weights beside it",
    ("exchange/onnx/writing.py", "_place", "file.truncate"): "the fresh name: weights named in it",
    ("exchange/onnx/pytorch_export.py", "export", "tempfile.TemporaryDirectory"): "a fresh folder of its own",
    ("exchange/onnx/pytorch_export.py", "ONNXProgram.save", "replacing"): "the path that was named",
    ("exchange/onnx/run_file.py", "run_file", "replacing"): "the path that was named",
    ("exchange/onnx/run_file.py", "run_file", "np.savez"): "inside of it",
    ("exchange/onnx/reading.py", "_Reader.outside", "np.memmap"): "for reading",
    ("language/untrusted.py", "mapped", "np.memmap"): "for reading: writes stay in memory (mode c)",
    ("passes/cache.py", "Cache.forget", "remove"): "the name of an entry, in the folder of entries",
    ("passes/cache.py", "Cache._read", "remove"): "the name of an entry, in the folder of entries",
    ("passes/cache.py", "Cache._write", "remove"): "the fresh name",
    ("passes/cache.py", "Cache.trim", "remove"): "own, regular, the name of an entry, in marked folders",
    ("passes/cache.py", "Cache._read", "os.utime"): "an entry that was just read and whose digest fits",
    ("passes/cache.py", "Cache._write", "open"): "the mark, where there is none; a fresh name, O_EXCL",
    ("passes/cache.py", "Cache._write", "os.open"): "a fresh name, O_EXCL",
    ("passes/cache.py", "Cache._write", "os.replace"): "the name of an entry, in the folder of entries",
    ("passes/cache.py", "Cache.trim", "remove_parts"): "names of entries, in marked folders",
    ("passes/cache.py", "_make_own", "folder.mkdir"): "makes what is not there",
    ("passes/triton/compiler.py", "_compiled", "tempfile.TemporaryDirectory"): "fresh, in the system's",
    ("passes/triton/helper.py", "main", "os.open"): "the null device",
    ("passes/triton/helper.py", "main", "shutil.rmtree"): "what Helper.__init__ made with mkdtemp",
    ("runtime/compile_helpers.py", "Helper.__init__", "tempfile.mkdtemp"): "fresh, in the system's",
    ("runtime/compile_helpers.py", "Helper.__init__", "open"): "inside that folder",
    ("runtime/compile_helpers.py", "Helper.__init__", "shutil.rmtree"): "that folder",
    ("runtime/compile_helpers.py", "Helper.end", "shutil.rmtree"): "that folder",
    ("runtime/checkpoints/saving.py", "save", "replacing"): "the path that the user named",
    ("serving/supervisor.py", "supervise", "tempfile.mkdtemp"): "fresh, in the system's",
    ("serving/supervisor.py", "supervise", "shutil.rmtree"): "that folder",
    ("serving/supervisor.py", "Generation.run", "shutil.rmtree"): "that folder, whose maker was killed",
    ("profiler/files.py", "_write", "replacing"): "the path that the user named",
    ("viewer/page.py", "write", "replacing"): "the path that the user named",
    ("profiler/sessions.py", "tensorboard_trace_handler.ready", "os.makedirs"): "makes what is not there",
    ("runtime/creation.py", "mapped", "open"): "the path that the user named, where nothing was (mode x)",
    ("runtime/creation.py", "mapped", "np.memmap"): "a file that the user named, which gets no shorter",
    ("runtime/memory_view.py", "TypedStorage.filename", "np.memmap"): "a type; no file is opened",
    ("data/sharing.py", "Writer._grow", "os.memfd_create"): "memory without a name",
    ("data/sharing.py", "Writer._grow", "os.ftruncate"): "that memory",
    ("jit/export.py", "tune_file", "replacing"): "the same, or the file that was read",
    ("jit/export.py", "export", "replacing"): "the path that the user named, no folder, pipe or device",
    ("jit/export.py", "_tried", "np.savez"): "inside that folder",
    ("jit/artifact.py", "_write_archive", "zipfile.ZipFile"): "the file that `replacing` opened",
    ("jit/lamina_model.py", "_Library.__init__", "os.memfd_create"): "memory without a name",
    ("ir/files.py", "open_regular", "os.open"): "for reading",
    ("ir/files.py", "open_regular", "os.fdopen"): "for reading",
    ("jit/artifact.py", "write_loader", "replacing"): "a path that was named",
    ("jit/lamina_model.py", "_opened", "os.open"): "for reading",
    ("jit/lamina_model.py", "_opened", "os.fdopen"): "for reading",
    ("jit/lamina_model.py", "_Library.__init__", "os.fdopen"): "that memory",
    ("jit/loaded.py", "load", "mkdtemp"): "fresh, in the system's",
    ("jit/loaded.py", "load", "file.write_bytes"): "inside that folder",
    ("jit/loaded.py", "load", "shutil.rmtree"): "that folder",
    ("jit/torchscript.py", "save", "tempfile.TemporaryDirectory"): "fresh, in the system's",
    ("jit/repro.py", "write", "folder.mkdir"): "a name of ours; of another user: nothing is written",
    ("jit/repro.py", "write", "np.savez"): "inside that folder",
    ("jit/repro.py", "write", "script.write_text"): "inside that folder",
    ("planning/plan_page.py", "write_page", "replacing"): "the path that was named",
    ("planning/plan_picture.py", "write_picture", "replacing"): "the path that was named",
    ("planning/plan_picture.py", "write_picture", "figure.savefig"): "the file that `replacing` opened",
    ("demo/fresh.py", "compiling", "tempfile.TemporaryDirectory"): "fresh, in the system's",
    ("demo/fresh.py", "start", "tempfile.TemporaryDirectory"): "fresh, in the system's",
    ("demo/fresh.py", "start", "np.save"): "inside that folder",
    ("demo/show.py", "show", "out.mkdir"): "makes what is not there",
    ("demo/graphs.py", "write", "replacing"): "names that the README lists, in the folder for them (--out)",
    ("demo/pictures.py", "save", "replacing"): "names that the README lists, in the folder for them (--out)",
    ("demo/pictures.py", "save", "figure.savefig"): "the file that `replacing` opened",
}  # fmt: skip


def writes(module: ast.Module) -> Iterator[tuple[str, str]]:
    """(function, call) of each call in a module that can change what is on disk."""

    def visit(node: ast.AST, where: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            where = (*where, node.name)
        # handing such a function on, as a callback, counts as a call
        if isinstance(node, (ast.Call, ast.Attribute, ast.Name)) and (name := spelled(node)):
            yield ".".join(where), name
        for child in ast.iter_child_nodes(node):
            if not (isinstance(node, ast.Call) and child is node.func and spelled(node)):
                yield from visit(child, where)

    yield from visit(module, ())


def spelled(node: ast.AST) -> str | None:
    """The text of a call that can write, or of the function's name where it is handed on; None for others."""
    call = isinstance(node, ast.Call)
    function = node.func if call else node
    if isinstance(function, ast.Name):
        if function.id == "open" or function.id == "ZipFile":
            return function.id if call and not reads(node, function.id) else None
        return function.id if call and function.id in WRITING | {"remove"} else None
    if not isinstance(function, ast.Attribute):
        return None
    base = function.value.id if isinstance(function.value, ast.Name) else "…"
    name = function.attr
    if name == "ZipFile":
        return f"{base}.{name}" if call and not reads(node, name) else None
    if name == "open" and base not in ON_MODULES:  # Path.open
        return f"{base}.{name}" if call and any(map(is_mode, arguments(node))) else None
    if name in WRITING or name in ON_MODULES.get(base, ()):
        return f"{base}.{name}"
    if name == "replace" and call and len(node.args) == 1 and not node.keywords and base not in ("self",):
        return f"{base}.{name}"  # Path.replace; that of str takes two
    return None


def arguments(node: ast.Call) -> list[ast.expr]:
    return [*node.args, *(keyword.value for keyword in node.keywords)]


def is_mode(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Constant) and isinstance(node.value, str) and set(node.value) <= set("wax+brt")
    )


def reads(node: ast.Call, name: str) -> bool:
    """Whether a call of open() or ZipFile() only reads."""
    if len(node.args) < 2 and not any(keyword.arg == "mode" for keyword in node.keywords):
        return True
    mode = next((k.value for k in node.keywords if k.arg == "mode"), None) or node.args[1]
    return isinstance(mode, ast.Constant) and mode.value in READING


def found() -> Counter:
    calls = Counter()
    for name, tree in package_tree.trees(SPELLED):
        calls.update((name, *call) for call in writes(tree))
    return calls


def test_every_call_that_writes_on_disk_was_reviewed():
    assert set(found()) == set(REVIEWED)


PLANTED = {
    "unlink": "def f(p): p.unlink()",
    "remove": "import os\ndef f(p): os.remove(p)",
    "rmtree": "import shutil\ndef f(p): shutil.rmtree(p)",
    "handed_on": "import shutil, atexit\ndef f(p): atexit.register(shutil.rmtree, p)",
    "open": "def f(p):\n    with open(p, 'w') as file: pass",
    "append": "def f(p): open(p, mode='a')",
    "computed_mode": "def f(p, m): open(p, m)",
    "path_open": "def f(p): p.open('wb')",
    "path_replace": "def f(p, q): p.replace(q)",
    "descriptor": "import os\ndef f(p): os.open(p, os.O_WRONLY)",
    "numpy": "import numpy as np\ndef f(p, x): np.save(p, x)",
    "own": "from lamina.ir.own_files import replacing\ndef f(p): replacing(p)",
    "shared_memory": "from multiprocessing import shared_memory as s\ndef f(): s.SharedMemory('x', True)",
    "in_class": "class A:\n    def f(self, p):\n        def g(): p.rmdir()",
    "of_an_expression": "from pathlib import Path\ndef f(p): Path(p).unlink()",
}
HARMLESS = (
    "open(p); open(p, 'rb'); p.open(); s.replace('a', 'b'); g.replace(nodes=n); l.remove(x); z.ZipFile(p)"
)


def test_the_list_would_notice_a_new_call():
    for name, text in PLANTED.items():
        assert len([*writes(ast.parse(text))]) == 1, name
        assert SPELLED & {*re.findall(r"\w+", text)}, name
    assert [*writes(ast.parse(HARMLESS))] == []
