"""Checkpoints of what is spread over ranks: sharded, whole or not there, checked as they are read."""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(
        f"{__name__} is a folder of Lamina's repository: write import lamina.distributed.checkpoint"
    )

from . import entries, format_utils, metadata, planner, state_dict
from .checkpoints import Checkpoints
from .entries import Stateful
from .failures import CheckpointException, DamagedCheckpointError
from .filesystem import FileSystemReader, FileSystemWriter
from .meeting import Alone, Meeting
from .metadata import (
    BytesStorageMetadata,
    Chunk,
    ChunkStorageMetadata,
    Metadata,
    TensorStorageMetadata,
)
from .planner import DefaultLoadPlanner, DefaultSavePlanner, LoadPlanner, SavePlanner
from .state_dict_loader import load
from .state_dict_saver import async_save, save

default_planner, stateful = planner, entries  # the modules that PyTorch has these in
