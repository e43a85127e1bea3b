"""From a checkpoint to one file of `save`, and back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ...ir.errors import ArgumentValueError
from ...runtime import load as load_file
from ...runtime import save as save_file
from ...runtime.checkpoints import own_form
from ...runtime.tensor import tensor_of
from .entries import nested
from .failures import DamagedCheckpointError
from .filesystem import FileSystemReader, room_for, wanted_of
from .metadata import BytesStorageMetadata, Chunk
from .state_dict_saver import save


def dcp_to_torch_save(dcp_checkpoint_dir: str | os.PathLike, torch_save_path: str | os.PathLike) -> None:
    """Write all of a checkpoint into one file, as `save` does.  It is in this process's memory meanwhile.

    Raises DamagedCheckpointError, OSError.
    """
    save_file(read_whole(dcp_checkpoint_dir), torch_save_path)


def torch_save_to_dcp(torch_save_path: str | os.PathLike, dcp_checkpoint_dir: str | os.PathLike) -> None:
    """Write what is in a file of `save` or `torch.save` as a checkpoint.

    Raises SavedFileError for the file, ArgumentError for what no checkpoint holds, CheckpointException.
    """
    found = load_file(torch_save_path)
    if not isinstance(found, Mapping):
        raise ArgumentValueError(
            f"torch_save_to_dcp(): {os.fspath(torch_save_path)!r} holds a {type(found).__name__}, and a "
            "checkpoint is of a dict"
        )
    save(found, checkpoint_id=dcp_checkpoint_dir, no_dist=True)


def read_whole(folder: str | os.PathLike) -> dict[str, Any]:
    """All that a checkpoint holds, with its tensors whole, on this process alone.

    Tensors that lay in one place lie in one again.  Raises DamagedCheckpointError.
    """
    reader = FileSystemReader(folder)
    metadata = reader.read_metadata()
    reader.require_files(metadata)
    values: dict[str, Any] = {}
    wanted = []
    for name, stored in metadata.state_dict_metadata.items():
        if isinstance(stored, BytesStorageMetadata):
            values[name] = own_form.from_json(stored.value)
        elif name not in metadata.same:
            values[name] = made = tensor_of(room_for(stored, name))
            wanted += wanted_of(stored, Chunk((0,) * len(stored.size), tuple(stored.size), made))
    reader.fill(wanted, metadata.files, reader.verify(wanted, metadata.files))
    values |= {name: values[other] for name, other in metadata.same.items()}
    values |= {name: values[name].numpy() for name in metadata.arrays}
    try:
        return nested(values, metadata.ways)
    except ArgumentValueError as error:
        raise DamagedCheckpointError(
            f"load(): the index of {reader.path} contradicts itself: {error}"
        ) from None
