# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The reader of an extracted MIMIC-III table, on small made-up tables of the same form."""

from dataclasses import replace
import math

from fdrl_ros.errors import RecordsError, SettingError
from fdrl_ros.worlds.mimic.columns import DoseCuts, MIMIC_FEATURES, MimicSettings, PUBLISHED_CUTS
from fdrl_ros.worlds.mimic.reader import canonical_name, MOST_FAULTS, read_mimic, TableError
from hypothesis import given, settings, strategies
import numpy as np
import pytest

NAMES = [each.name for each in MIMIC_FEATURES]
# Patient 7 has two stays; 9 dies. Each window's fluid and vasopressor.
STAYS = [
    ('7', '201', 0, [(0.0, 0.0), (50.0, 0.05), (51.0, 0.08)]),
    ('9', '202', 1, [(600.0, 0.5), (530.0, 0.45)]),
    ('7', '203', 0, [(180.0, 0.22), (181.0, 0.23)]),
    ('8', '204', 0, [(20.0, 0.0)]),
]
LINES = sum(len(windows) for *_, windows in STAYS)
SECRET = '4711'  # a value that no message may repeat


def made_up(stays=STAYS):
    """Return rows of the table, each a dictionary, drawn between the usual limits."""
    rng = np.random.default_rng(0)
    rows = []
    for patient, stay, died, windows in stays:
        for number, (fluid, vasopressor) in enumerate(windows, 1):
            row = {'subject_id': patient, 'icustayid': stay, 'bloc': number}
            row |= {'mortality_90d': died, 'charttime': 1.5e9 + 14400 * number}
            for each in MIMIC_FEATURES:
                binary = (each.lowest, each.highest) == (0, 1)
                share = rng.integers(2) if binary else rng.random()
                row[each.name] = each.low + (each.high - each.low) * float(share)
            rows.append(row | {'input_4hourly': fluid, 'max_dose_vaso': vasopressor})
    return rows


def write(tmp_path, rows, header=None):
    """Write a table; the first row of data is on line 2."""
    names = header or list(rows[0])
    lines = [','.join(names), *(','.join(str(row[name]) for name in names) for row in rows)]
    path = tmp_path / 'extract.csv'
    path.write_text('\n'.join(lines) + '\n', 'utf-8')
    return path


def refused(tmp_path, rows, line, column, words, settings=None, **options):
    """Expect a refusal that names the place, and no value."""
    path = write(tmp_path, rows)
    with pytest.raises(TableError, match=words) as caught:
        read_mimic(path, settings, **options)
    error = caught.value
    assert isinstance(error, RecordsError)
    assert (error.path, error.line, error.column) == (path, line, column)
    places = [f'line {line}', f'lines {line}'] if line else ['']
    assert any(each in str(error) for each in places)
    assert str(path) in str(error) and (column or '') in str(error)
    assert SECRET not in str(error)


def test_table_becomes_records_with_one_unit_for_each_patient(tmp_path):
    rows = made_up()
    table = read_mimic(write(tmp_path, rows))
    records = table.records
    assert list(records.patients) == ['7', '9', '8']
    assert list(records.starts) == [0, 5, 7, 8]
    assert list(np.flatnonzero(records.terminals)) == [2, 4, 6, 7]
    assert list(records.rewards) == [0, 0, 15, 0, 15, 0, -15, 15]
    # The order of rows: both stays of patient 7, then those of the others.
    order = [0, 1, 2, 5, 6, 3, 4, 7]
    fluid, vasopressor = np.divmod(records.actions, 5)
    assert list(fluid) == [0, 1, 2, 2, 3, 4, 3, 1]
    assert list(vasopressor) == [0, 1, 1, 2, 3, 4, 3, 0]
    assert table.sofa == pytest.approx([rows[each]['SOFA'] for each in order])
    assert table.cuts is PUBLISHED_CUTS
    going = np.flatnonzero(~records.terminals)
    assert np.array_equal(records.next_states[going], records.states[going + 1])
    assert not records.next_states[records.terminals].any()


