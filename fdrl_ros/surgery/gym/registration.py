# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Register the surgical envs with Gymnasium: one of all procedures, and one of each.

`import fdrl_ros.surgery.gym.surgery_env` does it. Gymnasium imports a class when the first env of
it is made.
"""

from fdrl_ros.surgery.gym.state import PROCEDURE_NAMES
import gymnasium

ENV_ID = 'fdrl_ros/Surgery-v0'


def env_id(procedure: str) -> str:
    """Return the name that Gymnasium knows a procedure by, as `fdrl_ros/PegTransfer-v0`."""
    return f'fdrl_ros/{procedure.title().replace("_", "")}-v0'


_GIVEN: dict[str, dict[str, str]] = {
    ENV_ID: {},
    **{env_id(each): {'procedures': each} for each in PROCEDURE_NAMES},
}

for _id, _arguments in _GIVEN.items():
    if _id not in gymnasium.registry:
        gymnasium.register(
            _id,
            entry_point='fdrl_ros.surgery.gym.surgery_env:SurgeryEnv',
            vector_entry_point='fdrl_ros.surgery.gym.vector_env:VectorSurgeryEnv',
            kwargs=_arguments,
        )
