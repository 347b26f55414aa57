# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Check that sight and tables, joined, bound the force: the third claim of the shield's proof.

The truth goes on from histories of :mod:`fdrl_ros.shield.worst_cases` with its own stiffness,
damping and arm, under the surface that rises fastest, and is compared with what the shield says of
every move by what it saw until then: all that it looks up and rounds is in that.
"""

from collections.abc import Iterator

from fdrl_ros.shield.excursion import Bounds, JITTER, MOVES, POWER, surface
from fdrl_ros.shield.prediction import Prediction
from fdrl_ros.shield.proof import (
    Array,
    check_sight,
    check_tables,
    Finding,
    kappas_of,
    Margins,
    quiet,
    Report,
    watched,
)
from fdrl_ros.shield.retreat import RISE
from fdrl_ros.shield.settings import ShieldSettings
from fdrl_ros.shield.workspace import RIDING
from fdrl_ros.shield.worst_cases import between, corners, Truths
from fdrl_ros.surgery.gym.actions import COARSE_STEP, MAXIMUM_SPEED, SUBSTEP, SUBSTEPS, TICK
from fdrl_ros.surgery.tasks.outcome import HARD_STOP
from fdrl_ros.surgery.tasks.procedures import procedure_named
import numpy as np
from numpy.typing import NDArray

_STEPS = 168
_OFF = ((1.0, 1.0, 1.0), (-1.0, -1.0, 1.0))
"""Of the sensors at each moment at corners, as shares of their errors; or the other way round."""


def check_joined(
    settings: ShieldSettings,
    procedure: str,
    wide: bool,
    world: Bounds | None = None,
    fine: int = 2,
) -> Finding:
    """
    Check that no force is above what the shield says of any move, if it goes up after it.

    :param settings: of the shield.
    :param procedure: its name.
    :param wide: whether under the wide bounds, or the usual ones.
    :param world: bounds that the truth keeps to; those of the shield by default.
    :param fine: how many times 5,000 histories are drawn between the corners.
    """
    chosen = procedure_named(procedure)
    taken = settings.wide() if wide else settings.usual()
    truth, limit = world or taken, HARD_STOP if wide else chosen.force_limit
    prediction, kappas = Prediction(taken, chosen.contact_radius), kappas_of(truth, chosen)
    # The plan is as far below the tissue as it can be: so nothing but its swing is in reserve.
    low = truth.registration - (0.0 if procedure in RIDING else 0.5 * truth.swing)
    some = corners(truth, kappas, limit, (TICK, TICK))
    shares = [side * np.array(each)[:, None] for each in _OFF for side in (1.0, -1.0)]
    tried = [(some, [(off, off) for off in shares] + [(off, -off) for off in shares])]
    for seed in range(fine):
        some = between(truth, kappas, limit, 5_000, seed)
        off, beside = np.random.default_rng(seed).uniform(-1.0, 1.0, (2, *some.speeds.shape))
        tried.append((some, [(off, beside), (np.sign(off), np.sign(beside))]))
    margins = Margins()
    for some, errors in tried:
        views = [watched(some, prediction, procedure, truth, *each, low) for each in errors]
        speeds, rows = np.unique(some.speeds[-1], return_inverse=True)
        rise, rising = surface(truth, speeds, _STEPS)
        for place, move in enumerate(MOVES):
            true = np.max(
                [
                    futures(some, truth, rise, rising, rows, move, late)
                    for late in {0.0, truth.latency}
                ],
                axis=0,
            )
            for seen, outlook in views:
                said = prediction.force(seen, outlook, place)
                margins.add(
                    said - true,
                    said=said,
                    kappa=some.kappa,
                    damping=some.damping,
                    lag=some.lag,
                    speed=some.speeds[-1],
                    depth=some.depths[-1],
                    behind=some.behind[-1],
                    due=some.due[-1],
                    move=move,
                )
    return margins.finding(f'joined: {procedure}')


def futures(
    some: Truths,
    truth: Bounds,
    rise: Array,
    rising: Array,
    rows: NDArray[np.intp],
    move: float,
    late: float,
) -> Array:
    """
    Return the greatest force that comes of a move which the tip goes up after, N, shape (n,).

    :param rise: of the surface after each sub-step, m; one line for each of its speeds.
    :param rising: its speed then, m/s.
    :param rows: which of those lines is whose, shape (n,).
    :param move: m upwards; a robot that holds goes up by RISE of it.
    :param late: when it begins, s: until then the one before goes on.
    """
    lag, behind = some.lag, some.behind[-1]
    left = np.exp(-SUBSTEP / lag)
    owed = np.full_like(lag, -move if move < 0.0 else 0.0)
    before = some.due[-1].copy()
    begin, back = round(late / SUBSTEP), (TICK + JITTER + truth.latency) / SUBSTEP
    stride, up = MAXIMUM_SPEED * SUBSTEP, RISE / SUBSTEPS
    sunk, most = np.zeros_like(lag), np.zeros_like(lag)
    for step in range(_STEPS):
        if step + 1.0 > back:
            down = np.full_like(lag, -COARSE_STEP * up * min(step + 1.0 - back, 1.0))
        elif step < begin:
            down = np.minimum(before, stride)
            before = before - down
        elif move > 0.0:
            down = np.full_like(lag, -move * up if step < begin + SUBSTEPS else 0.0)
        else:
            down = np.minimum(owed, stride)
            owed = owed - down
        following = behind * left + down / SUBSTEP * lag * (1.0 - left)
        sunk, behind = sunk + behind - following + down, following
        closing = np.maximum(rising[rows, step] + behind / lag, 0.0)
        depth = np.maximum(some.depths[-1] + rise[rows, step] + sunk + truth.arm_error, 0.0)
        most = np.maximum(most, some.kappa * depth * (1.0 + some.damping * closing) ** POWER)
    force: Array = most**1.5
    return force


def proofs(
    settings: ShieldSettings, procedures: tuple[str, ...], fine: int, report: Report = quiet
) -> Iterator[tuple[str, float, Finding]]:
    """
    Check all three claims for both limits.

    :param fine: as each of them takes it.
    :returns: of each: which bounds, and the limit that it is of, N (0 for all).
    """
    for word, bounds in (('wide', settings.wide()), ('usual', settings.usual())):
        yield word, 0.0, check_tables(bounds, fine=fine, report=report)
    for name in procedures:
        for word, limit in (('wide', HARD_STOP), ('usual', procedure_named(name).force_limit)):
            yield word, limit, check_sight(settings, name, word == 'wide', fine=fine)
            yield word, limit, check_joined(settings, name, word == 'wide', fine=fine)
