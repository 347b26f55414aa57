# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser, against a server that says what each test wants."""

import json
import time
from typing import Any, TYPE_CHECKING

from fdrl_ros.experiments.reports.glossary import definition
from fdrl_ros.surgery.gym.state import PROCEDURE_NAMES
import pytest
from support import watched_room
from support.watched_room import CSRF, FEDERATION, ROOM

if TYPE_CHECKING:
    from support.page_server import PageServer

DIMMED = "document.querySelectorAll('#room .act.dimmed').length"
LIVE = f"{DIMMED} === 0 && document.getElementById('banner').hidden"


def act(name: str, within: str = '#room') -> str:
    return f'{within} [data-act={name}]'


def with_robot(page: 'PageServer', **changed: Any) -> None:
    """Show a robot otherwise."""
    robot = page.snapshot['robots']['robot_1'] | changed
    page.snapshot = page.snapshot | {'robots': {'robot_1': robot}}


def test_a_room_is_drawn(room, page):
    page.pictures = watched_room.pictures(1)
    robot = page.snapshot['robots']['robot_1']
    text = room.run('document.body.innerText')
    for words in (
        'global',
        'best lower bound',
        'Selector drives',
        'A browser is no emergency stop',
    ):
        assert words in text
    limit = f'limit {robot["force_limit"]:.2f}\xa0N'
    assert limit in room.wait("document.querySelector('.strip .side').textContent")
    for name, unit in (('heart_rate', '1/min'), ('mean_arterial_pressure', 'mmHg')):
        assert f'{robot["vitals"][name]:.0f}\xa0{unit}' in text
    links = "fdrl.room.scene.robot && fdrl.room.scene.robot.joints.get('insertion').moved.position"
    assert room.wait(f'{links}.z') == pytest.approx(-robot['joints']['insertion'], abs=1e-6)
    # Kinematics of the page and of the arm agree: the URDF's tip is where the state says.
    tip = room.wait(
        '(() => { const robot = fdrl.room.scene.robot; robot.root.updateMatrixWorld(true);'
        'const at = robot.find("tool_tip").getWorldPosition(fdrl.room.scene.seen.clone());'
        'return robot.find("base_link").worldToLocal(at).toArray(); })()'
    )
    assert tip == pytest.approx(robot['tip'], abs=2e-4)
    assert room.wait('fdrl.room.scene.renderer.info.render.triangles') > 500
    # A picture of the endoscope comes, and is acknowledged; with the overlay too.
    room.wait("document.querySelector('.picture').dataset.stamp")
    canvas = "document.querySelector('.picture canvas')"
    pixel = f"{canvas}.getContext('2d').getImageData(160, 150, 1, 1).data[0]"
    assert room.wait(pixel) > 30
    room.click('.picture-card button')
    assert room.wait("fdrl.room.picture.path.endsWith('robot_1?kind=overlay')")
    assert page.got_pictures > 0


def test_another_robot_can_be_chosen(room, page):
    room.run("location.hash = '#/room/robot_2'")
    patient = page.snapshot['robots']['robot_2']['patient']
    room.wait(f"document.querySelector('.scene-card').innerText.includes('patient {patient}')")
    assert room.run("document.getElementById('robots').value") == 'robot_2'
    room.press(act('take_over'))
    assert page.asked[-1][0] == {'act': 'take_over', 'robot': 'robot_2'}


def test_a_federation_is_drawn(federation, page):
    text = federation.run('document.body.innerText')
    for words in (
        'round 6 of 8',
        'hospital 3 is missing: its privacy budget does not pay',
        'pays for 2 more rounds',
        'pays for no further round',
        '5.20 of 8.00',
        'step 120 of 300',
        'hospital 5 sealed shares that their holder cannot open',
        'round 4 was rolled back',
        'signature of another round',
    ):
        assert words in text, words
    assert federation.text('.stepper [aria-current]') == 'Train'
    names = federation.wait('fdrl.federation.lines.plot && fdrl.federation.lines.names')
    assert names[:2] == ['all', 'Reach'] and len(names) == 6
    page.snapshot['federation']['phase'] = 'FAILED'
    federation.wait("document.querySelector('.standing').textContent.includes('too few answered')")


def test_a_forecast_says_whether_it_counts_a_home_policy(federation, page):
    forecast = "document.querySelector('[data-hospital=hospital_1] header ~ p.side')"
    federation.wait(f"{forecast}.textContent.startsWith('pays for 3 more rounds, per patient')")
    assert 'home policy' not in federation.run(f'{forecast}.title')
    page.snapshot['federation']['home'] = True
    federation.wait(
        f"{forecast}.textContent.startsWith('pays for 3 more rounds with a home policy after,')"
    )
    assert 'one more home policy after them' in federation.run(f'{forecast}.title')
    page.snapshot['federation']['hospitals']['hospital_1']['pays_for'] = None
    federation.wait(f"{forecast}.textContent.startsWith('per patient') && !{forecast}.title")


