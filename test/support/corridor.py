# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A corridor whose goal is at its right end, and records of people most of whom go left."""

from fdrl_ros.learner.records.records import Records
import numpy as np

PLACES = 5
LEFT, RIGHT = 0, 1
DISCOUNT = 0.97
SEEN = np.eye(PLACES, dtype=np.float32)


def corridor_records(patients=150, skilled=0.35, seed=0, limit=16):
    """
    Walk from the second place on; each step costs, the goal pays 2.

    :param skilled: share of those who go right with a chance of 0.9; the others with 0.25.
    """
    rng, rows, starts = np.random.default_rng(seed), [], [0]
    for _ in range(patients):
        place, right = 1, 0.9 if rng.random() < skilled else 0.25
        for _ in range(limit):
            action = int(rng.random() < right)
            after = max(0, place + (1 if action == RIGHT else -1))
            done = after == PLACES
            seen = SEEN[min(after, PLACES - 1)]
            rows.append((SEEN[place], action, 2.0 if done else -0.1, seen, done))
            place = after
            if done:
                break
        starts.append(len(rows))
    states, actions, rewards, after, terminals = map(np.array, zip(*rows, strict=True))
    names = np.array([f'walker_{number}' for number in range(patients)])
    return Records(states, actions, rewards, after, terminals, np.array(starts), names)


def reaches_the_goal(policy):
    """Tell whether a policy walks straight to the goal from the second place."""
    return all(policy(SEEN[place]) == RIGHT for place in range(1, PLACES))
