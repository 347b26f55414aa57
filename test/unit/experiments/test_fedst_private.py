# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Private tuning of a segmenter's head and queries: epsilon is kept, and told beside Dice."""

import io
from pathlib import Path

from fdrl_ros.experiments.json_file import from_json
from fdrl_ros.experiments.studies.fedst import private
from fdrl_ros.experiments.studies.fedst.settings import FEDERATED, FedstSettings
import pytest
from rich.console import Console

TINY = {
    'world': {'pixels': 32, 'frames': 1},
    'collection': {'patients': 4},
    'pretraining': {'patients': 2, 'steps': 2},
    'learner': {'epochs': 1},
    'privacy': {'batch': 2},
    'evaluation': {'patients': 2},
}


def test_every_site_is_tuned_within_its_epsilon_and_the_study_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(private, 'QUICK', TINY)
    settings = FedstSettings(seeds=1, workers=1)
    (found,) = private.run_private(tmp_path, settings, quick=True)
    assert set(found['dice']) == set(FEDERATED)
    assert all(len(each) == 2 for site in found['dice'].values() for each in site.values())
    assert found['epsilon']['inf'] is None and found['noise_multiplier']['inf'] == 0.0
    for name in ('8', '2'):
        assert found['epsilon'][name] == pytest.approx(float(name), rel=0.05)
    assert found['noise_multiplier']['2'] > found['noise_multiplier']['8'] > 0.0
    monkeypatch.setattr(private, 'measure', None)  # it is finished
    again = private.run_private(tmp_path, settings, quick=True)
    assert again[0]['dice'] == found['dice']
    out = Console(file=io.StringIO(), width=160)
    out.print(private.private_table(again))
    text = out.file.getvalue()
    assert 'infinite' in text and 'DP-SGD on 4 clips' in text


def test_the_page_tells_what_was_measured():
    docs = Path(__file__).resolve().parents[3] / 'docs'
    found = from_json((docs / 'results' / 'fedst.json').read_text('utf-8'))['private']
    page = (docs / 'segmentation.md').read_text('utf-8')
    rows = zip(*(column.cells for column in private.private_table(found).columns), strict=True)
    for first, noise, *sites in rows:
        name = 'public start' if first == 'none' else first
        assert f'| {" | ".join((name, noise, *sites))} |'.replace('|  |', '| |') in page
