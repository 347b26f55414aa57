# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A copy of the package with more procedures, and a digest of what each of its procedures does.

Run as a program below such a copy, with names, it prints digests by name and place as JSON.
"""

from hashlib import sha256
import json
from pathlib import Path
import shutil
import sys

import fdrl_ros
from fdrl_ros.resources import resource
from fdrl_ros.selector import ShieldSettings
from fdrl_ros.shield.action_bounds import ActionBounds, StateReadings
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, ACTIONS, SUBSTEPS
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.gym.vector_operation import VectorOperation
from fdrl_ros.surgery.patient.cohort import public_cohort
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.expert import expert, vector_expert_costs
import numpy as np

KINEMATIC = WorldSettings(mode='kinematic')
PATIENTS, TICKS = 4, 70


def copy_with(folder: Path, rows: list[str], blocks: dict[str, dict[str, float]]) -> None:
    """Copy the package and its files, with further rows of TRAITS and blocks of world.yaml."""
    left_out = shutil.ignore_patterns('*typesupport*', 'msg', 'srv', 'nodes', 'cli')
    shutil.copytree(Path(fdrl_ros.__file__).parent, folder / 'fdrl_ros', ignore=left_out)
    shutil.copytree(resource('config'), folder / 'config')
    table = folder / 'fdrl_ros/surgery/tasks/procedures.py'
    before, after = table.read_text().split(')\nTRAITS = ')
    table.write_text(before + ''.join(f'    {row},\n' for row in rows) + ')\nTRAITS = ' + after)
    with (folder / 'config/world.yaml').open('a') as world:
        for name, numbers in blocks.items():
            world.write(f'{name}:\n')
            for number, value in numbers.items():
                world.write(f"  {number}: {{value: {value!r}, unit: '1', source: test}}\n")


def _mostly(costs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the best action of each row, and at times any."""
    actions = rng.integers(0, ACTION_COUNT, len(costs))
    return np.where(rng.random(len(costs)) < 0.2, actions, costs.argmin(axis=1))


def one_by_one(name: str) -> str:
    """Return a digest of one operation under the expert that errs at times."""
    rng, seen = np.random.default_rng(1), sha256()
    operation = Operation(KINEMATIC)
    patient = public_cohort(3, 1.0, (name,)).patient(0)
    operation.reset(patient)
    for _ in range(TICKS):
        costs = expert(operation.state(), patient, KINEMATIC)[1]
        operation.act(ACTIONS[int(_mostly(costs[None], rng)[0])])
        operation.advance(SUBSTEPS)
        outcome = operation.tick()
        seen.update(repr((costs.tolist(), outcome)).encode())
        if operation.done:
            break
    return seen.hexdigest()


def at_once(name: str) -> str:
    """Return a digest of a batch of operations under the expert that errs at times."""
    rng, seen = np.random.default_rng(2), sha256()
    cohort = public_cohort(3, 1.0, (name,))
    batch = VectorOperation([cohort.patient(number) for number in range(PATIENTS)], KINEMATIC)
    batch.reset()
    for _ in range(TICKS):
        costs = vector_expert_costs(batch)
        seen.update(costs.tobytes())
        rewards = batch.step(_mostly(costs, rng))[1]
        seen.update(np.asarray(rewards).tobytes())
        left = np.flatnonzero(~batch.over)
        if not len(left):
            break
        batch.select(left)
    return seen.hexdigest()


def shielded(name: str) -> str:
    """Return a digest of what the shield expects of actions in made-up states."""
    rng, seen = np.random.default_rng(3), sha256()
    for _ in range(150):
        bounds = ActionBounds(ShieldSettings(), name)
        error = rng.uniform(-0.045, 0.045, 3) * rng.choice([0.05, 0.2, 1.0])
        jaw, grasped = (float(rng.choice(each)) for each in ([0.0, 0.5], [0.0, 1.0]))
        bounds.update(StateReadings(*error.tolist(), 0.0, 0.1, 1.1, jaw, grasped), 0.0)
        actions = range(ACTION_COUNT)
        seen.update(repr([bounds.consequences(action) for action in actions]).encode())
    return seen.hexdigest()


if __name__ == '__main__':
    places = {'single': one_by_one, 'batch': at_once, 'shield': shielded}
    found = {name: {place: of(name) for place, of in places.items()} for name in sys.argv[1:]}
    print(json.dumps(found))
