"""Answer `torchvision.datasets`: pictures that lie in a folder, and made-up ones.  Nothing is downloaded."""

from __future__ import annotations

import gzip
import io
import os
import pickle
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ... import runtime
from ...data import Dataset
from ...ir.errors import ArgumentValueError
from ...runtime import Tensor
from ...runtime.generator import Generator
from .functional import to_pil_image

torch: Any = runtime  # whose functions are made of records, and have no types

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "DatasetFolder",
    "FakeData",
    "FashionMNIST",
    "ImageFolder",
    "KMNIST",
    "MNIST",
    "QMNIST",
    "VisionDataset",
]
IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class VisionDataset(Dataset):
    """Pictures below `root`, and what becomes of them: `transform`, `target_transform`, `transforms`."""

    def __init__(
        self,
        root: Any = None,
        transforms: Callable | None = None,
        transform: Callable | None = None,
        target_transform: Callable | None = None,
    ):
        if transforms is not None and (transform is not None or target_transform is not None):
            raise ArgumentValueError(
                "Only transforms or transform/target_transform can be passed as argument"
            )
        self.root = os.path.expanduser(root) if isinstance(root, str) else root
        self.transforms, self.transform, self.target_transform = transforms, transform, target_transform

    def _seen(self, img: Any, target: Any) -> tuple[Any, Any]:
        if self.transforms is not None:
            return self.transforms(img, target)
        return (
            img if self.transform is None else self.transform(img),
            target if self.target_transform is None else self.target_transform(target),
        )

    def __repr__(self) -> str:
        shown = [f"Dataset {type(self).__name__}", f"    Number of datapoints: {len(self)}"]
        if self.root is not None:
            shown.append(f"    Root location: {self.root}")
        return "\n".join(shown)


def _lacking(kind: str, files: str, download: bool) -> NoReturn:
    raise ArgumentValueError(
        f"{kind}: Dataset not found: there are no files {files}",
        *(["Lamina downloads nothing"] if download else []),
        "fetch the data set's files, and put them there",
    )


# ---- handwritten digits and their kin ----------------------------------------------------------------------
def _idx(place: Path) -> np.ndarray | None:
    """The array in a file of the IDX format, packed or not; None where there is none."""
    for path in (place, place.with_name(place.name + ".gz")):
        if path.is_file():
            raw = path.read_bytes()
            raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
            kinds = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
            if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in kinds:
                raise ArgumentValueError(f"{path} is no file of the IDX format")
            sizes = [int.from_bytes(raw[4 + 4 * k : 8 + 4 * k]) for k in range(raw[3])]
            found = np.frombuffer(raw, kinds[raw[2]], offset=4 + 4 * raw[3])
            if found.size != int(np.prod(sizes)):
                raise ArgumentValueError(f"{path} holds {found.size} numbers, not {sizes}")
            return found.reshape(sizes).astype(found.dtype.newbyteorder("="))
    return None


class MNIST(VisionDataset):
    """Handwritten digits, from root/MNIST/raw: train-images-idx3-ubyte and three more files, .gz or not."""

    classes = [
        "0 - zero",
        "1 - one",
        "2 - two",
        "3 - three",
        "4 - four",
        "5 - five",
        "6 - six",
        "7 - seven",
        "8 - eight",
        "9 - nine",
    ]

    def __init__(
        self,
        root: Any,
        train: bool = True,
        transform: Callable | None = None,
        target_transform: Callable | None = None,
        download: bool = False,
    ):
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        part = "train" if train else "t10k"
        folder = Path(self.raw_folder)
        images, labels = (
            _idx(folder / f"{part}-images-idx3-ubyte"),
            _idx(folder / f"{part}-labels-idx1-ubyte"),
        )
        if images is None or labels is None:
            _lacking(type(self).__name__, f"{folder}/{part}-…-ubyte(.gz)", download)
        self.data, self.targets = torch.from_numpy(images), torch.from_numpy(labels).long()

    @property
    def raw_folder(self) -> str:
        """Where the files lie."""
        return os.path.join(self.root, type(self).__name__, "raw")

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The number of each class."""
        return {name: number for number, name in enumerate(self.classes)}

    @property
    def train_data(self) -> Tensor:
        """The pictures, by an older name."""
        return self.data

    @property
    def train_labels(self) -> Tensor:
        """The labels, by an older name."""
        return self.targets

    test_data, test_labels = train_data, train_labels

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self._seen(to_pil_image(self.data[index].numpy()), int(self.targets[index]))


class FashionMNIST(MNIST):
    """Pictures of clothes, as MNIST's."""

    classes = [
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ]


class KMNIST(MNIST):
    """Handwritten Japanese characters, as MNIST's."""

    classes = ["o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"]


class QMNIST(MNIST):
    """MNIST's digits with more of them for tests, in MNIST's files."""


