# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Needle pick and pass, and peg transfer: grasp an object, carry it, let go where it belongs."""

from dataclasses import dataclass
from typing import Self

from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.scalar_or_array import excess, Number, Point, some
from fdrl_ros.surgery.tasks.procedures import TRAITS
from fdrl_ros.surgery.tasks.task import (
    CLOSED,
    JAW_COST,
    OPEN,
    Prospect,
    Reading,
    Scene,
    Task,
    within,
)
from fdrl_ros.surgery.tissue.contact import Tissue

_NEAR = 0.0006
"""Error of an axis from which the set-point counts as being there, m."""


@dataclass(slots=True)
class Transfer(Task):
    """
    Take an object from one point to another: a needle, or a ring from one peg to another.

    It is grasped when the jaw closes around it, and let go when the jaw opens: at the second point
    that is success, anywhere else the object is lost. A ring is lifted off a peg and over to
    another; below their top one that is moved sideways pulls at its peg like a spring.

    :param pick: where the object is, m.
    :param place: where it belongs, m.
    :param pick_tolerance: of each axis, m, as place_tolerance.
    :param pegs: 1 if pegs are in the way, else 0.
    :param spring: of a ring against its peg, N/m.
    :param play: how far a ring moves on its peg before it pulls at it, m.
    :param top: height to which a ring must be lifted off its peg, m.
    :param clear: height of the way over, m.
    :param onward: what is left to carry when the object is picked, m.
    """

    uses_jaw = True
    loss = 'drop'

    pick: Point
    place: Point
    pick_tolerance: Number
    place_tolerance: Number
    pegs: Number
    spring: Number
    play: Number
    top: Number
    clear: Number
    onward: Number

    @classmethod
    def plan(cls, patient: Patient, tissue: Tissue) -> Self:
        """Return what is to be done with a patient."""
        traits = TRAITS[patient.procedure.name]
        own = traits.numbers
        x, y, z = patient.goal
        low = z + own['height']
        place = patient.destination
        pegs = peg = clearance = spring = play = 0.0
        if traits.pegs:
            place = place[0], place[1], low
            pegs, peg, clearance = 1.0, own['peg'], own['clearance']
            spring, play = own['spring'], own['play']
        task = cls(
            (x, y, low),
            place,
            own['pick_tolerance'],
            own['place_tolerance'],
            pegs,
            spring,
            play,
            low + peg,
            low + peg + clearance,
            0.0,
        )
        task.onward = task._carried(*task.pick)[0]
        return task

    def begin(self) -> Scene:
        """Return the scene with the object where it is picked."""
        x, y, z = self.pick
        return Scene(object=(x, y, z))

    def waypoint(self, grasped: Number, done: Number, time: Number, breath: Number) -> Point:
        """Return where the object is, then where it belongs."""
        pick, place = self.pick, self.place
        if not some(grasped):
            return pick
        free = 1.0 - grasped
        return (
            free * pick[0] + grasped * place[0],
            free * pick[1] + grasped * place[1],
            free * pick[2] + grasped * place[2],
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
            scene.object = tip[0], tip[1], tip[2]
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
        if not some(grasped):
            return left * fetching
        way, there = self._carried(x, y, z)
        carrying = way + JAW_COST * (1.0 - there + abs(told - there))
        return left * ((1.0 - grasped) * fetching + grasped * carrying)

    def peg_tops(self) -> tuple[Point, ...]:
        """Return the tops of the pegs that a ring is on and goes to, m."""
        pegs = (self.pick, self.place) if self.pegs else ()
        return tuple((x, y, self.top) for x, y, _z in pegs)

    @property
    def resists(self) -> bool:
        """Return whether a ring resists; a needle does not."""
        return some(self.spring)

    def resistance(
        self, grasped: Number, x: Number, y: Number, z: Number
    ) -> tuple[Number, Number]:
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
