# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Pictures of the expert at work: one PNG and, if wanted, one moving GIF for each procedure."""

from collections.abc import Sequence
from pathlib import Path

from fdrl_ros.errors import StoreError, TrainingStopped
from fdrl_ros.runtime.progress import Caller, NOBODY, Progress
from fdrl_ros.surgery.gym.actions import ACTIONS, SUBSTEPS, TICK
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.render.picture import picture
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.expert import expert
from PIL import Image

WIDTH, HEIGHT = 360, 270
FRAME = 2
"""Ticks from one picture of a GIF to the next."""

STILL = 0.7
"""How much of the procedure is done in the PNG, at least."""

_COLOURS = 256
_SAMPLES = 12
"""Frames that the colours of a GIF are taken from, about."""


def draw_procedures(
    directory: Path,
    patients: Sequence[Patient],
    *,
    moving: bool = False,
    world: WorldSettings | None = None,
    caller: Caller = NOBODY,
) -> list[Path]:
    """
    Let the expert operate on patients and draw it from near, each named by its procedure.

    :param directory: where `<procedure>.png` and `<procedure>.gif` go; made if it is not there.
    :param patients: one for each procedure that is drawn.
    :param moving: draw the GIF too.
    :returns: the files, in the order in which they were written.
    :raises StoreError: if the directory or a file cannot be written.
    :raises TrainingStopped: as soon as the caller says so.
    """
    written = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for number, patient in enumerate(patients, 1):
            procedure = patient.procedure.name
            frames, still = _watch(patient, world or WorldSettings(), moving, caller)
            written.append(directory / f'{procedure}.png')
            _in_one_palette([still])[0].save(written[-1], optimize=True)
            if moving:
                written.append(directory / f'{procedure}.gif')
                frames = _in_one_palette(frames)
                frames[0].save(
                    written[-1],
                    save_all=True,
                    append_images=frames[1:],
                    duration=round(1000 * FRAME * TICK),
                    loop=0,
                    optimize=True,
                )
            caller.report(Progress('draw', procedure, number, len(patients)))
    except OSError as error:
        raise StoreError(f'cannot draw into {directory}: {error}') from error
    return written


def _watch(
    patient: Patient, world: WorldSettings, moving: bool, caller: Caller
) -> tuple[list[Image.Image], Image.Image]:
    """Return the frames of one operation and the still among them."""
    operation = Operation(world)
    frames: list[Image.Image] = []
    still: Image.Image | None = None
    try:
        operation.reset(patient)
        while True:
            if caller.stopped():
                raise TrainingStopped(f'drawing stopped at {patient.procedure.name}')
            last = operation.done
            if moving and (operation.ticks % FRAME == 0 or last):
                frames.append(_frame(operation))
            if still is None and (operation.scene.done >= STILL or last):
                still = _frame(operation)
            if last:
                assert still is not None
                return frames, still
            action, _ = expert(operation.state(), patient, world)
            operation.act(ACTIONS[action])
            operation.advance(SUBSTEPS)
            operation.tick()
    finally:
        operation.close()


def _frame(operation: Operation) -> Image.Image:
    return Image.fromarray(picture(operation, WIDTH, HEIGHT))


def _in_one_palette(frames: Sequence[Image.Image]) -> list[Image.Image]:
    """Return frames with one shared palette; palettes of their own would flicker."""
    some = frames[:: max(1, len(frames) // _SAMPLES)]
    sheet = Image.new('RGB', (WIDTH, HEIGHT * len(some)))
    for number, each in enumerate(some):
        sheet.paste(each, (0, HEIGHT * number))
    palette = sheet.quantize(_COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    return [each.quantize(palette=palette, dither=Image.Dither.NONE) for each in frames]