def test_the_orders_of_a_finished_federation_are_dimmed_with_the_reason(federation, page):
    orders = "[...document.querySelectorAll('#federation .act')]"
    federation.wait(f'{orders}.length > 10 && {orders}.every((it) => !it.disabled && !it.title)')
    page.snapshot['federation']['phase'] = 'FINISHED'
    federation.wait(f"{orders}.every((it) => it.disabled && it.classList.contains('dimmed'))")
    why = federation.text('.orders-card .why')
    assert why.startswith('The federation has finished')
    assert federation.run(f'{orders}.every((it) => it.title === {json.dumps(why)})')
    # A room goes on, and so do orders once further rounds begin.
    assert (
        federation.run('document.querySelectorAll(\'#room .act[title]:not([title=""])\').length')
        == 0
    )
    page.snapshot['federation']['phase'] = 'OPEN'
    federation.wait(f'{orders}.every((it) => !it.disabled && !it.title)')
    assert federation.run("document.querySelector('.orders-card .why').hidden")


def test_a_federation_that_has_finished_says_why_and_shows_no_round(federation, page):
    standing, title = (
        f"document.querySelector('{each}').textContent"
        for each in ('.standing', '.round-card .gauge .value')
    )
    shown = "['.stepper', '.round-card .facts'].map((it) => document.querySelector(it))"
    shown += '.map((it) => it.checkVisibility())'
    told = page.snapshot['federation']
    assert federation.run(shown) == [True, True]
    for reason, round, words, done in (
        ('all rounds are done', 9, 'Finished: all rounds are done.', '8 of 8 done'),
        ('stopped by Ada', 7, 'Finished: stopped by Ada.', '6 of 8 done'),
        ('', 9, 'Finished.', '8 of 8 done'),
    ):
        told.update(phase='FINISHED', round=round, reason=reason, survivors=[])
        federation.wait(f'{standing} === {json.dumps(words)} && {title} === {json.dumps(done)}')
        assert federation.run(shown) == [False, False]
    told.update(phase='FAILED', reason='no answer in time from hospital 1')
    federation.wait(f"{standing}.endsWith('again. No answer in time from hospital 1.')")
    assert federation.run(shown) == [True, True]


def test_a_bar_is_as_long_as_its_number_says_at_once(room):
    widths = """(() => {
      const { fill, bar } = fdrl.room.progress;
      return [0.66, 0, 1].map((share) => {
        fdrl.room.progress.set(share, '');
        return fill.getBoundingClientRect().width / bar.getBoundingClientRect().width;
      });
    })()"""
    assert room.run(widths) == pytest.approx([0.66, 0.0, 1.0], abs=0.01)


def test_a_run_that_has_ended_says_so_and_leads_to_its_records(page, tab, frames):
    unheard = frames[0] | {'age': None, 'operating': False, 'choice': None, 'policies': []}
    silent = watched_room.federation(time.time()) | {'age': None, 'phase': None}
    page.snapshot = {'robots': {'robot_1': unheard}, 'federation': silent, 'ended': True}
    page.records = {
        'cut': {'kind': 'bag', 'title': 'cut is cut off or damaged', 'broken': True},
        'bag': {
            **{'kind': 'bag', 'title': 'bag, robot_1', 'robot': 'robot_1', 'rounds': []},
            **{'frames': [{'t': 0.0, **frames[5]}], 'duration': 0.0, 'procedures': []},
        },
    }
    tab.open(page.address)
    ended = "document.getElementById('ended').checkVisibility()"
    views = "['room', 'federation'].map((it) => document.getElementById(it).checkVisibility())"
    banner = "document.getElementById('banner')"
    for view in ('room', 'federation'):
        tab.run(f"location.hash = '#/{view}'")
        tab.wait(f"{ended} && fdrl.tab === '{view}' && {banner}.hidden")
        assert tab.run(views) == [False, False]
    assert tab.run("document.getElementById('health-summary').textContent") == 'The run has ended'
    # What is heard all the same is shown; and once that is old, that the run has ended.
    page.snapshot['robots'] = {'robot_1': frames[5]}
    tab.run("location.hash = '#/room'")
    tab.wait(f'!{ended} && {views}[0] && {banner}.hidden')
    page.snapshot['robots'] = {'robot_1': frames[5] | {'age': 9.0, 'operating': False}}
    tab.wait(f"!{banner}.hidden && {banner}.textContent.includes('This run has ended')")
    tab.click('#banner-records')
    # Records shows the newest that is whole.
    tab.wait(f"fdrl.tab === 'records' && fdrl.records.id === 'bag' && {banner}.hidden")
    tab.wait("document.querySelector('.replay-side h2').textContent.startsWith('bag, robot_1')")
    assert tab.text('.record[aria-current=true] strong') == 'Bag: bag, robot_1'
    assert tab.text('.record .over') == 'Bag: cut is cut off or damaged'


