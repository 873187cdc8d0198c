"""Small folders of made-up images in classes, and the bytes of what was prepared from them."""

from __future__ import annotations

from pathlib import Path

from tests.support.made_up_datasets import gradient_jpeg, write

SYNSETS = ("n01440764", "n01443537", "n01484850")


def imagenet_tree(root: Path, per_class: int = 4, width: int = 40, height: int = 50) -> Path:
    """Three classes of ImageNet, with an ImageNet-R of two of them. There are at most ten different images."""
    images = [gradient_jpeg(width + 5 * seed, height - seed, seed) for seed in range(10)]
    for split, count in (("train", per_class), ("val", 2)):
        for label, synset in enumerate(SYNSETS):
            for index in range(count):
                name = f"{synset}_{index}.JPEG" if split == "train" else f"ILSVRC2012_val_{label}{index}.JPEG"
                write(root / "imagenet" / split / synset / name, images[(3 * index + label) % 10])
    for label, synset in enumerate(SYNSETS[1:]):
        write(root / "imagenet-r" / synset / "art_0.jpg", images[label])
    return root


def prepared_bytes(folder: Path) -> dict[str, bytes]:
    """All files of a prepared folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
