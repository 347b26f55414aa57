# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Pictures of operations: one PNG and, if wanted, one moving GIF for each procedure."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from fdrl_ros.errors import os_errors_as, StoreError, TrainingStopped
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


class Step(NamedTuple):
    """
    One tick of an operation that was watched.

    :param time: since its begin, seconds.
    :param action: in words.
    :param force: greatest normal force in the tick, newton.
    """

    time: float
    action: str
    force: float


class Watched(NamedTuple):
    """
    An operation that was watched.

    :param frames: pictures of its whole length; none unless they were asked for.
    :param still: the picture in which most is to be seen.
    :param success: of the operation.
    :param failure: why it failed, as `msg/Outcome.msg` names it; empty if it did not.
    """

    frames: list[Image.Image]
    still: Image.Image
    steps: list[Step]
    success: bool
    failure: str


Act = Callable[[Operation], int]
"""Chooses the action of one tick."""

Actor = Callable[[Patient], Act]
"""Who operates, given the patient."""


def expert_actor(world: WorldSettings) -> Actor:
    """Return the expert, who knows the hidden tissue."""
    return lambda patient: lambda operation: expert(operation.state(), patient, world)[0]


def draw_procedures(
    directory: Path,
    patients: Sequence[Patient],
    *,
    actor: Actor | None = None,
    moving: bool = False,
    world: WorldSettings | None = None,
    caller: Caller = NOBODY,
) -> list[Path]:
    """
    Let somebody operate on patients and draw it from near, each named by its procedure.

    :param directory: where `<procedure>.png` and `<procedure>.gif` go; made if it is not there.
    :param patients: one for each procedure that is drawn.
    :param actor: who operates; the expert unless given.
    :param moving: draw the GIF too.
    :returns: the files, in the order in which they were written.
    :raises StoreError: if the directory or a file cannot be written.
    :raises TrainingStopped: as soon as the caller says so.
    """
    written = []
    world = world or WorldSettings()
    for number, patient in enumerate(patients, 1):
        procedure = patient.procedure.name
        seen = watch(patient, world, actor or expert_actor(world), moving=moving, caller=caller)
        written.append(directory / f'{procedure}.png')
        with os_errors_as(StoreError, f'cannot draw into {directory}'):
            directory.mkdir(parents=True, exist_ok=True)
            _in_one_palette([seen.still])[0].save(written[-1], optimize=True)
        if moving:
            written.append(directory / f'{procedure}.gif')
            save_moving(seen.frames, written[-1])
        caller.report(Progress('draw', procedure, number, len(patients)))
    return written


def save_moving(frames: Sequence[Image.Image], path: Path) -> None:
    """
    Write frames as a GIF that runs at the speed of the operation.

    :raises StoreError: if it cannot be written.
    """
    first, *rest = _in_one_palette(frames)
    duration = round(1000 * FRAME * TICK)
    with os_errors_as(StoreError, f'cannot draw {path}'):
        first.save(
            path, save_all=True, append_images=rest, duration=duration, loop=0, optimize=True
        )


def watch(
    patient: Patient,
    world: WorldSettings,
    actor: Actor,
    *,
    moving: bool = False,
    caller: Caller = NOBODY,
) -> Watched:
    """
    Let somebody operate on one patient, and keep what is seen.

    :param moving: keep pictures of its whole length.
    :raises TrainingStopped: as soon as the caller says so.
    """
    operation = Operation(world)
    frames: list[Image.Image] = []
    steps: list[Step] = []
    still: Image.Image | None = None
    try:
        operation.reset(patient)
        act = actor(patient)
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
                outcome = operation.outcome
                return Watched(frames, still, steps, outcome.success, outcome.failure)
            action = act(operation)
            operation.act(ACTIONS[action])
            operation.advance(SUBSTEPS)
            operation.tick()
            force = operation.outcome.peak_force
            steps.append(Step(operation.ticks * TICK, ACTIONS[action].name, force))
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
