# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Records that a hospital brings along instead of collecting simulated ones, such as an arm's."""

from collections.abc import Mapping
from pathlib import Path

from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import RecordsError, SettingError, StoreError
from fdrl_ros.learner.privacy_cost import ChargedMechanism
from fdrl_ros.learner.records.records import Records
from fdrl_ros.runtime.durable import make_private_directory


def read_records(plan: Plan, files: Mapping[str, Path]) -> dict[str, Records]:
    """
    Read the records of some hospitals and see that the plan can train on them.

    :param files: by the name of the hospital.
    :raises SettingError: on a hospital that the plan does not have.
    :raises RecordsError: if a file is missing, damaged, or of another form.
    :raises PrivacyError: if batch or delta do not suit the number of patients.
    """
    found = {}
    for name, path in files.items():
        if name not in plan.hospitals:
            raise SettingError('records', name, 'one of ' + ', '.join(plan.hospitals))
        records = Records.load(path, plan.shape.states)
        if records.actions.max() >= plan.shape.actions:
            raise RecordsError(
                f'{path}: action {records.actions.max()}: expected 0 to {plan.shape.actions - 1}'
            )
        ChargedMechanism.from_settings(records, plan.learner, plan.privacy)
        found[name] = records
    return found


def place_records(layout: Layout, plan: Plan, found: Mapping[str, Records]) -> None:
    """
    Put records where their hospitals look for them; what lies there is never written over.

    :param layout: of a federation that is prepared afterwards: its roster then declares as many
        patients as the records have.
    :raises StoreError: if a hospital has other records, or the roster declares another number.
    """
    if not found:
        return
    make_private_directory(layout.directory)
    sizes = {}
    if layout.keys.exists():
        sizes = {each.name: each.size for each in layout.roster().members}
    for name, records in found.items():
        path = layout.records(name)
        if path.exists():
            if Records.load(path, plan.shape.states).digest() != records.digest():
                raise StoreError(f'{path} holds other records: take another directory')
            continue
        if sizes.get(name, records.n_patients) != records.n_patients:
            raise StoreError(
                f'the roster of {layout.directory} declares {sizes[name]} patients of {name}, '
                f'the records have {records.n_patients}: take another directory'
            )
        make_private_directory(layout.party(name))
        records.save(path)
