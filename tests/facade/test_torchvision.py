"""The stand-in for torchvision: pictures and tensors are changed alike; data sets on disk; blocks."""

import gzip
import pickle

import numpy as np
import pytest
from PIL import Image

import lamina
from lamina.facade import torchvision as tv
from lamina.facade.torchvision import functional as F
from lamina.facade.torchvision import transforms as T


@pytest.fixture
def picture():
    """A smooth picture, 24 wide and 16 high."""
    y, x = np.mgrid[:16, :24]
    channels = [x * 10, y * 15, (x + y) * 6]
    return Image.fromarray(np.stack(channels, -1).astype(np.uint8))


def both(change, picture, within):
    """A change of Pillow's picture and of its tensor differ by no more than `within` of 255."""
    by_pillow = F.pil_to_tensor(change(picture)).int()
    by_tensor = change(F.pil_to_tensor(picture)).int()
    assert by_pillow.shape == by_tensor.shape
    assert (by_pillow - by_tensor).abs().max() <= within, (by_pillow - by_tensor).abs().max()


@pytest.mark.parametrize(
    ("change", "within"),
    [
        (lambda i: F.resize(i, 8), 1),
        (lambda i: F.resize(i, (20, 30)), 1),
        (lambda i: F.resize(i, [8], F.InterpolationMode.BICUBIC), 2),
        (lambda i: F.resize(i, (32, 48), F.InterpolationMode.NEAREST), 0),
        (lambda i: F.crop(i, -2, 3, 10, 30), 0),
        (lambda i: F.center_crop(i, 10), 0),
        (lambda i: F.center_crop(i, (20, 10)), 0),
        (lambda i: F.resized_crop(i, 1, 2, 10, 12, (5, 5)), 1),
        (lambda i: F.pad(i, 2), 0),
        (lambda i: F.pad(i, (1, 2), 7), 0),
        (lambda i: F.pad(i, (1, 2, 3, 4), padding_mode="reflect"), 0),
        (lambda i: F.pad(i, (1, 2, 3, 4), padding_mode="edge"), 0),
        (lambda i: F.pad(i, (1, 2, 3, 4), padding_mode="symmetric"), 0),
        (F.hflip, 0),
        (F.vflip, 0),
        (lambda i: F.rotate(i, 90, expand=True), 0),
        (lambda i: F.rotate(i, 180), 0),
        (lambda i: F.affine(i, 0, (3, -2), 1.0, 0), 0),
        (lambda i: F.rgb_to_grayscale(i), 1),
        (lambda i: F.rgb_to_grayscale(i, 3), 1),
        (lambda i: F.adjust_brightness(i, 1.3), 1),
        (lambda i: F.adjust_contrast(i, 0.6), 1),
        (lambda i: F.adjust_saturation(i, 0.4), 1),
        (lambda i: F.adjust_gamma(i, 0.8), 1),
        (lambda i: F.adjust_sharpness(i, 1.5), 2),
        (lambda i: F.adjust_hue(i, 0.2), 12),  # Pillow's hues are of 256 steps
        (F.invert, 0),
        (lambda i: F.posterize(i, 3), 0),
        (lambda i: F.solarize(i, 128), 0),
        (F.autocontrast, 1),
        (F.equalize, 0),
        (lambda i: F.gaussian_blur(i, 3), 0),
    ],
)
def test_pictures_and_tensors_are_changed_alike(picture, change, within):
    both(change, picture, within)


def test_turning_by_other_angles(picture):
    for angle in (30, -77):
        by_pillow = np.asarray(F.rotate(picture, angle, F.InterpolationMode.BILINEAR)).astype(int)
        by_tensor = (
            F.rotate(F.pil_to_tensor(picture), angle, F.InterpolationMode.BILINEAR).permute(1, 2, 0).numpy()
        )
        inside = (slice(5, 11), slice(9, 15))
        assert np.abs(by_pillow[inside] - by_tensor[inside].astype(int)).max() <= 2


