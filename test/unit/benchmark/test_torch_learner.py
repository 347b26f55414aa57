# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`benchmark/torch_learner.py`: its steps are charged, and the peer's are of the same module."""

from dataclasses import replace

from fdrl_ros.privacy.ledger.content import read_content
import pytest


@pytest.fixture
def work(module):
    return module('torch_learner')


@pytest.mark.parametrize('name', ['MLP', 'CNN'])
def test_a_step_of_ours_is_charged_by_patient_and_opacus_takes_the_same_module(
    work, tmp_path, name
):
    case = replace(getattr(work, name), patients=24, batch=8, hidden=16)
    assert work.private_steps(case, tmp_path)() == 2 * 3  # 24 patients in batches of 8
    [path] = tmp_path.glob('*/ledger.sqlite')
    history = read_content(path).chain.history()
    assert [(each.steps, each.sampling_probability) for each in history] == [(3, 8 / 24)] * 2
    assert work.opacus_steps(case)() == 4


def test_the_cnn_has_a_million_weights_and_every_promised_figure_a_row(work):
    assert work.CNN.make().layout.n_parameters > 1_000_000
    names = {row.name for row in (*work.ROWS, work.crypto_million.BYTES)}
    assert names >= {
        'patient_step_over_opacus',
        'cnn_step_over_opacus',
        'he_1m_s',
        'he_1m_bytes',
        'onnx_decision_p99_us',
    }
