# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The names that Gymnasium knows our envs by, all of them registered by one import.

`import fdrl_ros.surgery.gym.surgery_env` is that import. A name is told with where its class is,
so that what a world needs is loaded when the first env of it is made.
"""

from fdrl_ros.surgery.gym.state import PROCEDURE_NAMES
import gymnasium

ENV_ID = 'fdrl_ros/Surgery-v0'


def env_id(procedure: str) -> str:
    """Return the name that Gymnasium knows a procedure by, as `fdrl_ros/PegTransfer-v0`."""
    return f'fdrl_ros/{procedure.title().replace("_", "")}-v0'


_SURGERY = (
    'fdrl_ros.surgery.gym.surgery_env:SurgeryEnv',
    'fdrl_ros.surgery.gym.vector_env:VectorSurgeryEnv',
)
_CLASSES = {
    ENV_ID: _SURGERY,
    **{env_id(each): _SURGERY for each in PROCEDURE_NAMES},
    'fdrl_ros/PaperWorld-v0': ('fdrl_ros.worlds.paper.env:PaperWorldEnv', None),
    'fdrl_ros/IcuSepsis-v0': (
        'fdrl_ros.worlds.icu_sepsis.env:IcuSepsisEnv',
        'fdrl_ros.worlds.icu_sepsis.vector_env:IcuSepsisVectorEnv',
    ),
}
ENV_IDS = tuple(_CLASSES)
"""All of them."""

_GIVEN = {env_id(each): {'procedures': each} for each in PROCEDURE_NAMES}

for _id, (_one, _many) in _CLASSES.items():
    if _id not in gymnasium.registry:
        gymnasium.register(
            _id, entry_point=_one, vector_entry_point=_many, kwargs=_GIVEN.get(_id, {})
        )
