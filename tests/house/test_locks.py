"""Hold the package's locks to a list that someone has read: a fork must leave none taken in the child.

`ir.locks.fork_safe_lock` makes locks that a fork takes for its length.  What else makes one says here what
becomes of it in a child where the thread that held it doesn't exist.
"""

import ast

import package_tree

MAKERS = {"Lock", "RLock", "allocate_lock", "Condition", "Semaphore", "BoundedSemaphore", "Barrier"}
MODULES = {"threading", "_thread"}

REVIEWED = {
    ("passes/llvm/binding.py", "call"): "who waits for it looks whether it is another process now",
    ("ir/locks.py", "<module>"): "_forking, which _heal makes new",
    ("ir/locks.py", "fork_safe_lock"): "taken for the length of each fork",
    ("runtime/native.py", "_load"): "where it is taken, the call has a frame of its own",
    ("runtime/triton_compiler.py", "__init__"): "only the thread that made the compiler, and its workers",
    ("runtime/cuda/driver.py", "__init__"): "CUDA refuses in a child of a process that had begun it",
    ("runtime/cuda/pinned.py", "__init__"): "CUDA refuses in a child of a process that had begun it",
    ("runtime/cuda/allocator.py", "__init__"): "CUDA refuses in a child of a process that had begun it",
    ("runtime/cuda/machine.py", "__init__"): "CUDA refuses in a child of a process that had begun it",
    ("facade/futures.py", "__init__"): "a Condition of a lock that fork_safe_lock made",
    ("distributed/store.py", "__init__"): "a Condition of a lock that fork_safe_lock made",
    ("distributed/pmi_server.py", "__init__"): "a process of its own, which never forks",
    ("jit/trace.py", "__init__"): "_in_child makes it new",
    ("jit/trace.py", "_in_child"): "made new in the child",
    ("jit/quick.py", "__init__"): "TracedFunction._in_child lets go of what holds it",
    ("jit/lamina_model.py", "_make"): "_forked makes it new",
    ("jit/lamina_model.py", "<module>"): "_forked makes it new",
    ("jit/lamina_model.py", "_forked"): "made new in the child",
    ("jit/lamina_model_cuda.py", "_make"): "_forked makes it new",
    ("jit/lamina_model_cuda.py", "_forked"): "made new in the child",
}


def locks():
    """The (file, function) of each making of a lock in the package."""
    for file, tree in package_tree.trees(MAKERS):
        yield from _of(tree, file, "<module>")


def _of(node, file, function):
    for child in ast.iter_child_nodes(node):
        inside = child.name if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) else function
        if isinstance(child, ast.Call) and _is_maker(child.func):
            yield file, inside
        yield from _of(child, file, inside)


def _is_maker(called):
    if isinstance(called, ast.Attribute):
        return called.attr in MAKERS and isinstance(called.value, ast.Name) and called.value.id in MODULES
    return isinstance(called, ast.Name) and called.id in MAKERS - {"Condition"}  # ir.dims has one of sizes


def test_a_fork_leaves_no_lock_taken():
    found = set(locks())
    assert found - set(REVIEWED) == set(), "made by ir.locks.fork_safe_lock, or read and listed"
    assert set(REVIEWED) - found == set(), "no longer there"


def test_nobody_imports_locks_by_name():
    """`from threading import Lock` is seen as the attribute is."""
    assert _is_maker(ast.parse("RLock()").body[0].value.func)
    assert _is_maker(ast.parse("threading.Lock()").body[0].value.func)
    assert not _is_maker(ast.parse("dims.Condition(a)").body[0].value.func)


def test_no_lock_of_the_standard_library_is_taken():
    """functools' cached_property holds one before Python 3.12, while it computes, for all of a class."""
    held = {"cached_property"}
    for file, tree in package_tree.trees(held):
        if file in ("ir/locks.py", "jit/observe/policy.py"):  # which makes another, and which knows programs'
            continue
        imports = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == "functools"]
        assert not any(alias.name in held for node in imports for alias in node.names), file
        named = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr in held]
        assert named == [], f"{file}: ir.locks has one"
