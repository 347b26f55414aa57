# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Which hospital of which federation patients come from."""

from fdrl_ros.surgery.ranges import check_number, check_whole


def check_place(hospital: int, hospitals: int, heterogeneity: float, seed: int) -> None:
    """
    Refuse what is no hospital.

    :param hospital: 0 to hospitals - 1.
    :param hospitals: how many there are.
    :param heterogeneity: H in [0, 1].
    :param seed: of the whole federation.
    :raises SettingError: on a value that cannot be.
    """
    check_whole('hospitals', hospitals, 1)
    check_whole('hospital', hospital, 0, hospitals - 1)
    check_number('heterogeneity', heterogeneity, 0.0, 1.0)
    check_whole('seed', seed, 0)
