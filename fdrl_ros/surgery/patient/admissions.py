# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Who comes into an operating room next, drawn at random."""

from collections.abc import Sequence

from fdrl_ros.errors import SettingError
from fdrl_ros.surgery.patient.cohort import PatientSource, public_cohort, SPLITS
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.ranges import check_number
from fdrl_ros.surgery.tasks.procedures import procedures_named
import numpy as np

_NUMBERS = 2**31
_PRESSING = 'palpation, retraction'


class Admissions:
    """
    The patients of an env.

    :param cohort: where they come from; public ones unless given.
    :param split: 'train' or 'test' patients.
    :param procedures: what is done here, as
        :func:`fdrl_ros.surgery.tasks.procedures.procedures_named` takes it: palpation and
        retraction on public patients, what a cohort does, unless given.
    :param heterogeneity: how far public patients differ, H in [0, 1]; 0 unless given.
    :raises SettingError: on what is no source of patients, split, H or procedures; on an H, or
        other procedures, beside a cohort, which has its own.
    """

    def __init__(
        self,
        cohort: PatientSource | None = None,
        split: str = 'train',
        procedures: str | Sequence[str] | None = None,
        heterogeneity: float | None = None,
    ) -> None:
        if cohort is not None and (
            isinstance(cohort, type) or not callable(getattr(cohort, 'patient', None))
        ):
            raise SettingError('cohort', cohort, 'a Cohort, or another source of patients')
        if cohort is not None and heterogeneity is not None:
            raise SettingError('heterogeneity', heterogeneity, 'none: the cohort has its own')
        if heterogeneity is not None:
            check_number('heterogeneity', heterogeneity, 0.0, 1.0)
        if split not in SPLITS:
            raise SettingError('split', split, 'one of ' + ', '.join(SPLITS))
        self._done = None if procedures is None else procedures_named(procedures)
        own: tuple[str, ...] | None = getattr(cohort, 'procedures', None)
        if None not in (own, self._done) and own != self._done:
            raise SettingError(
                'procedures',
                procedures,
                'those of the cohort, or none: it does ' + ', '.join(own or ()),
            )
        self._split = split
        self._cohort = cohort or public_cohort(
            0, heterogeneity or 0.0, self._done or procedures_named(_PRESSING)
        )

    def draw(self, rng: np.random.Generator) -> Patient:
        """
        Return the next patient.

        :raises SettingError: if the cohort's patient is for another procedure.
        """
        return self.checked(self._cohort.patient(int(rng.integers(_NUMBERS)), self._split))

    def checked(self, patient: Patient) -> Patient:
        """
        Return a patient who may come.

        :raises SettingError: if it is none, or one for another procedure.
        """
        if not isinstance(patient, Patient):
            raise SettingError('patient', patient, 'a Patient')
        if self._done is not None and patient.procedure.name not in self._done:
            expected = 'one for ' + ' or '.join(self._done)
            raise SettingError('patient', f'{patient.name}: {patient.procedure.name}', expected)
        return patient