def test_features_are_scaled_by_the_documented_constants_alone(tmp_path):
    rows = made_up()
    states = read_mimic(write(tmp_path, rows)).records.states
    for row, state in zip(rows[:3], states, strict=False):
        for each, number in zip(MIMIC_FEATURES, state, strict=True):
            value, ends = row[each.name], (each.low, each.high)
            if each.log:
                value, *ends = (math.log(0.1 + one) for one in (value, *ends))
            slow = 2.0 * (value - ends[0]) / (ends[1] - ends[0]) - 1.0
            assert number == pytest.approx(min(max(slow, -4.0), 4.0), abs=1e-5)
    alone = read_mimic(write(tmp_path, rows[:3])).records
    assert np.array_equal(alone.states, states[:3])  # whoever else is in the table


def test_rows_and_columns_may_come_in_any_order(tmp_path):
    rows = made_up()
    straight = read_mimic(write(tmp_path, rows)).records
    rng = np.random.default_rng(1)
    header = [list(rows[0])[each] for each in rng.permutation(len(rows[0]))]
    late = [rows[0], *(rows[each] for each in 1 + rng.permutation(len(rows) - 1))]
    mixed = read_mimic(write(tmp_path, late, header)).records
    for name, start, end in zip(
        straight.patients, straight.starts, straight.starts[1:], strict=False
    ):
        place = int(np.flatnonzero(mixed.patients == name)[0])
        theirs = mixed.states[mixed.starts[place] : mixed.starts[place + 1]]
        ours = straight.states[start:end]
        assert np.array_equal(np.unique(ours, axis=0), np.unique(theirs, axis=0))


def test_other_column_names_levels_and_a_mark_of_order_are_read(tmp_path):
    rows = made_up()
    for row in rows:
        row |= {'who': 'p' + row.pop('subject_id'), 'f': 3, 'v': 1, 'dead': row['mortality_90d']}
    path = write(tmp_path, rows)
    path.write_bytes(b'\xef\xbb\xbf' + path.read_bytes() + b'\n\n')
    chosen = MimicSettings(
        patient='who', outcome='dead', fluid='f', vasopressor='v', doses='level'
    )
    table = read_mimic(path, chosen)
    assert list(table.records.patients) == ['p7', 'p9', 'p8']
    assert set(table.records.actions) == {16} and table.cuts is None


@settings(max_examples=25, deadline=None)
@given(dose=strategies.floats(0.0, 1e4), share=strategies.floats(0.0, 1.0))
def test_levels_rise_with_the_dose_and_0_is_none(dose, share):
    for name in ('fluid', 'vasopressor'):
        cuts = getattr(PUBLISHED_CUTS, name)
        less, more = PUBLISHED_CUTS.levels(name, np.array([dose * share, dose]))
        assert 0 <= less <= more <= 4
        assert (more == 0) == (dose == 0.0)
        assert more == sum([dose > 0.0, *(dose > cut for cut in cuts)])


@pytest.mark.parametrize('column', ['subject_id', 'HR'])
def test_missing_columns_are_named(tmp_path, column):
    rows = made_up()
    for row in rows:
        del row[column]
    refused(tmp_path, rows, 1, None, f'missing columns: {column}$')


