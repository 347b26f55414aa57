# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A study measures each part once, goes on after an interruption, and refuses foreign parts."""

from dataclasses import replace
import json
import math

from fdrl_ros.errors import FdrlError, StoreError, TrainingStopped
from fdrl_ros.experiments import study
from fdrl_ros.experiments.study import left_words, Part, PART_FORMAT, Study
from fdrl_ros.runtime.progress import Caller
import pytest


def square(number, work):
    """Measure a made-up part, with a checkpoint and progress."""
    work.check()
    checkpoint = work.directory / 'checkpoint'
    begun = checkpoint.exists()
    checkpoint.touch()
    for done in range(3):
        work.tell(done, 2)
    if number < 0 and not begun:
        raise FdrlError('it failed')
    return {'square': number**2, 'begun': begun}


def part(number, **settings):
    return Part(f'part_{number}', {'plan': {'number': number, **settings}}, (number,))


@pytest.fixture
def made(tmp_path):
    own = Study('made', tmp_path / 'parts', square, lambda result: result['square'])
    own.run([part(1), part(2)])
    return own


def path_of(own, one):
    return own.directory / f'{one.name}.json'


def rewrite(own, number, change):
    path = path_of(own, part(number))
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_results_come_in_order_whoever_measured_them_and_whenever(made, tmp_path):
    stamp = path_of(made, part(2)).stat().st_mtime_ns
    found = replace(made, workers=2).run([part(3), part(2), part(-4), part(1)][:2] + [part(5)])
    assert [each['square'] for each in found] == [9, 4, 25]
    assert path_of(made, part(2)).stat().st_mtime_ns == stamp
    alone = replace(made, directory=tmp_path / 'alone').run([part(3), part(2), part(5)])
    assert alone == found
    assert not list((tmp_path / 'parts').glob('*.unfinished'))


def test_an_interrupted_study_keeps_what_is_finished_and_its_checkpoints(made):
    with pytest.raises(FdrlError, match='it failed'):
        made.run([part(3), part(-4), part(5)])
    assert made.finished([part(3), part(-4), part(5)])[1:] == [None, None]
    asked = iter([False, True])
    with pytest.raises(TrainingStopped):
        made.run([part(3), part(-4), part(5)], Caller(stopped=lambda: next(asked)))
    found = made.run([part(3), part(-4), part(5)])
    assert [each['begun'] for each in found] == [False, True, False]


def test_checkpoints_of_other_settings_are_refused(made):
    with pytest.raises(FdrlError, match='it failed'):
        made.run([part(-4)])
    with pytest.raises(StoreError, match=r'part_-4\.unfinished is of other settings'):
        made.run([part(-4, rounds=5)])
    assert made.run([part(-4, workers=5)])[0]['begun']


def test_a_part_without_a_budget_is_found_again(made):
    unlimited = part(3, budget=math.inf)
    first = made.run([unlimited])
    assert made.finished([unlimited]) == first and first[0]['plan']['budget'] == math.inf


def test_progress_covers_each_part_and_the_whole(made):
    said = []
    made.run([part(2), part(3), part(4)], Caller(said.append))
    own = [(each.done, each.total) for each in said if each.who == 'part_3']
    assert own == [(0, 2), (1, 2), (2, 2)]
    whole = [(each.done, each.detail) for each in said if each.who == 'all parts']
    assert whole == [(1, ''), (2, 'about 10 s left'), (3, '')]
    found = [left_words(each) for each in (3.0, 58.0, 140.0, 6e3)]
    assert found == [f'about {each} left' for each in ('10 s', '60 s', '2 min', '1.7 h')]


def test_a_part_holds_its_settings_digest_and_versions(made):
    header = json.loads(path_of(made, part(1)).read_text())['study']
    assert header['name'] == 'made' and header['format'] == PART_FORMAT
    assert header['settings_digest'] == study.digest_of(part(1, workers=5).settings)
    assert header['settings_digest'] != study.digest_of(part(1, rounds=5).settings)
    assert {'fdrl_ros', 'python', 'numpy'} <= header['versions'].keys()


def test_parts_written_before_files_had_a_format_are_still_read(made):
    rewrite(made, 1, lambda content: content.pop('study'))
    assert made.finished([part(1)])[0]['square'] == 1


@pytest.mark.parametrize(
    ('change', 'words'),
    [
        (lambda content: content.pop('square'), 'cannot be read'),
        (lambda content: content.update(study=3), 'cannot be read'),
        (lambda content: content['study'].update(format=PART_FORMAT + 1), 'of a newer fdrl_ros'),
        (lambda content: content.pop('plan'), 'of other settings'),
    ],
)
def test_damaged_and_newer_parts_are_refused(made, change, words):
    rewrite(made, 1, change)
    with pytest.raises(StoreError, match=words):
        made.finished([part(1)])


def test_a_torn_part_and_a_folder_that_cannot_be_made_are_refused(made, tmp_path):
    path_of(made, part(1)).write_text('{"plan": ')
    with pytest.raises(StoreError, match='remove it to run it again'):
        made.run([part(1)])
    (tmp_path / 'file').touch()
    with pytest.raises(StoreError, match='cannot make'):
        replace(made, directory=tmp_path / 'file' / 'below').run([part(1)])


def test_a_study_without_a_directory_keeps_nothing(made):
    alone = replace(made, directory=None)
    assert [each['square'] for each in alone.run([part(1), part(3)])] == [1, 9]
    assert alone.finished([part(1)]) == [None]
