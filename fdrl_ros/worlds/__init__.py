# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Worlds beside surgery: ICU-Sepsis, extracted MIMIC-III tables, the FDRL paper's own.

Importing this package registers their envs with Gymnasium, which imports a class when the first
env of it is made.
"""

import gymnasium

_ENTRY_POINTS = {
    'fdrl_ros/PaperWorld-v0': ('fdrl_ros.worlds.paper.env:PaperWorldEnv', None),
    'fdrl_ros/IcuSepsis-v0': (
        'fdrl_ros.worlds.icu_sepsis.env:IcuSepsisEnv',
        'fdrl_ros.worlds.icu_sepsis.env:IcuSepsisVectorEnv',
    ),
}

for _id, (_one, _many) in _ENTRY_POINTS.items():
    if _id not in gymnasium.registry:
        gymnasium.register(_id, entry_point=_one, vector_entry_point=_many)
