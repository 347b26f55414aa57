# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Which hospital of which federation patients come from."""

from fdrl_ros.errors import SettingError


def check_place(hospital: int, hospitals: int, heterogeneity: float, seed: int) -> None:
    """
    Refuse what is no hospital.

    :param hospital: 0 to hospitals - 1.
    :param hospitals: how many there are.
    :param heterogeneity: H in [0, 1].
    :param seed: of the whole federation.
    :raises SettingError: on a value that cannot be.
    """
    if hospitals < 1:
        raise SettingError('hospitals', hospitals, 'at least 1')
    if not 0 <= hospital < hospitals:
        raise SettingError('hospital', hospital, f'0 to {hospitals - 1}')
    if not 0.0 <= heterogeneity <= 1.0:
        raise SettingError('heterogeneity', heterogeneity, 'a number from 0 to 1')
    if seed < 0:
        raise SettingError('seed', seed, 'at least 0')