def test_a_value_is_awaited_from_policies_only_while_they_are_valued(room, page):
    words = """(() => {
      const { timeline } = fdrl.room, context = timeline.canvas.getContext('2d'), all = [];
      const real = context.fillText;
      context.fillText = (text) => all.push(text);
      timeline.clear();
      timeline.draw();
      context.fillText = real;
      return all.find((each) => each.startsWith('No value yet'));
    })()"""
    room.resize(1600, 900)
    with_robot(page, operating=False)
    assert room.wait(words) == 'No value yet: policies are being valued.'
    valued = [each | {'status': 'candidate'} for each in watched_room.POLICIES]
    with_robot(page, policies=valued, choice=None)
    room.wait('!fdrl.room.timeline.valuing')
    assert room.wait(words) == 'No value yet.'


@pytest.mark.parametrize('scheme', ['light', 'dark'])
def test_limits_share_their_colour_with_no_data(room, scheme):
    room.prefer(scheme)
    room.wait(f"document.documentElement.dataset.theme === '{scheme}'")
    colours = room.run(
        """(async () => {
          const { colour, lines } = await import('/static/theme.js');
          const names = ['--limit', '--veto', '--tip', '--waypoint', '--fill', '--ink', '--hold'];
          return [...names.map(colour), ...lines()];
        })()"""
    )
    assert all(colours) and colours.count(colours[0]) == 1
    drawn = """(() => {
      const { timeline } = fdrl.room, context = timeline.canvas.getContext('2d');
      context.setTransform(1, 0, 0, 1, 0, 0);
      timeline.mark(100);
      return '#' + [...context.getImageData(100, 6, 1, 1).data].slice(0, 3)
        .map((each) => each.toString(16).padStart(2, '0')).join('');
    })()"""
    mark = room.run(drawn)
    assert mark == colours[1] or mark == '#' + 2 * colours[1][1:]


@pytest.mark.parametrize('width', [801, 820, 1000, 1024, 1280])
def test_labels_stand_apart_at_every_width(room, width):
    room.resize(width, 1100)
    room.wait('fdrl.room.timeline.seen.length')
    written = room.wait(
        """(() => {
          const { timeline } = fdrl.room, context = timeline.canvas.getContext('2d');
          const boxes = [], real = context.fillText;
          context.fillText = (text, x, y) => {
            const box = context.measureText(text);
            boxes.push([text, x - box.actualBoundingBoxLeft, x + box.actualBoundingBoxRight, y]);
          };
          timeline.draw();
          delete context.fillText;
          return timeline.width > 100 && boxes.some(([text]) => text === 'now') && boxes;
        })()"""
    )
    axis = sorted((left, right) for text, left, right, y in written if y == written[0][3])
    assert len(axis) > 2
    assert all(one[1] + 4 < next_[0] for one, next_ in zip(axis, axis[1:], strict=False))
    cut = (
        "[...document.querySelectorAll('#room .act, .stepper li, nav a, .policies .title strong')]"
    )
    cut += '.filter((it) => it.checkVisibility() && it.scrollWidth > it.clientWidth + 1)'
    assert room.run(f'{cut}.map((it) => it.textContent)') == []
    assert room.run('document.documentElement.scrollWidth') <= width
    room.run("location.hash = '#/federation'")
    room.wait("document.querySelector('#federation .stepper').checkVisibility()")
    steps = "[...document.querySelectorAll('#federation .stepper li')]"
    assert max(room.run(f'{steps}.map((it) => it.clientHeight)')) < 40  # one line each
    assert room.run('document.documentElement.scrollWidth') <= width
    assert room.run(f'{cut}.map((it) => it.textContent)') == []


def test_no_picture_says_why_and_how_to_get_one(room, page):
    note = "document.querySelector('.picture .scene-note')"
    room.wait(f"!{note}.hidden && {note}.textContent.includes('has not come yet')")
    with_robot(page, picture=False, operating=False)
    room.wait(f"!{note}.hidden && {note}.textContent.includes('no operation runs')")
    assert 'endoscope:=true' not in room.run(f'{note}.textContent')
    with_robot(page, operating=True)
    room.wait(f"{note}.textContent.includes('fdrl launch robot endoscope:=true')")
    # No advice before the server can have found who publishes.
    said = """(() => {
      const other = new fdrl.room.picture.constructor();
      return [[false, 0], [true, 10], [true, 2000], [true, 9000]].map(([operating, now]) => {
        other.follow('robot_1', { operating, picture: false }, now);
        return other.note.textContent.includes('endoscope:=true');
      });
    })()"""
    assert room.run(said) == [False, False, False, True]
    assert 'nobody publishes endoscope/image_raw' in room.run(f'{note}.textContent')
    page.pictures = watched_room.pictures(1)
    with_robot(page, picture=True)
    room.wait(f"{note}.hidden && document.querySelector('.picture').dataset.stamp")


def test_two_kinds_of_success_have_two_names_and_their_definitions(room, page):
    tried = "document.querySelector('.policies [data-policy=home] .tried span')"
    assert room.wait(f'{tried}.textContent') == '94\xa0% success in its trial'
    title = room.run(f'{tried}.title')
    assert title.startswith(definition("success in a robot's trial").words)
    room.run("location.hash = '#/federation'")
    heading = "document.querySelector('.success-card h2')"
    room.wait(f'{heading}.checkVisibility()')
    assert room.run(f'{heading}.textContent') == 'Success in the public test of the key authority'
    meaning = definition('success on public patients').words.replace("'", '\u2019')
    assert room.run(f'{heading}.title') == meaning