def test_kinds_go_there_and_back(picture):
    x = F.to_tensor(picture)
    assert x.shape == (3, 16, 24) and x.dtype is lamina.float32 and x.max() <= 1
    assert np.array_equal(np.asarray(F.to_pil_image(x)), np.asarray(picture))
    assert F.get_dimensions(picture) == F.get_dimensions(x) == [3, 16, 24]
    assert F.get_image_size(x) == [24, 16]
    assert F.to_tensor(np.zeros((2, 3), np.float32)).shape == (1, 2, 3)
    assert F.convert_image_dtype(lamina.tensor([0.0, 1.0]), lamina.uint8).tolist() == [0, 255]
    assert F.convert_image_dtype(lamina.tensor([0, 255], dtype=lamina.uint8), lamina.float32).tolist() == [
        0,
        1,
    ]
    normal = F.normalize(x, [0.5, 0.4, 0.3], [0.2, 0.2, 0.1])
    lamina.testing.assert_close(normal[1], (x[1] - 0.4) / 0.2)
    with pytest.raises(ValueError, match="division by zero"):
        F.normalize(x, [0.0] * 3, [0.0] * 3)
    for wrong in ("x", 3, None):
        with pytest.raises(TypeError):
            F.to_tensor(wrong)
        with pytest.raises(TypeError):
            F.hflip(wrong)


def test_random_changes_obey_the_seed(picture):
    changes = T.Compose(
        [
            T.RandomResizedCrop(12),
            T.RandomHorizontalFlip(),
            T.RandomVerticalFlip(0.5),
            T.ColorJitter(0.4, 0.4, 0.4, 0.1),
            T.RandomRotation(20),
            T.RandomAffine(10, (0.1, 0.1), (0.9, 1.1), 5),
            T.RandomGrayscale(0.5),
            T.RandomApply([T.GaussianBlur(3)], 0.5),
            T.RandomChoice([T.RandomInvert(1.0), T.RandomPosterize(4)]),
            T.RandomOrder([T.RandomSolarize(100), T.RandomAutocontrast()]),
            T.RandomAdjustSharpness(2),
            T.RandomEqualize(),
            T.RandAugment(),
            T.TrivialAugmentWide(),
            T.RandomCrop(10, padding=2),
            T.ToTensor(),
            T.RandomErasing(1.0),
            T.Normalize((0.5,), (0.5,)),
        ]
    )
    results = []
    for _ in range(2):
        lamina.manual_seed(3)
        results.append([changes(picture) for _ in range(5)])
    assert all(lamina.equal(a, b) for a, b in zip(*results, strict=True))
    assert not lamina.equal(results[0][0], results[0][1]) and results[0][0].shape == (3, 10, 10)
    assert repr(changes).startswith("Compose(\n    RandomResizedCrop(size=(12, 12)")


def test_five_and_ten_parts(picture):
    parts = T.TenCrop(6)(picture)
    assert len(parts) == 10 and all(part.size == (6, 6) for part in parts)
    assert np.array_equal(np.asarray(parts[3]), np.asarray(picture)[-6:, -6:])
    with pytest.raises(ValueError, match="bigger than input size"):
        F.five_crop(picture, 30)


# ---- data sets ---------------------------------------------------------------------------------------------
def idx(array):
    return bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4) for n in array.shape) + array.tobytes()


def test_digits_on_disk(tmp_path):
    with pytest.raises(ValueError, match="Lamina downloads nothing"):
        tv.datasets.MNIST(tmp_path, download=True)
    images = np.random.default_rng(0).integers(0, 256, (3, 28, 28), np.uint8)
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    (raw / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
    (raw / "train-labels-idx1-ubyte").write_bytes(idx(np.array([7, 1, 2], np.uint8)))
    found = tv.datasets.MNIST(
        str(tmp_path), download=True, transform=T.ToTensor(), target_transform=lambda n: n + 1
    )
    x, y = found[0]
    assert len(found) == 3 and y == 8 and x.shape == (1, 28, 28)
    assert np.array_equal((x * 255).round().byte().numpy()[0], images[0])
    loader = lamina.data.DataLoader(found, batch_size=3)
    assert next(iter(loader))[0].shape == (3, 1, 28, 28)
    (raw / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)[:-5]))
    with pytest.raises(ValueError, match="holds .* numbers, not"):
        tv.datasets.MNIST(tmp_path)


