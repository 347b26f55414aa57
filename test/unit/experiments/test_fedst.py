# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""FedST's study: from parts to tables, report and sentences."""

from dataclasses import replace
import json
from pathlib import Path

from click.testing import CliRunner
from fdrl_ros.cli import main
from fdrl_ros.errors import PolicyError, SettingError, TrainingStopped
from fdrl_ros.experiments.studies.fedst import paper
from fdrl_ros.experiments.studies.fedst.settings import (
    FEDERATED,
    FedstSettings,
    TABLES,
    UNSEEN,
)
from fdrl_ros.experiments.studies.fedst.study import (
    clip_means,
    draw_sites,
    measure,
    overall,
    packed,
    predict,
    run_fedst,
    unpacked,
    unseen_clips,
)
from fdrl_ros.experiments.studies.fedst.summary import _averaged, summarise
from fdrl_ros.experiments.studies.fedst.tables import tables, verdicts
from fdrl_ros.experiments.study import Work
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.segmentation.network.segmenter_file import load_segmenter
from fdrl_ros.segmentation.overlay import COLOURS, overlaid
from fdrl_ros.segmentation.training.methods import METHODS
from fdrl_ros.segmentation.training.run import train
import numpy as np
import pytest
import torch

TINY = FedstSettings(
    seeds=2,
    workers=2,
    pixels=32,
    clips=1,
    test_clips=1,
    frames=2,
    synthetic_clips=1,
    rounds=1,
    steps=1,
    server_steps=1,
    server_frames=2,
    pretraining=1,
)


def part(name: str, seed: int, dice: float, unseen: dict[str, float]) -> dict:
    def scores(value: float) -> dict:
        each = {'shaft': [value, value], 'wrist': [value, None], 'jaw': [value - 0.1, value + 0.1]}
        return dict.fromkeys(('dice', 'iou', 'hd95', 'assd'), each)

    return {
        'method': name,
        'seed': seed,
        'sites': {site: scores(dice) for site in FEDERATED},
        'unseen': {way: scores(value) for way, value in unseen.items()},
        'upload_bytes': 6e6,
        'upload_counted': 2e6,
        'seconds_sites': 10.0,
        'seconds_server': 0.0,
        'frames_per_second': 100.0,
    }


def summary(fedst: float = 0.8) -> dict:
    settings = replace(TINY, seeds=2)
    parts = []
    for seed in (1, 2):
        wobble = 0.001 * seed
        for name in settings.methods:
            own = fedst if name == 'fedst' else 0.75
            if name == 'local':
                unseen = dict.fromkeys(FEDERATED, 0.3)
            elif name == 'pooled':
                unseen = {'own': 0.5}
            else:
                unseen = {'server': 0.4}
                if METHODS[name].personal != 'none':
                    unseen['average'] = 0.6
            parts.append(part(name, seed, own + wobble * len(name), unseen))
    return summarise(parts, settings)


def test_means_are_over_parts_and_what_is_undefined_is_left_out():
    scores = part('fedst', 1, 0.8, {})['sites']['A']['dice']
    assert clip_means(scores) == pytest.approx([(0.8 + 0.8 + 0.7) / 3, (0.8 + 0.9) / 2])
    assert np.isnan(overall({'jaw': [None]}))
    found = summary()['methods']['fedst']
    of_seeds = overall(scores) + np.array([0.005, 0.01])
    for place in ('A', 'mean'):
        assert found['sites'][place]['dice']['mean'] == pytest.approx(of_seeds.mean())
    assert found['sites']['A']['parts']['wrist']['mean'] == pytest.approx(0.8075)
    assert set(found[UNSEEN]) == {'server', 'average'}


@pytest.mark.parametrize(('fedst', 'words'), [(0.8, 'better than'), (0.7, 'worse than')])
def test_verdicts_say_what_is_beyond_chance_and_that_a_study_is_too_short(fedst, words):
    said = verdicts(summary(fedst))
    assert 'Centralised reaches 76.7 %' in said[0] and 'under-trained' in said[0]
    assert any(each.startswith(f'FedST is {words}') and 'on A to D' in each for each in said)
    assert 'their epsilon is infinite' in said[-1]