def test_every_act_on_a_robot_posts_what_the_server_expects(room, page):
    with_robot(page, vetoed=['hospital_3'])
    named = {
        'lock': {'policy': 'home'},
        'veto': {'policy': 'home'},
        'allow': {'policy': 'hospital_3'},
        'pin': {'policy': 'home', 'version': '6'},
        'unpin': {'policy': 'global'},
    }
    for name in ROOM:
        policy = named.get(name, {}).get('policy')
        within = f'.policies [data-policy={policy}]' if policy else '.acts-card'
        assert room.press(act(name, within)).endswith('Done as asked.')
        body, headers = page.asked[-1]
        assert body == {'act': name, 'robot': 'robot_1', **named.get(name, {})}
        assert headers['x-csrf-token'] == CSRF
        assert headers['origin'] == page.address
    room.press('.hold-row .act')
    assert len(page.asked) == len(ROOM) + (page.asked[-1][0].get('policy') == 'hold')


def test_every_order_posts_what_the_server_expects(federation, page):
    for name in FEDERATION:
        expected: dict[str, Any] = {'act': name}
        within = '.orders-card'
        if name in ('withdraw', 'admit', 'forgive'):
            expected['hospital'] = 'hospital_2'
            within = '.hospital[data-hospital=hospital_2]'
        if name == 'roll_back':
            expected['to_round'] = 4
            federation.run("document.getElementById('to-round').value = '4'")
        federation.press(act(name, within))
        assert page.asked[-1][0] == expected
        assert page.asked[-1][1]['x-csrf-token'] == CSRF


def test_a_dangerous_act_asks_first_and_a_refusal_is_shown(room, page):
    page.answer = 409, 'the arm is in fault'
    room.click(act('stop_operation'))
    assert room.text(act('stop_operation')) == 'Confirm: stop operation'
    room.call('Input.dispatchKeyEvent', type='keyDown', key='Escape')
    room.wait(
        f"document.querySelector('{act('stop_operation')}').textContent === 'Stop operation'"
    )
    assert page.asked == []
    assert 'the arm is in fault' in room.press(act('stop_operation'))
    assert room.run("document.querySelector('.answer').classList.contains('refused')")
    room.errors[:] = [each for each in room.errors if '409' not in each]


def test_a_double_tap_does_not_confirm(room, page):
    button = f"document.querySelector('{act('enable')}')"
    room.wait(f'{button} && !{button}.disabled')
    room.run(f'{button}.click(); {button}.click()')
    assert room.text(act('enable')) == 'Confirm: enable arm'
    assert page.asked == []


def test_a_viewer_sees_no_act(page, tab):
    page.acts = []
    tab.open(page.address)
    tab.wait("document.querySelector('.policies li')")
    assert tab.run("document.querySelectorAll('main .act').length") == 0
    assert 'A browser is no emergency stop.' in tab.run('document.body.innerText')
    tab.run("location.hash = '#/federation'")
    tab.wait("document.querySelector('.hospital')")
    assert tab.run("document.querySelectorAll('main .act').length") == 0


def test_old_data_dims_the_controls_until_it_is_new_again(room, page):
    room.wait(LIVE)
    with_robot(page, age=1.2)
    room.wait(f'{DIMMED} > 5')
    assert 'Data of robot 1 is old' in room.text('#banner')
    assert room.run(f"document.querySelector('{act('hand_back')}').disabled")
    # Who wants less to happen still can, and is told that the data is old.
    room.click(act('take_over'))
    assert room.text(act('take_over')) == 'Data is old. Take over?'
    with_robot(page, age=None)
    room.wait("document.getElementById('banner').textContent.includes('No data of robot 1 yet')")
    with_robot(page, age=0.02)
    room.wait(LIVE)


def test_a_snapshot_is_as_old_as_it_came_not_as_it_is_drawn(room, page):
    room.wait(LIVE)
    page.silent = True
    room.wait("document.getElementById('banner').textContent.includes('No news')")
    waited = (
        '(async () => { const frame = window.requestAnimationFrame;'
        'window.requestAnimationFrame = (draw) => setTimeout(() => frame(draw), 700);'
        'await fdrl.take(JSON.stringify(fdrl.snapshot));'
        f'window.requestAnimationFrame = frame; return {DIMMED}; }})()'
    )
    assert room.run(waited) > 5  # as a hidden page draws when it is seen again
    at_once = f'fdrl.take(JSON.stringify(fdrl.snapshot)).then(() => {DIMMED})'
    assert room.run(at_once) == 0
    # A device that slept: what waited for it may be old, whatever its clocks count.
    asleep = 'const real = Date.now; Date.now = () => real() + 600000;'
    assert room.run(f'(() => {{ {asleep} fdrl.check(); return {DIMMED}; }})()') > 5
    assert room.run(at_once) > 5
    assert '10\xa0min' in room.text('#banner-age')
    assert room.run(at_once) == 0
    page.silent = False
    room.wait(LIVE)


