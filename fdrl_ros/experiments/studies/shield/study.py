# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The shield's studies: adversaries that try to break it, and what it costs in success."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.errors import PolicyError, SettingError
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.shield.attack import attack, attack_motors, ATTACKERS, TICKS
from fdrl_ros.experiments.studies.shield.cost import by_expert, by_policy, cost
from fdrl_ros.experiments.studies.shield.loop import attack_loop
from fdrl_ros.experiments.study import Part, Study, Work
from fdrl_ros.policy import Policy
from fdrl_ros.shield.settings import ShieldSettings
from fdrl_ros.surgery.gym.state import PROCEDURE_NAMES, STATE_SIZE
from fdrl_ros.surgery.tasks.procedures import procedure_named

_MOTORS, _LOOP = 20, 5
"""One step in so many is done with motors besides, and one through the robot's control loop."""

SHIELDS = {
    'off': ShieldSettings(active=False),
    'on': ShieldSettings(),
    'keep_limit': ShieldSettings(keep_limit=True),
}
"""Shields whose cost is compared."""


def attack_study(steps: int, seed: int, keep_limit: bool) -> tuple[Study, list[Part]]:
    """
    Return a study that keeps nothing, and its parts: every adversary in every procedure.

    :param steps: with the shield on, over all adversaries.
    :param keep_limit: whether the shield keeps the procedure's own force limit too.
    :raises SettingError: if they are fewer than one operation for each adversary.
    """
    kinds = [(name, kind) for name in PROCEDURE_NAMES for kind in ATTACKERS]
    if steps < len(kinds) * TICKS:
        raise SettingError(
            'steps',
            steps,
            f'at least {len(kinds) * TICKS}: an operation of {TICKS} for each adversary in each '
            f'procedure',
        )
    share = -(-steps // len(kinds))
    asked = {'steps': steps, 'seed': seed, 'keep_limit': keep_limit}
    parts = [
        Part(
            f'{name}_{kind}',
            asked,
            (name, kind, share, ShieldSettings(keep_limit=keep_limit), seed),
        )
        for name, kind in kinds
    ]
    return Study('attack', None, measure_attack), parts


def measure_attack(
    procedure: str, kind: str, steps: int, shield: ShieldSettings, seed: int, work: Work
) -> Json:
    """Let one adversary attack in one procedure, with the shield and without, in three ways."""
    limit, tallies = procedure_named(procedure).force_limit, []
    ways = (
        (attack, steps),
        (attack_motors, steps // _MOTORS + 1),
        (attack_loop, steps // _LOOP + 1),
    )
    for settings in (shield, None):
        for way, some in ways:
            work.check()
            tallies.append(way(procedure, kind, some, settings, limit, seed).plain())
    return {'tallies': tallies}


@dataclass(frozen=True)
class CostSettings:
    """
    How much is operated on.

    :param patients: of each procedure at each level.
    :param levels: H of the patients.
    :param seed: of the patients.
    """

    patients: int
    levels: tuple[float, ...]
    seed: int


def cost_study(
    files: Sequence[Path], procedures: Sequence[str], settings: CostSettings
) -> tuple[Study, list[Part]]:
    """
    Return a study that keeps nothing, and its parts: everyone in every procedure and shield.

    :param files: of policies, which act beside the expert.
    :raises PolicyError: if one of them is for other states.
    :raises SettingError: if there are no patients.
    """
    if settings.patients < 1:
        raise SettingError('patients', settings.patients, 'at least 1')
    actors: dict[str, Policy | None] = {'expert': None}
    for path in files:
        weights, shape = load_policy(path)
        if shape.states != STATE_SIZE:
            raise PolicyError(f'{path} is for states of {shape.states}: expected {STATE_SIZE}')
        actors[str(path)] = Policy(weights, shape)
    parts = []
    for who, policy in actors.items():
        for procedure in procedures:
            for word in SHIELDS:
                asked = {'who': who, 'procedure': procedure, 'shield': word}
                title = f'{Path(who).stem}, {procedure}, {word}'
                parts.append(Part(title, asked, (policy, procedure, word, settings), title))
    return Study('cost', None, measure_cost), parts


def measure_cost(
    policy: Policy | None, procedure: str, shield: str, settings: CostSettings, work: Work
) -> Json:
    """Let a policy, or the expert, operate at every level."""
    choose, found = by_policy(policy) if policy else by_expert, list[Json]()
    for level in settings.levels:
        work.check()
        row = cost(procedure, choose, SHIELDS[shield], settings.patients, level, settings.seed)
        found.append({'heterogeneity': level, **row.plain()})
    return {'found': found}
