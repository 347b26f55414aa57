# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How fast a camera's frames are segmented, how fast a hospital trains, and what it uploads.

    python benchmark/segmentation.py --json segmentation.json

Frames come one by one, 0.2 s apart, as on a robot: each runs through the encoder once, and what
it made of earlier ones is used again. The naive way sends four frames through the encoder for
each. All in turns on one core with one thread. PyTorch comes from `make setup`, or
`pip install "fdrl_ros[segmentation]"`.
"""

from collections.abc import Callable
import itertools
from typing import Any

from benchmarking import (
    as_process,
    check,
    circumstances,
    has,
    measure,
    Measurement,
    options,
    progress,
    Row,
    show_shares,
    Skipped,
    Table,
    where_time_goes,
    Work,
    write,
)
from fdrl_ros.segmentation.scenes import site_clip
from fdrl_ros.segmentation.text import indicator
import numpy as np

PACKAGES = ('torch', 'numpy')
SEED = 1
INTERVAL = 0.2
"""Between two frames, s."""
SIZES = ('tiny', 'b0', 'b2')
BATCH = 2
"""Clips of a training step, as in the paper."""

NAIVE = 'four frames a pass'
ROWS = (
    Row('tiny_128_fps', 'tiny 128', 'tiny 128 naive', NAIVE, 100.0),
    Row('tiny_256_fps', 'tiny 256', None, '', None),
    Row('b0_128_fps', 'b0 128', 'b0 128 naive', NAIVE, 25.0),
    Row('b0_256_fps', 'b0 256', None, '', 10.0),
    Row('cached_over_naive', 'tiny 128', 'tiny 128 naive', NAIVE, 2.0, ratio='own/peer'),
    Row('b0_cached_over_naive', 'b0 128', 'b0 128 naive', NAIVE, None, ratio='own/peer'),
    Row('tiny_step_ms', 'tiny step', None, '', 300.0, False),
    Row('b0_step_ms', 'b0 step', None, '', None),
    Row('render_128_fps', 'render 128', None, '', 100.0),
    Row('render_256_fps', 'render 256', None, '', 25.0),
)
"""Frames a second; a training step is forward and backward over two clips of four frames."""

UPLOADS = (
    Row('upload_fraction_queries', 'b0', None, '', None),
    Row('upload_fraction_channels', 'b0', None, '', 0.65, False),
)
"""What is uploaded of b0 if queries stay in the hospital, and if the channel network does too."""

KEPT = {
    'upload_fraction_queries': 'queries',
    'upload_fraction_channels': 'queries+channels',
}


def segmenter(size: str) -> Any:
    """
    Return a segmenter with drawn weights.

    :raises Skipped: if PyTorch is missing.
    """
    if not has('torch'):
        raise Skipped('the extra fdrl_ros[segmentation] is not installed')
    from fdrl_ros.segmentation.network.segmenter import Segmenter
    from fdrl_ros.segmentation.network.sizes import SegmenterSettings
    import torch

    torch.set_num_threads(1)
    return Segmenter(SegmenterSettings(size), np.random.default_rng(SEED))


def frames(side: int) -> np.ndarray:
    """Return eight frames, (8, side, side, 3), uint8: no network asks what they show."""
    return np.random.default_rng(SEED).integers(0, 256, (8, side, side, 3), np.uint8)


def stream(size: str, side: int) -> Work:
    """Return work that segments the next frame of a video; it counts frames."""
    made = segmenter(size)
    from fdrl_ros.segmentation.network.streaming import Stream

    video, numbers = Stream(made, indicator('text', 'A')), itertools.count()
    pictures = frames(side)

    def work() -> int:
        number = next(numbers)
        video.segment(pictures[number % len(pictures)], INTERVAL * number)
        return 1

    return work


def naive(size: str, side: int) -> Work:
    """Return work that segments a frame by a pass over four; it counts frames."""
    made = segmenter(size)
    import torch

    text = torch.from_numpy(indicator('text', 'A'))[None]
    pictures = torch.from_numpy(frames(side)[:4]).permute(0, 3, 1, 2)[None]

    def work() -> int:
        with torch.inference_mode():
            logits = made(pictures / 255.0, text)[0]
            return len(logits.argmax(0)[None].numpy()) * len(logits.softmax(0).numpy()[:1])

    return work


def step(size: str) -> Work:
    """Return work that computes the gradient of two clips; it counts steps."""
    made = segmenter(size)
    from fdrl_ros.segmentation.network.losses import segmentation_loss
    import torch

    clips = torch.from_numpy(frames(128)).permute(0, 3, 1, 2).unflatten(0, (BATCH, 4)) / 255.0
    text = torch.from_numpy(indicator('text', 'A')).expand(BATCH, -1)
    labels = torch.from_numpy(frames(128)[:BATCH, :, :, 0] % 4)

    def work() -> int:
        made.zero_grad()
        segmentation_loss(made(clips, text), labels).backward()
        return 1

    return work


def drawing(side: int) -> Work:
    """Return work that draws a clip of site A with its labels; it counts frames."""

    def work() -> int:
        return len(site_clip('A', SEED, 0, frames=8, size=side, rate=1.0 / INTERVAL).frames)

    return work


def measurements() -> dict[str, Measurement]:
    """Return everything that is measured in turns."""

    def of(prepare: Callable[..., Work], *given: Any) -> Callable[[], Work]:
        return lambda: prepare(*given)

    found = {}
    for size in ('tiny', 'b0'):
        for side in (128, 256):
            found[f'{size} {side}'] = Measurement(of(stream, size, side), 's-1')
        found[f'{size} 128 naive'] = Measurement(of(naive, size, 128), 's-1')
        found[f'{size} step'] = Measurement(of(step, size), 'ms')
    for side in (128, 256):
        found[f'render {side}'] = Measurement(of(drawing, side), 's-1')
    return found


def shared(size: str, kept: str) -> tuple[float, float]:
    """
    Return what is uploaded if some tensors stay in the hospital, as a fraction and in MB.

    :raises Skipped: if PyTorch is missing.
    """
    made = segmenter(size)
    from fdrl_ros.segmentation.network.personal import shared_fraction

    fraction = shared_fraction(made, kept)
    return fraction, fraction * 4e-6 * sum(each.numel() for each in made.parameters())


def show_uploads() -> None:
    """Print what a round uploads, of every size."""
    print('MB a round in float32, and the fraction of what FedAvg uploads:')
    for size in SIZES:
        for kept in ('none', 'queries', 'queries+channels'):
            fraction, megabytes = shared(size, kept)
            print(f'  {size:5}{kept:18}{megabytes:7.2f}{fraction:7.1%}')


def main() -> None:
    """Measure, print, write."""
    parser = options('Measure the speed of the segmenter.')
    given = parser.parse_args()
    check(parser, given)
    as_process()
    run = circumstances(given, SEED, PACKAGES)
    found = measure(measurements(), given.repeats, given.seconds)
    progress('')
    made = Table([row.name for row in (*ROWS, *UPLOADS)], run)
    for row in ROWS:
        made.add(row, found)
    for row in UPLOADS:
        try:
            made.add_one(row, shared(row.own, KEPT[row.name])[0], '1')
        except Skipped as reason:
            made.add_one(row, None, '1', words=str(reason))
    made.end()
    try:
        show_uploads()
        show_shares('a frame of b0 at 128', where_time_goes(stream('b0', 128), 3.0))
    except Skipped as reason:
        progress(str(reason))
    if given.json:
        write(given.json, made.written)


if __name__ == '__main__':
    main()
