"""Machine code of one kernel for one GPU architecture, and what a launch of it must know."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from ..cache import pack, unpack


@dataclass(frozen=True)
class Binary:
    """A compiled kernel.

    name: of the entry.  code: a cubin or an hsaco, which is an ELF file.  text: the same as PTX or AMD
    assembly.  num_warps: of a block; Triton may have raised it.  num_ctas: blocks of a cluster.  shared:
    bytes of shared memory for each block, to be given at the launch.  global_scratch, profile_scratch: bytes
    of memory for each block, and their alignment; a launch passes a pointer to each after the kernel's own.
    target: the name of what it is for.
    """

    name: str
    code: bytes
    text: str
    num_warps: int
    num_ctas: int
    shared: int
    global_scratch: tuple[int, int]
    profile_scratch: tuple[int, int]
    target: str

    def packed(self) -> bytes:
        """All of it as bytes, for a cache or another process."""
        fields = asdict(self)
        del fields["code"], fields["text"]
        return pack(json.dumps(fields).encode(), self.code, self.text.encode())

    @classmethod
    def unpacked(cls, data: bytes) -> Binary:
        """What was packed.  Raises ValueError or TypeError for anything else."""
        pieces = unpack(data)
        if len(pieces) != 3:
            raise ValueError(f"a binary is packed in 3 pieces, not {len(pieces)}")
        fields = json.loads(pieces[0])
        if not isinstance(fields, dict):
            raise ValueError("a binary's fields are no JSON object")
        for scratch in ("global_scratch", "profile_scratch"):
            fields[scratch] = tuple(fields.get(scratch, ()))
        return cls(**fields, code=pieces[1], text=pieces[2].decode())