def test_tables_hold_our_numbers_and_the_paper_s():
    made = {each.title.partition(':')[0]: each for each in tables(summary())}
    assert {'Table II', 'Table III', 'Table IX'} < set(made)
    titles = list(made['Table III'].columns[0].cells)
    assert titles.count('FedST') == 2  # both ways for what sites keep
    rows = list(zip(*(each.cells for each in made['Table III'].columns), strict=True))
    assert {row[1]: row[-1] for row in rows if row[0] == 'FedST'} == {
        "server's own": '',
        "sites' average": '78.0, 64.3, 310.9, 81.4',
    }
    # Nobody trains the server's own tensors of these.
    assert [row[1] for row in rows if row[0] in ('FedRep', 'FedDP')] == ["sites' average"] * 2
    columns = [made['Table II'].columns[each].cells for each in (0, -1)]
    first = dict(zip(*columns, strict=True))
    assert first['FedST'].endswith('51.2')  # the last of the four is of ASSD


def test_ablations_have_the_paper_s_numbers_of_their_own_table():
    for name, stated in paper.ABLATIONS.items():
        assert set(stated) == set(TABLES[name])
    assert paper.ABLATIONS['components']['fedst'] != paper.ABLATIONS['layers']['fedst']
    assert paper.ABLATIONS['layers']['fedst'][0] == paper.SITES['dice']['fedst'][-1]
    near = {'dice': 0.6, 'iou': 0.7, 'hd95': 0.6, 'assd': 0.6}  # its means are not always means
    for each, rows in paper.SITES.items():
        for name, (*sites, mean) in rows.items():
            assert np.mean(sites) == pytest.approx(mean, abs=near[each]), (each, name)


def test_on_the_site_outside_methods_are_compared_as_the_paper_compares_them():
    found = summary()['differences']
    average, server, local = 0.6, 0.4, 0.3
    for name, other in (('feddp', average), ('fedavg', server), ('local', local)):
        difference = found[name][UNSEEN]
        assert difference['seeds']['mean'] == pytest.approx(average - other)
        assert difference['clips']['mean'] == pytest.approx(average - other)
        assert difference['p'] == pytest.approx(1.0 if name == 'feddp' else 0.0)


def test_models_that_trained_alone_count_as_one_where_they_label_the_same_clips():
    scores = {
        site: part('local', 1, value, {})['sites']['A'] for site, value in (('A', 0.2), ('B', 0.6))
    }
    mean = _averaged(scores)
    assert mean['dice']['shaft'] == pytest.approx([0.4, 0.4])
    assert mean['dice']['wrist'] == [pytest.approx(0.4), None]


def test_one_seed_tests_nothing_and_what_is_undefined_stays_so():
    settings = replace(TINY, seeds=1)
    parts = [part(name, 1, 0.5, {'server': 0.4, 'own': 0.4}) for name in settings.methods]
    for each in parts:
        for site in FEDERATED:
            each['sites'][site]['hd95'] = dict.fromkeys(('shaft', 'wrist', 'jaw'), [None, None])
    made = summarise(parts, settings)
    said = verdicts(made)
    assert any('one seed' in each for each in said) and not any('chance from' in x for x in said)
    differences = next(each for each in tables(made) if 'minus' in each.title)
    assert set(differences.columns[3].cells) == {'one seed'} == set(differences.columns[6].cells)
    table = next(each for each in tables(made) if 'HD95' in each.title)
    assert set(table.columns[1].cells) == {'undefined'} == set(table.columns[5].cells)


def test_unknown_tables_and_sizes_are_refused():
    with pytest.raises(SettingError, match='tables'):
        FedstSettings(tables='ten')
    with pytest.raises(SettingError, match='multiple of 32'):
        FedstSettings(pixels=100)
    assert set(FedstSettings(tables='all').methods) == set(METHODS)


def test_a_gpu_that_is_not_there_is_refused_before_any_part(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: False)
    with pytest.raises(PolicyError, match='finds no GPU'):
        run_fedst(tmp_path, replace(TINY, device='cuda'))
    assert not list(tmp_path.glob('parts/*'))


@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')
def test_a_gpu_trains_the_same_segmenters_but_for_rounding():
    schedule, sites = TINY.schedule, draw_sites(TINY, 1)
    here, there = (
        train(METHODS['fedst'], 'tiny', sites, schedule, 1, lambda *_: None, device=device)
        for device in ('cpu', 'cuda')
    )
    for site in FEDERATED:
        # Adam takes whole steps along gradients that are rounded to either side of zero.
        assert np.abs(here.weights[site] - there.weights[site]).mean() < 1e-4


