# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Two worlds in which the same hospitals have other updates with the same sum, and who can tell.

The round is the real one. A coalition of both servers and some hospitals is passive: everybody
keeps to the protocol, and it looks at everything that it holds.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

from fdrl_ros.crypto.he.quantisation import Quantisation
from fdrl_ros.crypto.masking.sharing import positions, PRIME
from fdrl_ros.federation.hospital.state import RoundSeeds
from fdrl_ros.federation.protocol.message import GlobalPolicy, Message
from fdrl_ros.policy import NetworkShape
import numpy as np
from support.coalition import Coalition, FixedSeeds, learned, MASK, Row
from support.dropouts import DroppingFederation, Stage
from support.federation_bench import Bench, ENCRYPTION, KnownLearner

Updates = dict[str, np.ndarray]
"""The integers of each hospital's update, shape (parameters,)."""

Worlds = tuple[Updates, Updates]


@dataclass(frozen=True)
class Scenario:
    """
    Who is in the coalition, and who drops out.

    :param corrupt: so many hospitals, the first ones, are in it.
    :param moved: two honest survivors whose updates differ between the worlds.
    :param schedule: of the honest hospitals that drop out.
    :param leak: a holder who shows the coalition its share of a mask secret, and whose it is.
    :param buckets: each with a sum of its own; 0 for one sum.
    :param neighbours: how many each hospital has; 0 means all others.
    """

    hospitals: int
    corrupt: int
    moved: tuple[str, str]
    schedule: dict[str, Stage] = field(default_factory=dict)
    leak: tuple[str, str] | None = None
    buckets: int = 0
    neighbours: int = 0


def _seven(stage: Stage) -> Scenario:
    return Scenario(7, 4, ('hospital_5', 'hospital_6'), {'hospital_7': stage})


SAFE = {
    'five': Scenario(5, 3, ('hospital_4', 'hospital_5')),
    **{
        f'seven, one lost {stage.name.lower().replace("_", " ")}': _seven(stage)
        for stage in (
            Stage.BEFORE_SHARES,
            Stage.BEFORE_SENDING,
            Stage.WHILE_SENDING,
            Stage.BEFORE_SIGNING,
            Stage.BEFORE_REVEALING,
        )
    },
    'ten, two lost': Scenario(
        10,
        6,
        ('hospital_7', 'hospital_9'),
        {'hospital_8': Stage.BEFORE_REVEALING, 'hospital_10': Stage.WHILE_SENDING},
    ),
}
"""With t - 1 corrupt hospitals: nothing but the sum can be learned."""

LOST = {
    't of five': Scenario(5, 4, ('hospital_4', 'hospital_5')),
    't of ten, one lost': Scenario(
        10, 7, ('hospital_8', 'hospital_9'), {'hospital_10': Stage.WHILE_SENDING}
    ),
    'five, both shares of one hospital': Scenario(
        5, 3, ('hospital_4', 'hospital_5'), leak=('hospital_5', 'hospital_4')
    ),
    'seven, both shares of one hospital, one lost': Scenario(
        7,
        4,
        ('hospital_5', 'hospital_6'),
        {'hospital_7': Stage.BEFORE_SENDING},
        ('hospital_5', 'hospital_6'),
    ),
}
"""With one share more everything is lost: so these tests can fail."""


class WantedLearner(KnownLearner):
    """Has, once quantised, exactly the update that a test wants."""

    def __init__(
        self, number: int, integers: np.ndarray, quantisation: Quantisation, share: float
    ):
        super().__init__(number, size=integers.size)
        self._delta = (integers * quantisation.step - quantisation.limit) / share

    def delta(self, round: int) -> np.ndarray:
        """Return the step that these integers stand for."""
        return self._delta.astype(np.float32)

    def rounding(self, round: int, size: int) -> np.ndarray:
        """Round to the nearest integer."""
        return np.full(size, 0.5)


PACKED = NetworkShape(states=4, actions=3, hidden=(1600,))
"""A network whose update takes two ciphertexts, of two numbers a slot."""


