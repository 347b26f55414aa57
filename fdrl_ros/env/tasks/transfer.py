# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Needle pick and pass, and peg transfer: grasp an object, carry it, let go where it belongs."""

from fdrl_ros.env.constants import constant
from fdrl_ros.env.patient import Patient
from fdrl_ros.env.tasks.task import (
    CLOSED,
    excess,
    JAW_COST,
    Number,
    OPEN,
    Point,
    Prospect,
    Reading,
    Scene,
    Task,
    within,
)
from fdrl_ros.env.tissue import Tissue
import numpy as np

_NEAR = 0.0006
"""Error of an axis from which the set-point counts as being there, m."""


class Transfer(Task):
    """
    Take an object from one point to another.

    It is grasped when the jaw closes around it, and let go when the jaw opens: at the second point
    that is success, anywhere else the object is lost.
    """

    uses_jaw = True
    loss = 'drop'
    pick_tolerance: float
    place_tolerance: float

    def __init__(self, patient: Patient, tissue: Tissue, pick: Point, place: Point) -> None:
        super().__init__(patient, tissue)
        self.pick, self.place = pick, place
        self.onward = self.carried(*pick)
        """What is left to carry when the object is picked, m."""

    def begin(self) -> Scene:
        """Return the scene with the object where it is picked."""
        return Scene(object=self.pick)

    def waypoint(self, grasped: Number, done: Number, time: Number) -> tuple[Number, ...]:
        """Return where the object is, then where it belongs."""
        if not _any(grasped):
            return self.pick
        return tuple(
            (1.0 - grasped) * a + grasped * b for a, b in zip(self.pick, self.place, strict=True)
        )

    def progress(self, scene: Scene, reading: Reading) -> Number:
        """See whether the jaw took the object or let it go."""
        tip, held = reading.tip, scene.grasped
        closed = (reading.jaw < CLOSED) & (scene.jaw >= CLOSED)
        taken = (held ^ True) & closed & within(tip, self.pick, self.pick_tolerance)
        opened = held & (reading.jaw > CLOSED)
        placed = opened & within(tip, self.place, self.place_tolerance)
        scene.grasped = (held ^ opened) | taken
        scene.done = 0.5 * (held | taken) + 0.5 * placed
        scene.jaw = reading.jaw
        if scene.object is not None and (scene.grasped or placed):
            scene.object = tip
        return opened ^ placed

    def carried(self, x: Number, y: Number, z: Number) -> Number:
        """Return the way that a grasped object has to go, m."""
        place = self.place
        return abs(x - place[0]) + abs(y - place[1]) + abs(z - place[2])

    def remaining(self, at: Prospect) -> Number:
        """Return the way to the object and from there on, with the orders to the jaw."""
        x, y, z, _surface, _time, jaw, jaw_target, grasped, done = at
        pick, place = self.pick, self.place
        closing = (jaw_target < 0.5) * (jaw >= CLOSED)
        off_x, off_y, off_z = abs(x - pick[0]), abs(y - pick[1]), abs(z - pick[2])
        near = (off_x <= _NEAR) & (off_y <= _NEAR) & (off_z <= _NEAR)
        ready = near * (1.0 - (1.0 - (jaw >= OPEN)) * (1.0 - closing))
        fetching = (
            off_x
            + off_y
            + off_z
            + JAW_COST * (1.0 - ready + abs(jaw_target - (1.0 - ready)))
            + self.onward
            + 2.0 * JAW_COST
        )
        left = (done < 1.0) * 1.0
        if not _any(grasped):
            return left * fetching
        there = within((x, y, z), place, _NEAR) * 1.0
        carrying = self.carried(x, y, z) + JAW_COST * (1.0 - there + abs(jaw_target - there))
        return left * ((1.0 - grasped) * fetching + grasped * carrying)


class NeedlePass(Transfer):
    """Pick a needle above the organ and pass it to the other instrument."""

    pick_tolerance = constant('needle_pass.pick_tolerance')
    place_tolerance = constant('needle_pass.place_tolerance')

    def __init__(self, patient: Patient, tissue: Tissue) -> None:
        x, y, z = patient.goal
        pick = (x, y, z + constant('needle_pass.height'))
        super().__init__(patient, tissue, pick, patient.destination)


class PegTransfer(Transfer):
    """
    Lift a ring off one peg, carry it over and put it on another.

    Below the top of a peg a ring that is moved sideways pulls at it like a spring.
    """

    rigid = True
    pick_tolerance = constant('peg_transfer.pick_tolerance')
    place_tolerance = constant('peg_transfer.place_tolerance')
    play = constant('peg_transfer.play')
    spring = constant('peg_transfer.spring')

    def __init__(self, patient: Patient, tissue: Tissue) -> None:
        x, y, z = patient.goal
        low = z + constant('peg_transfer.height')
        to_x, to_y, _ = patient.destination
        self.top = low + constant('peg_transfer.peg')
        self.clear = self.top + constant('peg_transfer.clearance')
        super().__init__(patient, tissue, (x, y, low), (to_x, to_y, low))

    def carried(self, x: Number, y: Number, z: Number) -> Number:
        """Return the way up, over and down, m; up first."""
        place = self.place
        aside_x, aside_y = abs(x - place[0]), abs(y - place[1])
        over = (aside_x <= _NEAR) * (aside_y <= _NEAR) * 1.0
        up = 2.0 * excess(self.clear, z) + excess(z, self.clear) + self.clear - place[2]
        return aside_x + aside_y + over * abs(z - place[2]) + (1.0 - over) * up

    def resistance(self, grasped: Number, x: Number, y: Number, z: Number) -> tuple[Number, ...]:
        """Return the force of the nearer peg on a ring around it, N, along x and y."""
        first, second = self.pick, self.place
        to_first = (x - first[0]) ** 2 + (y - first[1]) ** 2
        to_second = (x - second[0]) ** 2 + (y - second[1]) ** 2
        nearer = (to_first <= to_second) * 1.0
        from_x = x - (nearer * first[0] + (1.0 - nearer) * second[0])
        from_y = y - (nearer * first[1] + (1.0 - nearer) * second[1])
        distance = (from_x * from_x + from_y * from_y) ** 0.5 + 1e-12
        pull = grasped * (z < self.top) * self.spring * excess(distance, self.play) / distance
        return -pull * from_x, -pull * from_y


def _any(flag: Number) -> bool:
    """Say whether a number, or one of an array, is not zero."""
    return bool(flag.any() if isinstance(flag, np.ndarray) else flag)
