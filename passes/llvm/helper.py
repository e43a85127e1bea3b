"""A process that compiles beside the one that wants code: texts in, object files out, until the input ends.

Run as a file, it imports LLVM and nothing else.  Numbers are 8 bytes, strings have their length in front:
first the CPU, its features and the optimisation level as one text of three lines; then for each module its
text, answered by its object, an empty one if LLVM refuses the text.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import llvmlite.binding as llvm


@contextmanager
def asked_options(text: str) -> Iterator[None]:
    """LLVM with the switches that a text's first line names, "; -a -b": they are off for other texts."""
    first = text.partition("\n")[0]
    options = first.split()[1:] if first.startswith("; -") else ()
    try:
        for option in options:
            llvm.set_option("", option)
        yield
    finally:
        for option in options:
            llvm.set_option("", f"{option}=false")


def main() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    given, answer = sys.stdin.buffer, sys.stdout.buffer
    settings = _read(given)
    if settings is None:
        return
    cpu, features, level = settings.decode().split("\n")
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=int(level), jit=True, codemodel="jitdefault"
    )
    while (data := _read(given)) is not None:
        text = data.decode()
        try:
            module = llvm.parse_assembly(text, llvm.create_context())
            module.verify()
            with asked_options(text):
                made = machine.emit_object(module)
        except RuntimeError:
            made = b""
        answer.write(len(made).to_bytes(8, "little") + made)
        answer.flush()


def _read(stream) -> bytes | None:
    """The next string, or None where the input has ended."""
    head = stream.read(8)
    size = int.from_bytes(head, "little")
    data = stream.read(size)
    return data if len(head) == 8 and len(data) == size else None


if __name__ == "__main__":
    main()