def test_an_idle_arm_is_shown_and_can_be_ordered(room, page):
    robot = page.snapshot['robots']['robot_1']
    joints = robot['joints'] | {'insertion': 0.05}
    with_robot(page, operating=False, choice=None, risk=None, joints=joints, waypoint=[0, 0, -0.1])
    room.wait("document.querySelector('.scene-card').innerText.includes('No operation runs')")
    room.wait(LIVE)
    assert room.text('.reason') == 'No operation runs: nobody chooses.'
    insertion = "fdrl.room.scene.robot.joints.get('insertion').moved.position.z"
    room.wait(f'Math.abs({insertion} + 0.05) < 1e-6 && !fdrl.room.scene.waypoint.visible')
    kept = room.run('fdrl.room.force.times.length')
    for name in ('enable', 'home', 'resume_arm', 'hand_back', 'unlock'):
        assert room.press(act(name, '.acts-card')).endswith('Done as asked.')
    assert room.run('fdrl.room.force.times.length') == kept  # no value of an operation is new
    assert room.run("document.querySelector('.room').classList.contains('idle')")


def test_a_silent_selector_is_told(room, page):
    room.wait(LIVE)
    with_robot(page, selector_silent=3.0, choice=None)
    room.wait("document.getElementById('banner').textContent.includes('robot 1 is silent')")
    assert room.text('.reason') == 'The selector tells no choice.'
    assert room.run(DIMMED) == 0  # the arm is heard: who supervises can act
    with_robot(page, selector_silent=None)
    room.wait("document.getElementById('banner').textContent.includes('nothing has been heard')")
    with_robot(page, selector_silent=3.0, operating=False)
    room.wait(LIVE)


def test_a_silent_aggregator_is_told(federation, page):
    banner = "document.getElementById('banner')"
    federation.wait(f'{banner}.hidden')
    page.snapshot['federation']['age'] = None
    federation.wait(f"{banner}.textContent.includes('Nothing has been heard of the aggregator')")
    page.snapshot['federation']['age'] = 7.0
    federation.wait(f"{banner}.textContent.includes('The aggregator is silent')")
    federation.wait("document.body.classList.contains('stale')")
    page.snapshot['federation']['age'] = 0.3
    federation.wait(f'{banner}.hidden')


def test_all_is_well_only_where_something_was_heard(room, page):
    summary = "document.getElementById('health-summary').textContent"
    room.wait(f"{summary} === 'Nothing heard'")
    well = {'node': 'selector', 'level': 0, 'summary': 'chooses'}
    page.snapshot['health'] = [well]
    room.wait(f"{summary} === 'All well'")
    page.snapshot['health'] = [well | {'level': 3, 'summary': 'nothing heard for 6 s'}]
    room.wait(f"{summary} === '1 to look at'")
    assert room.run("document.getElementById('health').dataset.level") == 'silent'


def test_parts_that_did_not_change_are_kept(federation, page):
    well = {'node': 'aggregator', 'level': 0, 'summary': 'trains'}
    page.snapshot['health'] = [well]
    summary = "document.getElementById('health-summary').textContent"
    federation.wait(f"{summary} === 'All well'")
    page.snapshot = {'robots': {}, 'health': None}  # the part of the federation is left out
    federation.wait(f"{summary} === 'Nothing heard'")
    assert federation.run("document.querySelector('.hospital').checkVisibility()")
    # Without news, its age grows all the same.
    federation.wait("document.getElementById('banner').textContent.includes('aggregator is sil')")
    page.snapshot = {'robots': {}, 'federation': None}
    federation.wait("!document.querySelector('.federation').checkVisibility()")


def test_health_that_did_not_change_is_kept(room, page):
    page.snapshot['health'] = [{'node': 'selector', 'level': 0, 'summary': 'chooses'}]
    room.wait("document.getElementById('health-summary').textContent === 'All well'")
    before = room.run('Number(document.body.dataset.n)')
    page.leaves_out = {'health'}
    room.wait(f'document.body.dataset.n > {before} + 5')
    assert room.text('#health-summary') == 'All well'


def test_a_roll_back_needs_a_round_and_names_it(federation, page):
    back, to = act('roll_back', '.orders-card'), "document.getElementById('to-round')"
    for wrong in ('', '-1', '2.5'):
        federation.run(f"{to}.value = '{wrong}'")
        federation.click(back)
        assert 'write the number of the round' in federation.text('.answer')
        federation.run("document.querySelector('.answer').hidden = true")
        assert federation.text(back) == 'Roll back'
    federation.run(f"{to}.value = '4'")
    federation.click(back)
    assert federation.text(back) == 'Confirm: roll back to round 4'
    # Another number is another question.
    federation.run(f"{to}.value = '3'; {to}.dispatchEvent(new Event('input'))")
    assert federation.text(back) == 'Roll back'
    assert 'Roll back to round 3' in federation.press(back)
    assert [body for body, _ in page.asked] == [{'act': 'roll_back', 'to_round': 3}]