def test_photographs_on_disk(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    data = np.random.default_rng(0).integers(0, 256, (2, 3072), np.uint8)
    (folder / "test_batch").write_bytes(pickle.dumps({"data": data, "labels": [3, 4]}, protocol=2))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": ["a", "b"]}))
    found = tv.datasets.CIFAR10(tmp_path, train=False)
    image, label = found[1]
    assert label == 4 and found.classes == ["a", "b"]
    assert np.array_equal(np.asarray(image).transpose(2, 0, 1).ravel(), data[1])
    (folder / "test_batch").write_bytes(pickle.dumps(print))
    with pytest.raises(pickle.UnpicklingError, match="is no part of a data set"):
        tv.datasets.CIFAR10(tmp_path, train=False)


def test_folders_of_pictures(tmp_path, picture):
    for name in ("dog/a.png", "cat/b.PNG", "cat/c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        picture.save(tmp_path / name, "png")
    found = tv.datasets.ImageFolder(tmp_path, T.ToTensor())
    assert found.classes == ["cat", "dog"] and len(found) == 2 and found[1][1] == 1
    assert lamina.equal(found[0][0], F.to_tensor(picture))
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="empty"):
        tv.datasets.ImageFolder(tmp_path)
    noise = tv.datasets.FakeData(5, (3, 8, 8), 4, T.ToTensor())
    assert lamina.equal(noise[2][0], noise[2][0]) and 0 <= noise[2][1] < 4


# ---- pictures side by side, boxes, networks ----------------------------------------------------------------
def test_pictures_side_by_side(tmp_path):
    x = lamina.rand(5, 1, 4, 6)
    grid = tv.utils.make_grid(x, nrow=3, padding=1)
    assert grid.shape == (3, 11, 22) and lamina.equal(grid[0, 6:10, 1:7], x[3, 0])
    assert tv.utils.make_grid(x * 9, normalize=True).max() == 1
    tv.utils.save_image(x, tmp_path / "a.png", nrow=3)
    with Image.open(tmp_path / "a.png") as written:
        assert written.size == (26, 14)


def test_boxes():
    boxes = lamina.tensor([[0.0, 0, 4, 4], [1, 1, 5, 5], [10, 10, 12, 12]])
    lamina.testing.assert_close(tv.ops.box_iou(boxes, boxes)[0, 1], lamina.tensor(9 / 23))
    assert tv.ops.nms(boxes, lamina.tensor([0.5, 0.9, 0.1]), 0.3).tolist() == [1, 2]
    assert tv.ops.nms(boxes, lamina.tensor([0.5, 0.9, 0.1]), 0.5).tolist() == [1, 0, 2]
    assert tv.ops.batched_nms(
        boxes, lamina.tensor([0.5, 0.9, 0.1]), lamina.tensor([0, 1, 0]), 0.3
    ).tolist() == [1, 0, 2]
    for kind in ("xywh", "cxcywh"):
        there = tv.ops.box_convert(boxes, "xyxy", kind)
        assert lamina.equal(tv.ops.box_convert(there, kind, "xyxy"), boxes)
    assert tv.ops.clip_boxes_to_image(boxes, (3, 11))[2].tolist() == [10, 3, 11, 3]


def test_boxes_around_masks():
    masks = lamina.zeros(2, 5, 7)
    masks[0, 1:3, 2:6] = 0.5
    masks[0, 3, 4] = masks[1, 4, 0] = 1
    assert tv.ops.masks_to_boxes(masks).tolist() == [[2, 1, 5, 3], [0, 4, 0, 4]]
    assert tv.ops.masks_to_boxes(masks > 0).tolist() == [[2, 1, 5, 3], [0, 4, 0, 4]]
    assert tv.ops.masks_to_boxes(masks[:0]).shape == (0, 4)
    with pytest.raises(ValueError, match="each mask covers a pixel at least"):
        tv.ops.masks_to_boxes(masks * 0)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("resnet18", 11_689_512),
        ("resnet50", 25_557_032),
        ("densenet121", 7_978_856),
        ("resnext50_32x4d", 25_028_904),
        ("mobilenet_v2", 3_504_872),
    ],
)
def test_networks_have_the_parameters_of_torchvisions(name, parameters):
    with lamina.device("meta"):
        model = getattr(tv.models, name)()
    assert sum(p.numel() for p in model.parameters()) == parameters
    with pytest.raises(ValueError, match="Lamina downloads nothing"):
        getattr(tv.models, name)(weights=tv.models.ResNet18_Weights.DEFAULT)


def test_a_network_runs():
    model = tv.models.resnet18(num_classes=7).eval()
    assert model(lamina.randn(1, 3, 33, 33)).shape == (1, 7)
    assert list(model.state_dict())[:2] == ["conv1.weight", "bn1.weight"]
    assert "layer2.0.downsample.1.running_var" in model.state_dict()
    frozen, live = tv.ops.FrozenBatchNorm2d(3), lamina.nn.BatchNorm2d(3).eval()
    x = lamina.randn(2, 3, 4, 4)
    lamina.testing.assert_close(frozen(x), live(x))
