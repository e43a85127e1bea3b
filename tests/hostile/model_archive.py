"""Takes the file of an exported model apart, and puts one together with hashes and lengths that fit."""

from __future__ import annotations

import hashlib
import io
import json
import warnings
import zipfile
from typing import Any

import numpy as np
from safetensors.numpy import load, save


def split(data: bytes) -> dict[str, bytes]:
    """The members of a file, the manifest among them."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def joined(members: dict[str, bytes], comment: bytes | None = None, kind: int = zipfile.ZIP_STORED) -> bytes:
    """A file of these members.  comment: by default the hash of the manifest."""
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", kind) as archive:
        warnings.simplefilter("ignore")  # a name that stands twice is meant
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, kind)
        fits = hashlib.sha256(members.get("manifest.json", b"")).hexdigest().encode()
        archive.comment = fits if comment is None else comment
    return file.getvalue()


def signed(members: dict[str, bytes], manifest: Any = None, kind: int = zipfile.ZIP_STORED) -> bytes:
    """A file of these members, whose manifest has their hashes."""
    manifest = json.loads(members["manifest.json"]) if manifest is None else manifest
    others = {name: data for name, data in members.items() if name != "manifest.json"}
    if isinstance(manifest, dict) and isinstance(manifest.get("sha256"), dict):
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in others.items()}
        manifest = manifest | {"sha256": hashes}
    return joined(others | {"manifest.json": json.dumps(manifest).encode()}, kind=kind)


def with_arrays(members: dict[str, bytes], **arrays: np.ndarray) -> dict[str, bytes]:
    """The members with other weights of these names."""
    return members | {"weights.safetensors": save(load(members["weights.safetensors"]) | arrays)}