def test_a_question_ends_where_another_robot_is_chosen(room, page):
    room.wait(LIVE)
    room.click(act('stop_operation'))
    assert room.text(act('stop_operation')) == 'Confirm: stop operation'
    room.run("location.hash = '#/room/robot_2'")
    room.wait("fdrl.room.name === 'robot_2'")
    assert room.text(act('stop_operation')) == 'Stop operation'
    room.wait(LIVE)
    room.click(act('stop_operation'))
    assert room.text(act('stop_operation')) == 'Confirm: stop operation'
    assert page.asked == []


def test_what_cannot_be_drawn_is_told_and_the_next_state_comes(room, page):
    room.wait(LIVE)
    page.snapshot['health'] = [None]
    room.wait("document.getElementById('banner').textContent.includes('cannot draw')")
    assert room.run(DIMMED) > 5
    page.snapshot['health'] = []
    room.wait(LIVE)
    assert page.got == list(range(1, len(page.got) + 1))


def test_the_server_says_which_acts_stay_when_data_is_old(page, tab):
    page.calming = ['home']
    with_robot(page, age=3.0)
    tab.open(page.address)
    tab.wait(f'{DIMMED} > 5')
    enabled = "[...document.querySelectorAll('#room .act:enabled')].map((it) => it.dataset.act)"
    assert tab.run(enabled) == ['home']


def test_who_signs_out_is_asked_and_sees_nothing_more(room, page):
    page.refuses_to_leave = True
    assert 'refused it (500)' in room.press(act('leave', '.top'))
    assert page.left == [CSRF]
    page.refuses_to_leave = False
    room.click(act('leave', '.top'))
    assert room.text(act('leave', '.top')) == 'Confirm: sign out'
    room.wait(f'performance.now() > {room.run("performance.now()")} + 400')
    room.click(act('leave', '.top'))
    # The page loads anew: a condition that the browser waits for would end with the old one.
    told = "document.getElementById('banner')?.textContent.includes('You are not signed in')"
    end = time.monotonic() + 60.0
    while not room.run(told):
        assert time.monotonic() < end
    assert room.run("document.querySelectorAll('.room').length") == 0
    assert page.left == [CSRF, CSRF]
    room.errors[:] = [each for each in room.errors if '403' not in each and '500' not in each]


def test_the_success_of_a_round_is_told(federation):
    federation.wait('fdrl.federation.lines.plot')
    place = federation.run(
        "(() => { document.querySelector('.lines').scrollIntoView({ block: 'center' });"
        'const { plot } = fdrl.federation.lines; const box = plot.over.getBoundingClientRect();'
        "return [box.x + plot.valToPos(2, 'x'), box.y + plot.valToPos(0.53, 'y')]; })()"
    )
    federation.call('Input.dispatchMouseEvent', type='mouseMoved', x=place[0], y=place[1])
    reading = "document.querySelector('.reading').textContent"
    assert federation.wait(f"{reading}.startsWith('Round 2:') && {reading}").startswith(
        'Round 2: all 53.0\xa0%, Reach 49.0\xa0%'
    )
    federation.call('Input.dispatchMouseEvent', type='mouseMoved', x=1, y=1)
    federation.wait(f"{reading}.startsWith('Point at a round')")
    # With the keyboard: the newest round first.
    federation.run("document.querySelector('.lines .chart').focus({ focusVisible: true })")
    federation.wait(f"{reading}.startsWith('Round 5: all 80.0')")
    federation.call('Input.dispatchKeyEvent', type='keyDown', key='ArrowLeft')
    federation.wait(f"{reading}.startsWith('Round 4:')")
    federation.call('Input.dispatchKeyEvent', type='keyDown', key='Home')
    federation.wait(f"{reading}.startsWith('Round 0:')")
    federation.run('document.activeElement.blur()')
    federation.wait(f"{reading}.startsWith('Point at a round')")


def test_lines_of_success_differ_without_their_colours(federation, page):
    one = {'policy': 'global', 'success': 0.5, 'procedures': dict.fromkeys(PROCEDURE_NAMES, 0.4)}
    rows = [one | {'round': each} for each in range(3)]
    shown = page.snapshot['federation'] | {'success': rows}
    page.snapshot = page.snapshot | {'federation': shown}
    lines = federation.wait(
        '(() => { const { plot } = fdrl.federation.lines ?? {}; const all = plot?.series.slice(1);'
        'return all?.length === 8 && all.map((each, at) => '
        '[each.label, each.stroke(plot, at + 1), String(each.dash)]); })()'
    )
    (_, *whole), *others = lines
    looks = [(colour, dash) for _, colour, dash in others]
    assert len(set(looks)) == 7 and tuple(whole) not in looks
    assert len({colour for colour, _ in looks}) == 6 and len({dash for _, dash in looks}) == 4