CELLS = [
    ('HR', 'nan', 'finite'),
    ('HR', '', 'number'),
    ('HR', 'quick', 'number'),
    ('HR', SECRET, '0 to 300 1/min'),
    ('age', '65', '6500 to 55000 d'),
    ('Arterial_pH', '74', '6.3 to 8.2$'),
    ('SOFA', '25', '0 to 24'),
    ('paO2', 'inf', 'finite'),
    ('input_4hourly', '-1', 'negative'),
    ('max_dose_vaso', '-0.1', 'negative'),
    ('bloc', '1.5', 'whole'),
    ('bloc', '-2', 'whole'),
    ('mortality_90d', '2', '0 or 1'),
    ('subject_id', '', 'empty'),
    ('icustayid', '  ', 'empty'),
    ('subject_id', 'nan', 'empty'),
    ('subject_id', '4711.5', 'not a whole one'),
    ('icustayid', '1.2e+05', 'not a whole one'),
    ('gender', '0.5', '0 male, 1 female'),
    ('mechvent', '0.2', '0 or 1'),
    ('HR', '8_0', 'a number'),
    ('HR', '８0', 'a number'),
]


@pytest.mark.parametrize(('column', 'value', 'words'), CELLS)
def test_bad_cell_is_refused_with_its_line_and_column(tmp_path, column, value, words):
    rows = made_up()
    rows[3][column] = value
    refused(tmp_path, rows, 5, column, words)


SPELLINGS = ['5', '5.0', '05', ' 5 ', '5.', '+5', '０5', 5, 5.0, np.int64(5)]


def test_one_patient_is_one_unit_however_the_number_is_written(tmp_path):
    assert {canonical_name(each) for each in SPELLINGS} == {'5'}
    for name in ('p7', 'P7', '12e4', 'a-5', '5a', 'b_5.0'):  # pseudonyms stay as they are
        assert canonical_name(name) == name
    # 30 patients of two stays each, whose second stay was written by another program.
    stays = []
    for number in range(30):
        stays.append((str(number), f'{300 + number}', 0, [(0.0, 0.0), (60.0, 0.0)]))
        stays.append((f'0{number}.0', f'{400 + number}', 1, [(10.0, 0.1)]))
    rows = made_up(stays)
    rows[1]['icustayid'] = '300.0'  # and a stay is one stay
    records = read_mimic(write(tmp_path, rows)).records
    assert records.n_patients == 30
    assert list(records.patients) == [str(number) for number in range(30)]
    assert list(np.diff(records.starts)) == [3] * 30 and records.terminals.sum() == 60


def test_known_patients_may_be_numbers_and_are_never_one_text(tmp_path):
    path = write(tmp_path, made_up())
    for known in ([7, 8, 9], {'7.0', '08', '9'}, np.array([7, 8, 9]), np.array([7.0, 8.0, 9.0])):
        assert read_mimic(path, known_patients=known).records.n_patients == 3
    for wrong in ('789', [7, None], [7, 8.5], 7):
        with pytest.raises(SettingError, match='known_patients') as caught:
            read_mimic(path, known_patients=wrong)
        assert '8.5' not in str(caught.value)


def test_stranger_is_refused_and_not_named(tmp_path):
    rows = made_up()
    for row in rows[3:5]:
        row['subject_id'] = SECRET
    refused(tmp_path, rows, 5, 'subject_id', 'not known', known_patients=['7', '8', '9'])
    read_mimic(write(tmp_path, rows), known_patients={'7', '8', SECRET})


def test_all_that_is_wrong_is_told_at_once_up_to_a_bound(tmp_path):
    rows = made_up()
    rows[0] |= {'HR': 'quick', 'GCS': '', 'subject_id': ''}
    rows[1]['gender'] = 0.5
    for row in rows[2:]:
        row['age'] = 60
    path = write(tmp_path, rows)
    with pytest.raises(TableError) as caught:
        read_mimic(path)
    error = caught.value
    assert [(each.lines, each.column, each.count) for each in error.faults] == [
        ((2,), 'subject_id', 1),
        ((2,), 'GCS', 1),
        ((2,), 'HR', 1),
        ((3,), 'gender', 1),
        ((4, 5, 6), 'age', 6),
    ]
    assert 'lines 4, 5, 6 and 3 more, column age: expected 6500 to 55000 d' in str(error)
    assert (error.line, error.column, error.detail) == (2, 'subject_id', 'is empty')
    for row in rows:
        row |= dict.fromkeys(NAMES, SECRET + '!')
    with pytest.raises(TableError) as caught:
        read_mimic(write(tmp_path, rows))
    assert len(caught.value.faults) == MOST_FAULTS and caught.value.more > 200
    assert f'and {caught.value.more} more' in str(caught.value)
    assert len(str(caught.value)) < 3000 and SECRET not in str(caught.value)


