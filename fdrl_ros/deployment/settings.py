# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Settings of the federation as a whole, of the test of policies, and of their evaluation."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fdrl_ros.errors import SettingError
from fdrl_ros.settings import setting, Settings

if TYPE_CHECKING:
    from fdrl_ros.surgery.patient.conditions import Conditions


@dataclass(frozen=True)
class FederationSettings(Settings):
    """Which hospitals there are, and where their randomness comes from."""

    hospitals: int = setting(3, 'hospitals', limits=(3, 1000))
    heterogeneity: float = setting(0.8, 'H: how far the hospitals are apart', limits=(0.0, 1.0))
    gap: float = setting(
        0.0,
        'how far hospitals are from the public simulator of surgery: calibration, force gain, '
        'protocol',
        limits=(0.0, 4.0),
    )
    disturbances: bool = setting(
        False, 'whether latency, noise, lag and stiffness vary between operations in surgery'
    )
    task: str = setting(
        'surgery', 'the world to learn in: a name that `fdrl tasks` lists, or FILE.py:CLASS'
    )
    procedures: str = setting(
        '',
        'what is done in surgery: names of procedures or of specialities, separated by commas, '
        'or all; empty: all',
    )
    seed: int = setting(1, 'seed of patients, starting weights and surgeons', minimum=0)
    noise: str = setting(
        'secure',
        'source of noise and sampling; seeded is for tests and reproductions, NOT PRIVATE',
        choices=('secure', 'seeded'),
    )
    personal: str = setting(
        '',
        'layers that each hospital keeps to itself: names such as value, advantage or shared.0, '
        'separated by commas; * stands for any letters, as in encoder.*.q',
    )
    release: bool = setting(
        False,
        'whether hospitals publish their own policies too: differential privacy alone protects '
        'those; one of a round goes out only if all its members publish theirs, since without '
        'them the sum is the update of the last one',
    )

    buckets: int = setting(
        0,
        'sums of a round, each of three hospitals at least and dealt anew in each round, so that '
        'server.combine can leave out what few poison; the key authority sees each of them; 0: '
        'one sum of all',
        limits=(0, 333),
    )

    @property
    def names(self) -> tuple[str, ...]:
        """
        Names of the procedures, in their order.

        :raises SettingError: if there is no such procedure or speciality.
        """
        # Here, so that servers need not load the world.
        from fdrl_ros.surgery.tasks.procedures import procedures_named

        try:
            return procedures_named(self.procedures or 'all')
        except SettingError as error:
            raise error.of('federation') from None

    @property
    def conditions(self) -> 'Conditions':
        """Conditions under which surgery is done."""
        from fdrl_ros.surgery.patient.conditions import Conditions

        return Conditions(self.gap, self.disturbances)

    @property
    def personal_layers(self) -> tuple[str, ...]:
        """Names of the layers that stay in each hospital."""
        return tuple(name.strip() for name in self.personal.split(',') if name.strip())


@dataclass(frozen=True)
class ValidationSettings(Settings):
    """How the key authority tests a new policy before it releases it."""

    patients: int = setting(
        40, 'public patients that a new policy is tried on', unit='patients', minimum=1
    )
    margin: float = setting(0.2, 'fall of the success rate that is let pass', limits=(0.0, 1.0))
    each_bucket: bool = setting(
        False,
        'whether each bucket is tested too, as if it were all there is, and left out if it fails; '
        'with federation.buckets alone',
    )


@dataclass(frozen=True)
class EvaluationSettings(Settings):
    """How policies are compared at the end."""

    patients: int = setting(
        240, 'unseen patients, in equal shares of all hospitals', unit='patients', minimum=1
    )
    round_patients: int = setting(
        60, 'unseen patients for the policy of each round', unit='patients', minimum=1
    )
    state_patients: int = setting(
        60, 'further patients of the frozen set of states', unit='patients', minimum=1
    )
    states_per_patient: int = setting(
        20, 'states of each of them in the set', unit='states', minimum=1
    )
    workers: int = setting(2, 'processes that evaluate side by side', limits=(1, 64))


def hospital_names(count: int) -> tuple[str, ...]:
    """Return the names of a federation's first hospitals."""
    return tuple(f'hospital_{each}' for each in range(1, count + 1))