@pytest.mark.parametrize(('width', 'height'), [(1024, 768), (390, 844)])
def test_a_long_status_of_a_policy_moves_no_button(room, page, width, height):
    room.resize(width, height)
    places = (
        "[...document.querySelectorAll('.policies li, .policies .act')]"
        '.map((it) => it.getBoundingClientRect().top)'
    )
    before = room.run(places)
    words = 'too much force on public states ' * 12
    policies = [
        each | {'reason': words, 'status': 'refused', 'pinned': True, 'success_share': None}
        for each in watched_room.POLICIES
    ]
    with_robot(page, policies=policies)
    room.wait("document.querySelector('.policies p.side').title.length > 300")
    pinned = [
        each | {'pinned': old['pinned']}
        for each, old in zip(policies, watched_room.POLICIES, strict=True)
    ]
    with_robot(page, policies=pinned)
    room.wait("document.querySelector('[data-policy=home] [data-act=pin]').checkVisibility()")
    assert room.run(places) == before


def test_nothing_that_appears_moves_a_button(room, page):
    room.wait(LIVE)
    place = f"document.querySelector('{act('take_over')}').getBoundingClientRect().top"
    before = room.run(place)
    choice = page.snapshot['robots']['robot_1']['choice'] | {'veto': 'hard_stop'}
    outcome = {'procedure': 'reach', 'success': False, 'failure': 'force', 'peak_force': 3.0}
    with_robot(page, age=2.0, choice=choice, outcome=outcome, arm_state='FAULT', homed=False)
    room.wait("document.querySelector('.veto').checkVisibility()")
    room.wait("!document.getElementById('banner').hidden")
    assert room.run(place) == before


def test_a_silent_server_dims_the_controls(room, page):
    room.wait(LIVE)
    page.silent = True
    room.wait(f"{DIMMED} > 5 && document.getElementById('banner').textContent.includes('No news')")
    page.silent = False
    room.wait(LIVE)


def test_a_lost_connection_is_told_and_comes_back(room, page):
    room.wait(LIVE)
    page.away = True
    page.drop()
    room.wait(
        f'{DIMMED} > 5 && '
        "document.getElementById('banner').textContent.includes('Connection lost')"
    )
    page.away = False
    room.wait(LIVE)
    with_robot(page, driver='surgeon')
    room.wait("document.querySelector('.driver').textContent === 'Surgeon drives'")
    room.errors[:] = [each for each in room.errors if 'WebSocket' not in each]


def test_who_is_signed_out_is_told_what_to_do(room, page):
    room.wait(LIVE)
    page.away, page.signed_in = True, False
    page.drop()
    room.wait("document.getElementById('banner').textContent.includes('Ask who runs fdrl watch')")
    page.away, page.signed_in = False, True
    room.wait(LIVE)
    room.errors[:] = [each for each in room.errors if '403' not in each]


def test_pictures_come_only_while_they_are_seen(room, page):
    page.pictures = watched_room.pictures(1)
    room.wait("document.querySelector('.picture').dataset.stamp")
    room.run("location.hash = '#/federation'")
    room.wait('fdrl.room.picture.link === null')
    room.run("location.hash = '#/room'")
    room.wait('fdrl.room.picture.link !== null')


def test_a_slow_tab_gets_the_newest_once_it_has_drawn(room, page):
    room.run('{ const end = Date.now() + 1500; while (Date.now() < end); }')
    with_robot(page, driver='surgeon')
    room.wait("document.querySelector('.driver').textContent === 'Surgeon drives'")
    assert page.sent - len(page.got) <= 1  # nothing is sent before the last one was drawn
    assert page.got == list(range(1, len(page.got) + 1))


def test_hostile_names_stay_text(page, tab):
    nasty = '<img src=x onerror="window.caught=1"><script>window.caught=1</script>'
    robot = page.snapshot['robots']['robot_1']
    choice = robot['choice'] | {'policy': nasty, 'reason': nasty, 'veto': nasty}
    policies = [watched_room.policy(nasty, 1, 0.5, reason=nasty, status=nasty)]
    with_robot(
        page, choice=choice, policies=policies, locked=nasty, patient=nasty, procedure=nasty
    )
    federation = page.snapshot['federation']
    federation['hospitals'] = {nasty: watched_room.hospital(stage=nasty)}
    federation |= {'missing': {nasty: nasty}, 'refusals': [[1.0, nasty]], 'reason': nasty}
    tab.open(page.address)
    tab.wait("document.querySelector('.policies li')")
    assert tab.text('.policy strong') == nasty
    tab.run("location.hash = '#/federation'")
    tab.wait("document.querySelector('.hospital')")
    assert tab.text('.hospital h3') == nasty
    assert tab.run("document.querySelectorAll('main img, main script').length") == 0
    assert tab.run('window.caught') is None
    page.snapshot = page.snapshot | {'robots': {'__proto__': {}, 'robot_1': {}}, 'unknown': nasty}
    tab.run("location.hash = '#/room'")  # nothing of a robot is there, and nothing breaks
    tab.wait("document.querySelector('.reason').textContent === 'Nobody has chosen yet.'")


