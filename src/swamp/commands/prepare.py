"""`swamp prepare`: decode and scale the images of a data set once, so that training need not do it in every epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from swamp.commands.arguments import DISPLAY_OPTIONS, DisplayOptions, Flag, WholeNumber

group = "Prepare"
usage = "Usage: swamp prepare [NAME] [OPTIONS]"


def prepare(
    name: Annotated[str | None, Parameter(name="NAME", help="The data set; without it, those that can be prepared are listed.")] = None,
    /,
    *,
    out: Path | None = None,
    data: Path | None = None,
    size: WholeNumber | None = None,
    store: str | None = None,
    quality: WholeNumber | None = None,
    decoder: str | None = None,
    workers: WholeNumber = 0,
    hold_out: float = 0,
    hold_out_seed: WholeNumber | None = None,
    verify: Flag = False,
    display: DisplayOptions = DISPLAY_OPTIONS,
) -> None:
    """Decode and scale the images of a data set once, so that training need not do it in every epoch.

    It can be stopped at any time; the same command goes on where it was, and ends with the same bytes. On a folder that is complete it
    makes again what is damaged or missing, and adds test sets that were not there before. Training then takes the folder as --data.

    Parameters
    ----------
    out
        Folder for the prepared images, new or begun before.
    data
        Folder that holds the image files. Default: the environment's SWAMP_DATA.
    size
        Shorter side of the stored images; smaller images are not enlarged. Default: 256, for tiny-imagenet 64.
    store
        raw (pixels, read without decoding) or jpeg (a fifth of the space or less, decoded again in training). Default: raw.
    quality
        Quality of stored JPEG files, 1 to 100. Default: 90.
    decoder
        JPEG decoder: simplejpeg, torchcodec or pil. Default: the fastest that is installed.
    workers
        Processes that decode; 0 means one for each core.
    hold_out
        Of a folder without test images: the number or share of training images that become test images.
    hold_out_seed
        Seed of the choice of these images. Default: 0.
    verify
        Also compare the checksums of all shards that are there, and make again those that differ.
    """
    from swamp.preparation import PreparationRequest, print_preparable, run_preparation

    display.check()
    if name is None:
        print_preparable(display.plain)
        return
    request = PreparationRequest(name, data, out, size, store, quality, decoder, workers, hold_out, hold_out_seed, verify)
    run_preparation(request, display.quiet, display.plain)