# ---- small photographs -------------------------------------------------------------------------------------
class _Arrays(pickle.Unpickler):
    """Reads pickles of arrays: nothing else is made of them."""

    def find_class(self, module: str, name: str) -> Any:
        if (module.rpartition(".")[2], name) == ("multiarray", "_reconstruct"):
            return np._core.multiarray._reconstruct  # type: ignore[attr-defined]
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):
            return lambda text, encoding: text.encode(encoding)
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a data set")


class CIFAR10(VisionDataset):
    """Small photographs, from root/cifar-10-batches-py: the files of the archive "python version"."""

    base_folder = "cifar-10-batches-py"
    train_files, test_files = tuple(f"data_batch_{n}" for n in range(1, 6)), ("test_batch",)
    labels, meta, meta_key = "labels", "batches.meta", "label_names"

    def __init__(
        self,
        root: Any,
        train: bool = True,
        transform: Callable | None = None,
        target_transform: Callable | None = None,
        download: bool = False,
    ):
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        folder = Path(self.root) / self.base_folder
        names = self.train_files if train else self.test_files
        if not all([(folder / name).is_file() for name in names]):
            _lacking(type(self).__name__, f"{folder}/{', '.join(names)}", download)
        parts = [self._read(folder / name) for name in names]
        pixels = np.concatenate([np.asarray(part["data"]) for part in parts])
        self.data = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        self.targets = [int(label) for part in parts for label in part[self.labels]]
        known = self._read(folder / self.meta)[self.meta_key] if (folder / self.meta).is_file() else []
        self.classes = list(known)
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}

    @staticmethod
    def _read(path: Path) -> dict[str, Any]:
        return _Arrays(io.BytesIO(path.read_bytes()), encoding="latin1").load()

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self._seen(to_pil_image(self.data[index]), self.targets[index])


class CIFAR100(CIFAR10):
    """Small photographs of a hundred kinds, from root/cifar-100-python."""

    base_folder = "cifar-100-python"
    train_files, test_files = ("train",), ("test",)
    labels, meta, meta_key = "fine_labels", "meta", "fine_label_names"


# ---- folders -----------------------------------------------------------------------------------------------
def default_loader(path: str) -> Any:
    """The picture in a file, in three colours."""
    Image = import_module("PIL.Image")
    with open(path, "rb") as file, Image.open(file) as image:
        return image.convert("RGB")


pil_loader = default_loader


class DatasetFolder(VisionDataset):
    """Files in a folder for each class: root/dog/a.png is a dog."""

    def __init__(
        self,
        root: Any,
        loader: Callable = default_loader,
        extensions: tuple[str, ...] | None = None,
        transform: Callable | None = None,
        target_transform: Callable | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ):
        super().__init__(root, transform=transform, target_transform=target_transform)
        if (extensions is None) == (is_valid_file is None):
            raise ArgumentValueError(
                "Both extensions and is_valid_file cannot be None or not None at the same time"
            )
        self.loader, self.extensions = loader, extensions
        fits = is_valid_file or (lambda path: path.lower().endswith(tuple(extensions or ())))
        self.classes = sorted(entry.name for entry in os.scandir(self.root) if entry.is_dir())
        if not self.classes:
            raise FileNotFoundError(f"Couldn't find any class folder in {self.root}.")
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        self.samples = [
            (path, number)
            for name, number in self.class_to_idx.items()
            for folder, _, files in sorted(os.walk(os.path.join(self.root, name), followlinks=True))
            for file in sorted(files)
            if fits(path := os.path.join(folder, file))
        ]
        empty = set(self.class_to_idx.values()) - {number for _, number in self.samples}
        if empty and not allow_empty:
            names = ", ".join(self.classes[number] for number in sorted(empty))
            raise FileNotFoundError(f"Found no valid file for the classes {names}.")
        self.targets = [number for _, number in self.samples]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        return self._seen(self.loader(path), target)


class ImageFolder(DatasetFolder):
    """Pictures in a folder for each class: root/dog/a.png is a dog."""

    def __init__(
        self,
        root: Any,
        transform: Callable | None = None,
        target_transform: Callable | None = None,
        loader: Callable = default_loader,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ):
        kinds = None if is_valid_file is not None else IMG_EXTENSIONS
        super().__init__(root, loader, kinds, transform, target_transform, is_valid_file, allow_empty)
        self.imgs = self.samples


class FakeData(VisionDataset):
    """Pictures of noise, each index always the same."""

    def __init__(
        self,
        size: int = 1000,
        image_size: tuple[int, ...] = (3, 224, 224),
        num_classes: int = 10,
        transform: Callable | None = None,
        target_transform: Callable | None = None,
        random_offset: int = 0,
    ):
        super().__init__(None, transform=transform, target_transform=target_transform)
        self.size, self.image_size, self.num_classes = size, image_size, num_classes
        self.random_offset = random_offset

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if index >= len(self):
            raise IndexError(f"{type(self).__name__} index out of range")
        drawn = Generator().manual_seed(index + self.random_offset)
        img = torch.empty(*self.image_size).normal_(generator=drawn)
        target = torch.empty((), dtype=torch.as_tensor(0).dtype).random_(0, self.num_classes, generator=drawn)
        return self._seen(to_pil_image(img), int(target))