def test_a_record_is_replayed_with_a_slider(page, tab, frames):
    page.records = {
        'runs/one two': {
            **{'kind': 'run', 'title': 'Incision', 'duration': 23.8, 'procedures': ['incision']},
            'frames': [
                {key: value for key, value in each.items() if key not in ('policies', 'timeline')}
                | {'t': 0.2 * number}
                for number, each in enumerate(frames)
            ],
            'rounds': [
                watched_room.federation(0.0) | {'round': number, 't': 9.0 * number}
                for number in range(3)
            ],
        }
    }
    tab.open(f'{page.address}/#/records')
    tab.click('[data-record="runs/one two"]')
    tab.wait(
        "document.querySelector('.replay').checkVisibility()"
        ' && Boolean(fdrl.records.room.scene.robot)'
    )
    tab.run(
        "{ const it = document.querySelector('.player input'); it.value = 20;"
        "it.dispatchEvent(new Event('input')); }"
    )
    insertion = "fdrl.records.room.scene.robot.joints.get('insertion').moved.position.z"
    expected = frames[100]['joints']['insertion']
    assert tab.wait(insertion) == pytest.approx(-expected, abs=1e-6)
    assert tab.text('.player output') == '20.0 of 23.8\xa0s'
    assert tab.run('fdrl.records.room.force.times.length') == pytest.approx(101, abs=1)
    assert tab.text('.replay .federation .gauge .value') == 'round 2 of 8'
    assert tab.run("document.querySelectorAll('.replay .act').length") == 0
    tab.run("document.querySelector('.player select').value = '4'")
    tab.click('.player .play')
    tab.wait("document.querySelector('.player output').textContent.startsWith('23.8')")
    tab.wait("document.querySelector('.player .play').textContent === 'Play'")
    tab.run("location.hash = '#/records/lost'")
    tab.wait("document.querySelector('.replay-side h2').textContent.includes('it cannot be read')")
    tab.errors[:] = [each for each in tab.errors if '409' not in each]


def test_the_rounds_of_a_run_are_replayed(page, tab):
    rounds = [
        watched_room.federation(0.0) | {'t': 9.0 * each, 'round': each} for each in (1, 2, 3)
    ]
    page.records = {'run': {'kind': 'run', 'title': 'Run', 'frames': [], 'rounds': rounds}}
    tab.open(f'{page.address}/#/records/run')
    tab.wait("document.querySelector('.player output').textContent === '1 of 3 rounds'")
    tab.click('.player .play')
    tab.wait("document.querySelector('.player output').textContent === '3 of 3 rounds'")
    assert tab.text('.replay .federation .gauge .value') == 'round 3 of 8'
    assert not tab.run("document.querySelector('.replay .room').checkVisibility()")


def test_dark_and_light_follow_the_system_until_a_person_chooses(room):
    ink = 'getComputedStyle(document.body).color'
    room.prefer('light')
    room.wait(f"document.documentElement.dataset.theme === 'light' && {ink} === 'rgb(20, 32, 43)'")
    room.prefer('dark')
    room.wait(
        f"document.documentElement.dataset.theme === 'dark' && {ink} === 'rgb(233, 238, 242)'"
    )
    room.click('#theme')
    room.wait("document.documentElement.dataset.theme === 'light'")
    room.run('location.reload()')
    room.wait("document.documentElement.dataset.theme === 'light' && document.body.dataset.n")
    room.run('localStorage.clear()')


@pytest.mark.parametrize(('width', 'height'), [(1024, 768), (390, 844)])
def test_nothing_is_wider_than_a_tablet_or_a_phone_or_too_small_to_touch(page, tab, width, height):
    tab.resize(width, height)
    for view, shown in (
        ('room', '.policies li'),
        ('federation', '.hospital'),
        ('records', '.records'),
    ):
        tab.open('about:blank')
        tab.open(f'{page.address}/#/{view}')
        tab.wait(f"document.querySelector('{shown}') && document.body.dataset.n")
        assert tab.run('document.documentElement.scrollWidth') <= width
        small = tab.run(
            "[...document.querySelectorAll('button, nav a, select, summary')]"
            '.filter((it) => it.checkVisibility() && it.getBoundingClientRect().height < 43.5)'
            '.map((it) => it.textContent)'
        )
        assert small == []


def test_memory_of_the_page_does_not_grow(room, page):
    """Hours of states pass in seconds: what the page keeps stays bounded."""
    kept = room.run(
        """(async () => {
          const robot = structuredClone(fdrl.snapshot.robots.robot_1);
          const { room } = fdrl;
          const kept = () => [room.force.times.length, room.timeline.values.length,
            room.timeline.seen.length, room.scene.trail.length <= 240, fdrl.acts.buttons.size,
            document.querySelectorAll('*').length];
          const policies = robot.policies;
          let half;
          for (let i = 0; i < 40000; i += 1) {
            robot.stamp += 0.02;
            robot.choice.policy = 'policy ' + (i % 977);
            robot.tip = [0.03 * Math.sin(i), 0, -0.12];
            room.add(robot, robot.stamp);
            if (i % 400 === 0) {
              robot.policies = policies.map((each) => ({ ...each, round: i }));
              room.scene.update(robot);
              room.showPolicies(robot);
              fdrl.acts.forget();
            }
            if (i === 20000) half = kept();
          }
          return [half, kept()];
        })()"""
    )
    assert kept[0] == kept[1]
