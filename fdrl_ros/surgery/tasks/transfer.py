# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Needle pick and pass, and peg transfer: grasp an object, carry it, let go where it belongs."""

from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.tasks.task import (
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
from fdrl_ros.surgery.tissue.contact import Tissue
import numpy as np

_NEAR = 0.0006
"""Error of an axis from which the set-point counts as being there, m."""


class Transfer(Task):
    """
    Take an object from one point to another.

    It is grasped when the jaw closes around it, and let go when the jaw opens: at the second point
    that is success, anywhere else the object is lost. A ring is lifted off a peg and over to
    another; below their top one that is moved sideways pulls at its peg like a spring.

    :param name: of the procedure.
    :param pick: where the object is, m.
    :param place: where it belongs, m.
    :param pegs: 1 if pegs are in the way, else 0.
    :param peg: how far a ring must be lifted off its peg, m.
    :param clearance: above the pegs on the way over, m.
    :param spring: of a ring against its peg, N/m.
    """

    uses_jaw = True
    loss = 'drop'
    rigid = True
    play = constant('peg_transfer.play')

    def __init__(
        self,
        patient: Patient,
        tissue: Tissue,
        name: str,
        pick: Point,
        place: Point,
        pegs: float = 0.0,
        peg: float = 0.0,
        clearance: float = 0.0,
        spring: float = 0.0,
    ) -> None:
        super().__init__(patient, tissue)
        self.pick, self.place = pick, place
        self.pick_tolerance = constant(f'{name}.pick_tolerance')
        self.place_tolerance = constant(f'{name}.place_tolerance')
        self.pegs, self.spring = pegs, spring
        self.top = pick[2] + peg
        self.clear = self.top + clearance
        self.onward = self._carried(*pick)[0]
        """What is left to carry when the object is picked, m."""

    @classmethod
    def law(cls) -> type[Task]:
        """Return this class: needles and rings differ in numbers only."""
        return Transfer

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

    def _carried(self, x: Number, y: Number, z: Number) -> tuple[Number, Number]:
        """Return the way of a grasped object, up first where pegs are, m; and if it is there."""
        place = self.place
        aside_x, aside_y, off = abs(x - place[0]), abs(y - place[1]), abs(z - place[2])
        over = (aside_x <= _NEAR) & (aside_y <= _NEAR)
        lift = (1.0 - over) * self.pegs
        up = 2.0 * excess(self.clear, z) + excess(z, self.clear) + self.clear - place[2]
        return aside_x + aside_y + (1.0 - lift) * off + lift * up, over & (off <= _NEAR)

    def remaining(self, at: Prospect) -> Number:
        """Return the way to the object and from there on, with the orders to the jaw."""
        x, y, z, _surface, _time, jaw, told, grasped, done = at
        pick = self.pick
        off_x, off_y, off_z = abs(x - pick[0]), abs(y - pick[1]), abs(z - pick[2])
        near = (off_x <= _NEAR) & (off_y <= _NEAR) & (off_z <= _NEAR)
        closing = (told < 0.5) & (jaw >= CLOSED)
        unready = 1.0 - (near & ((jaw >= OPEN) | closing))
        fetching = (
            off_x
            + off_y
            + off_z
            + JAW_COST * (unready + abs(told - unready))
            + self.onward
            + 2.0 * JAW_COST
        )
        left = (done < 1.0) * 1.0
        if not _any(grasped):
            return left * fetching
        way, there = self._carried(x, y, z)
        carrying = way + JAW_COST * (1.0 - there + abs(told - there))
        return left * ((1.0 - grasped) * fetching + grasped * carrying)

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


class NeedlePass(Transfer):
    """Pick a needle above the organ and pass it to the other instrument."""

    rigid = False

    def __init__(self, patient: Patient, tissue: Tissue) -> None:
        x, y, z = patient.goal
        pick = (x, y, z + constant('needle_pass.height'))
        super().__init__(patient, tissue, 'needle_pass', pick, patient.destination)


class PegTransfer(Transfer):
    """Lift a ring off one peg, carry it over and put it on another."""

    def __init__(self, patient: Patient, tissue: Tissue) -> None:
        x, y, z = patient.goal
        low = z + constant('peg_transfer.height')
        to_x, to_y, _ = patient.destination
        super().__init__(
            patient,
            tissue,
            'peg_transfer',
            (x, y, low),
            (to_x, to_y, low),
            pegs=1.0,
            peg=constant('peg_transfer.peg'),
            clearance=constant('peg_transfer.clearance'),
            spring=constant('peg_transfer.spring'),
        )


def _any(flag: Number) -> bool:
    """Say whether a number, or one of an array, is not zero."""
    return bool(flag.any() if isinstance(flag, np.ndarray) else flag)