class WorldBench(Bench):
    """A federation in memory whose updates and round seeds a test chooses."""

    driver: DroppingFederation

    def __init__(
        self,
        updates: Updates,
        seed: int,
        schedule: dict[str, Stage],
        *,
        buckets: int = 0,
        neighbours: int = 0,
    ) -> None:
        self.seed, self.updates = seed, updates
        driver = DroppingFederation(seed, schedule)
        # The key authority sees no projections: those depend on the updates, as they should.
        encryption = replace(ENCRYPTION, projections=0)
        super().__init__(
            None,
            len(updates),
            1,
            shape=PACKED,
            release=False,
            driver=driver,
            encryption=encryption,
            buckets=buckets,
            neighbours=neighbours,
        )

    def join(self, name: str) -> None:
        """Start a party, a hospital with the update that it shall have."""
        self.start = np.zeros_like(self.start)
        if name in self.updates:
            share = self.roster.member(name).size / self.roster.n_max
            quantisation = Quantisation(
                limit=ENCRYPTION.limit, bits=ENCRYPTION.bits, members=len(self.names)
            )
            number = self.learners[name].number
            self.learners[name] = WantedLearner(number, self.updates[name], quantisation, share)
        super().join(name)

    def open_seeds(self, name: str) -> RoundSeeds:
        """Return seeds that can be drawn again."""
        return FixedSeeds(name, self.seed)


def draw_worlds(scenario: Scenario, rng: np.random.Generator) -> Worlds:
    """Draw updates, and others that differ in two hospitals' and have the same sum."""
    names, moved = [f'hospital_{i}' for i in range(1, scenario.hospitals + 1)], scenario.moved
    size = PACKED.n_parameters
    one = {name: rng.integers(15000, 50000, size) for name in names}
    step = rng.integers(-15000, 15001, size)
    other = {**one, moved[0]: one[moved[0]] + step, moved[1]: one[moved[1]] - step}
    return one, other


@dataclass
class View:
    """A round as a coalition saw it, and what the test alone knows of it."""

    bench: WorldBench
    coalition: Coalition
    messages: list[Message]

    @cached_property
    def rows(self) -> list[list[Row]]:
        """Honest updates, chunk by chunk, less all masks that the coalition knows."""
        return self.coalition.rows()

    @property
    def contributors(self) -> tuple[str, ...]:
        """Return whose updates are in the policy."""
        return next(
            each.contributors for each in reversed(self.messages) if isinstance(each, GlobalPolicy)
        )

    def slots(self, updates: Updates, name: str) -> np.ndarray:
        """Return what a hospital packs of an update, shape (chunks, slots), without checks."""
        scheme = self.bench.scheme
        packed: np.ndarray = scheme.pack(updates[name])[:, : scheme.slots - scheme.checks]
        return packed


def run_world(scenario: Scenario, updates: Updates, seed: int) -> View:
    """Run a round, and gather what the coalition holds of it."""
    counts = {'buckets': scenario.buckets, 'neighbours': scenario.neighbours}
    bench = WorldBench(updates, seed, scenario.schedule, **counts)
    assert bench.run(ticks=100)

    def holding(names: Iterable[str]) -> Coalition:
        seeds: dict[str, list[RoundSeeds]] = {name: [FixedSeeds(name, seed)] for name in names}
        coalition = Coalition(bench.roster, bench.secret, seeds)
        coalition.hear(bench.driver.messages)
        coalition.gather()
        return coalition

    coalition = holding(bench.names[: scenario.corrupt])
    if scenario.leak is not None:
        holder, owner = scenario.leak
        for key, shares in holding([holder]).shares.items():
            if key[0] == owner and key[3] == MASK:
                coalition.shares[key][holder] = shares[holder]
    return View(bench, coalition, bench.driver.messages)


Distinguisher = Callable[[View, Updates, Updates], float]
"""More than 0 for the first world, less for the second, 0 for no idea."""