def test_labels_go_into_a_file_and_back_and_over_frames():
    labels = np.arange(4, dtype=np.uint8).reshape(1, 2, 2)
    assert np.array_equal(unpacked(packed(labels), labels.shape), labels)
    drawn = overlaid(np.full((1, 2, 2, 3), 100, np.uint8), labels)
    assert (drawn[0, 0, 0] == 100).all()
    expected = (0.45 * 100 + 0.55 * COLOURS[3]).astype(np.uint8)
    assert np.abs(drawn[0, 1, 1].astype(int) - expected).max() <= 1


@pytest.mark.parametrize('name', ['fedst', 'local'])
def test_a_part_is_measured_and_the_same_again_after_a_break(name, tmp_path):
    settings, folder = replace(TINY, rounds=2), tmp_path / 'unfinished'
    folder.mkdir()

    def measured(folder: Path, caller: Caller = NOBODY) -> dict:
        work = Work(folder, ('a', 'b'), caller)
        found = measure(settings, name, 1, tmp_path / 'segmenters', work=work)
        timed = ('seconds_sites', 'seconds_server', 'frames_per_second')
        return {key: each for key, each in found.items() if key not in timed}

    found = measured(tmp_path)
    asked = iter([False] * (settings.pretraining + len(FEDERATED) * settings.steps + 3))
    with pytest.raises(TrainingStopped):
        measured(folder, Caller(stopped=lambda: next(asked, True)))
    assert [each.name for each in folder.iterdir()] == ['training.npz']
    assert json.dumps(found) == json.dumps(measured(folder))
    assert set(found['sites']) == set(FEDERATED) and set(found['examples']) == {*FEDERATED, UNSEEN}
    for site in FEDERATED:
        saved = load_segmenter(tmp_path / 'segmenters' / f'{name}_{site}.npz')
        clips = unseen_clips(settings, site, 1)
        assert saved.site == site
        assert packed(predict(saved.segmenter(), clips[0], saved.text)) == found['examples'][site]


def test_the_command_makes_tables_and_a_report_and_goes_on(tmp_path):
    flags = ['--fedst-seeds', '1', '--fedst-workers', '1', '--fedst-pixels', '32']
    for name in ('clips', 'test-clips', 'frames', 'synthetic-clips', 'rounds', 'steps'):
        flags += [f'--fedst-{name}', '1']
    for name in ('server-steps', 'server-frames', 'pretraining'):
        flags += [f'--fedst-{name}', '1']
    words = ['reproduce', 'fedst', '--directory', str(tmp_path / 'fedst'), *flags]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert 'Table II' in done.output and 'under-trained' in done.output
    page = (tmp_path / 'fedst' / 'report.html').read_text()
    assert (
        'image/png;base64' in page
        and 'Site E.' in page
        and 'image/webp' in page
        and '="http' not in page
    )
    assert len(list((tmp_path / 'fedst' / 'parts').glob('*.json'))) == 6
    again = CliRunner().invoke(main, words)
    assert again.exit_code == 0 and 'Table IX' in again.output
    other = CliRunner().invoke(main, [*words, '--fedst-rate', '0.01'])
    assert other.exit_code == 1 and 'of other settings' in other.output


def test_the_page_tells_what_the_ablations_measured():
    docs = Path(__file__).resolve().parents[3] / 'docs'
    found = json.loads((docs / 'results' / 'fedst_ablations.json').read_text('utf-8'))
    page = (docs / 'segmentation.md').read_text('utf-8')
    numbers = {'components': 'IV', 'places': 'V', 'layers': 'VI', 'indicators': 'VII'}
    assert found.keys() == numbers.keys()

    def words(way: dict | None) -> str:
        if way is None:
            return '-'
        low, mean, high = (way['dice'][each] for each in ('low', 'mean', 'high'))
        ends = '' if low is None else f' [{100 * low:.1f}, {100 * high:.1f}]'
        return f'{100 * mean:.1f}{ends}'

    for table, result in found.items():
        for name in TABLES[table]:
            method, unseen = result['methods'][name], result['methods'][name]['E']
            theirs = paper.ABLATIONS[table][name]
            cells = (
                numbers[table],
                method['title'],
                words(method['sites']['mean']),
                words(unseen.get('average') or unseen.get('own')),
                words(unseen.get('server')),
                f'{theirs[0]:.1f}, {theirs[1]:.1f}',
            )
            assert f'| {" | ".join(cells)} |' in page