@pytest.mark.parametrize(('mark', 'words'), [(';', 'semicolons'), ('\t', 'tabs'), ('|', 'bars')])
def test_columns_parted_by_something_else_are_one_clear_error(tmp_path, mark, words):
    path = write(tmp_path, made_up())
    text = path.read_text()
    for quoted in (text, text.replace('subject_id', '"subject_id"')):
        path.write_text(quoted.replace(',', mark))
        with pytest.raises(TableError, match=f'line 1: .*parted by {words}, expected commas$'):
            read_mimic(path)


def test_stays_that_contradict_themselves_and_levels_out_of_range_are_refused(tmp_path):
    for line, column, words, change in (
        (4, 'bloc', 'again after line 3', (2, {'bloc': 2})),
        (4, 'bloc', 'gap after line 3', (2, {'bloc': 5})),
        (6, 'mortality_90d', 'after line 5', (4, {'mortality_90d': 0})),
        (6, 'icustayid', 'another patient', (4, {'subject_id': SECRET})),
    ):
        rows = made_up()
        rows[change[0]] |= change[1]
        refused(tmp_path, rows, line, column, words)
    rows = made_up()
    refused(tmp_path, [*rows, rows[6]], LINES + 2, 'bloc', 'again after line 8')
    levels = MimicSettings(fluid='f', vasopressor='v', doses='level')
    for value in (5, 1.5):
        rows = [row | {'f': 1, 'v': 1} for row in made_up()]
        rows[2]['v'] = value
        refused(tmp_path, rows, 4, 'v', '0 to 4', levels)


def test_too_short_tables_are_refused(tmp_path):
    four = MimicSettings(minimum_patients=4)
    refused(tmp_path, made_up(), None, None, '3 patients, expected at least 4', four)
    path = write(tmp_path, made_up())
    path.write_text(path.read_text().splitlines()[0] + '\n')
    with pytest.raises(TableError, match='0 patients'):
        read_mimic(path)
    path.write_text('')
    with pytest.raises(TableError, match='no header'):
        read_mimic(path)
    with pytest.raises(TableError, match='cannot be read'):
        read_mimic(tmp_path / 'none.csv')


def test_what_is_no_csv_is_refused(tmp_path):
    path = write(tmp_path, made_up())
    whole = path.read_bytes()
    for spoilt, words in (
        (whole[:-20], f'line {LINES + 1}'),
        (whole.replace(b'7,201,2', b'7,201,2,2', 1), 'line 3.* cells, expected'),
        (whole.replace(b'7,201,2', b'"7"x,201,2', 1), 'line 3.*not CSV'),
        (whole.replace(b'201', b'\xff', 1), 'cannot be read'),
        (whole.replace(b'charttime', b'HR', 1), 'column HR: is there twice'),
    ):
        path.write_bytes(spoilt)
        with pytest.raises(TableError, match=words):
            read_mimic(path)


def test_settings_and_cuts_that_cannot_be_are_refused():
    with pytest.raises(SettingError, match='not one of the features'):
        MimicSettings(doses='level')
    for bad in (
        {'fluid': (50.0, 40.0, 530.0)},
        {'vasopressor': (0.0, 0.2, 0.4)},
        {'vasopressor': (0.1, 0.2)},
        {'origin': 'quartiles'},
    ):
        with pytest.raises(SettingError):
            replace(PUBLISHED_CUTS, **bad)
    assert DoseCuts(fluid=(40.0, 100.0, 400.0), origin='charged').origin == 'charged'