def by_uniformity(view: View, one: Updates, other: Updates) -> float:
    """Tell by which world's update leaves noise that is less like noise."""
    modulus = view.bench.scheme.plain_modulus

    def unlike_noise(updates: Updates) -> float:
        statistic = 0.0
        for chunk, rows in enumerate(view.rows):
            for row in rows:
                noise = (row.slots - view.slots(updates, row.sender)[chunk]) % modulus
                counts = np.bincount(
                    (noise.astype(float) / modulus * 64).astype(int), minlength=64
                )
                statistic += float(((counts - noise.size / 64) ** 2).sum())
        return statistic

    return unlike_noise(one) - unlike_noise(other)


def by_correlation(view: View, one: Updates, other: Updates) -> float:
    """Tell by which world's update the masked slots go with."""
    modulus, total = view.bench.scheme.plain_modulus, 0.0
    for chunk, rows in enumerate(view.rows):
        for row in rows:
            first, second = (view.slots(each, row.sender)[chunk] for each in (one, other))
            middle = (first + second) / 2.0
            centred = (row.slots - middle + modulus / 2) % modulus - modulus / 2
            total += float(centred @ (first - second).astype(float))
    return total


def by_solving(view: View, one: Updates, other: Updates) -> float:
    """Tell by every combination of updates in which the unknown masks cancel."""
    modulus = view.bench.scheme.plain_modulus
    verdict = 0.0
    for chunk, rows in enumerate(view.rows):
        for about, value in learned(rows, modulus):
            for sign, updates in ((1.0, one), (-1.0, other)):
                sums = sum(
                    int(weight) * view.slots(updates, name)[chunk]
                    for name, weight in about.items()
                )
                verdict += sign * np.array_equal(sums % modulus, value)
    return verdict


def by_guessing(view: View, one: Updates, other: Updates) -> float:
    """Tell after trying what one more share might be, and what fewer shares might mean."""
    coalition = view.coalition
    for (owner, of, digest, kind), shares in coalition.shares.items():
        listed = coalition.lists[digest]
        missing = [name for name in listed.members if name not in shares]
        if owner in coalition.seeds or kind != MASK or not missing:
            continue
        places = positions(listed.members)
        points = {places[name]: int.from_bytes(each, 'big') for name, each in shares.items()}
        values = list(points.values())
        more = {0, PRIME - 1, *values, sum(values) % PRIME, *range(1, 20)}
        tried = set(values)
        for count in range(1, len(values) + 1):
            tried.add(at_zero(dict(list(points.items())[:count])))
        tried |= {at_zero({**points, places[missing[0]]: value}) for value in more}
        for value in tried:
            secret = (value % 2**256).to_bytes(32, 'big')
            if listed.fits(owner, kind, secret):
                coalition.found[owner, of, kind] = secret
    return by_solving(View(view.bench, coalition, view.messages), one, other)


DISTINGUISHERS = (by_uniformity, by_correlation, by_solving, by_guessing)


def at_zero(points: dict[int, int]) -> int:
    """Return at 0 the polynomial of lowest degree through some points (Lagrange)."""
    total = 0
    for place, value in points.items():
        above = prod(other for other in points if other != place)
        below = prod(other - place for other in points if other != place)
        total += value * above * pow(below, -1, PRIME)
    return total % PRIME


def count_wins(scenario: Scenario, rounds: int, seed: int) -> dict[str, int]:
    """
    Let every distinguisher tell the world of so many rounds, by a coin where it has no idea.

    :param seed: of worlds, rounds and coins.
    :returns: how often each was right.
    """
    rng = np.random.default_rng(seed)
    wins = {each.__name__: 0 for each in DISTINGUISHERS}
    for _ in range(rounds):
        worlds = draw_worlds(scenario, rng)
        which = int(rng.integers(2))
        view = run_world(scenario, worlds[which], int(rng.integers(2**32)))
        for each in DISTINGUISHERS:
            verdict, coin = each(view, *worlds), int(rng.integers(2))
            wins[each.__name__] += (int(verdict < 0) if verdict else coin) == which
    return wins
