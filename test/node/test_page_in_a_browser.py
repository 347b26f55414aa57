# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser, on a live arm and a live federation."""

from collections.abc import Iterator
import time
from typing import Any

from fdrl_ros.deployment.bringup import hospital_graph, robot_graph, RoomArguments
import pytest
from support import chromium

for needed in ('httpx', 'starlette', 'uvicorn', 'fdrl_ros.nodes.watch'):
    pytest.importorskip(needed, reason='needs requirements/page.txt')

DRIVER = "document.querySelector('.driver').textContent"


@pytest.fixture(scope='module')
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    if not chromium.found():
        pytest.skip('no Chromium here (apt: chromium)')
    with chromium.running(tmp_path_factory.mktemp('chromium')) as found:
        yield found


def enter(page: tuple[Any, str], tab: chromium.Tab, name: str, view: str = 'room') -> None:
    """Follow a link of an operator."""
    from fdrl_ros.page.sessions import Person, Role

    made, url = page
    tab.resize(1024, 768)
    tab.open(f'{url}/enter?token={made.sessions.invite(Person(name, Role.OPERATOR))}#/{view}')
    tab.wait('document.body.dataset.n')


def test_an_arm_is_seen_and_supervised_in_a_browser(page, runner, settings, browser):
    with browser.tab() as ada:
        ada.open(f'{page[1]}/enter?token=wrong')
        ada.wait("document.body && document.body.innerText.includes('link')")
        enter(page, ada, 'Ada')
        ada.wait("document.getElementById('banner').textContent.includes('No data of robot 1')")
        runner.start(robot_graph(settings, 'robot_1', 1, RoomArguments(endoscope=True)))
        ada.wait(f"{DRIVER} === 'Selector drives'")
        ada.wait("document.querySelector('.picture').dataset.stamp")
        ada.wait('fdrl.room.scene.tip.visible && fdrl.room.force.values.length > 20')
        ada.wait("document.getElementById('banner').hidden")
        assert ada.press('[data-act=take_over]').startswith('\u2713 Take over')
        ada.wait(f"{DRIVER} === 'Ada drives'")
        assert ada.press('[data-act=hand_back]').startswith('\u2713')
        ada.wait(f"{DRIVER} === 'Selector drives'")
        assert ada.press('[data-act=pause_arm]').startswith('\u2713')
        ada.wait("document.querySelector('.acts-card').innerText.includes('Arm paused')")
        ada.errors.clear()  # that the wrong token was refused
        runner.stop()
        ada.wait("document.getElementById('banner').textContent.includes('robot 1 is old')")
        assert ada.run("document.querySelector('[data-act=hand_back]').disabled")
        assert ada.errors == []


def test_two_surgeons_in_two_browsers_do_not_drive_at_once(
    page, runner, settings, browser, tmp_path
):
    runner.start(robot_graph(settings, 'robot_1', 1))
    with chromium.running(tmp_path) as other, browser.tab() as ada, other.tab() as bob:
        for tab, name in ((ada, 'Ada'), (bob, 'Bob')):
            enter(page, tab, name)
            tab.wait(f"{DRIVER} === 'Selector drives'")
            tab.wait("document.getElementById('banner').hidden")
        assert ada.press('[data-act=take_over]').startswith('\u2713 Take over')
        for tab in (ada, bob):
            tab.wait(f"{DRIVER} === 'Ada drives'")
        for name in ('take_over', 'hand_back'):
            answer = bob.press(f'[data-act={name}]')
            assert answer.startswith('\u2717') and 'Ada drives robot_1' in answer
            assert bob.run(DRIVER) == ada.run(DRIVER) == 'Ada drives'
        bob.errors[:] = [each for each in bob.errors if '409' not in each]
        assert ada.press('[data-act=hand_back]').startswith('\u2713')
        for tab in (ada, bob):
            tab.wait(f"{DRIVER} === 'Selector drives'")
        assert bob.press('[data-act=take_over]').startswith('\u2713')
        for tab in (ada, bob):
            tab.wait(f"{DRIVER} === 'Bob drives'")
        # Whoever signs out leaves the arm to others.
        bob.run("void fdrl.acts.leave('Sign out')")
        # The page loads anew: a condition that the browser waits for would end with the old one.
        end = time.monotonic() + chromium.PATIENCE
        while not bob.run("!window.fdrl && document.body?.innerText.includes('link')"):
            assert time.monotonic() < end
        bob.errors[:] = [each for each in bob.errors if '403' not in each]
        assert ada.press('[data-act=hand_back]').startswith('\u2713')
        ada.wait(f"{DRIVER} === 'Selector drives'")
        assert ada.errors == bob.errors == []


def test_a_federation_is_seen_and_ordered_in_a_browser(page, live, browser):
    with browser.tab() as tab:
        enter(page, tab, 'Ada', 'federation')
        late = live.begin_without_the_last()
        tab.wait("document.querySelector('.stepper [aria-current]').textContent === 'Open'")
        assert tab.press('[data-act=pause]').startswith('\u2713')
        tab.wait("document.querySelector('.standing').textContent.includes('Paused')")
        assert tab.press('[data-act=resume]').startswith('\u2713')
        live.runner.start(hospital_graph(live.settings, late))
        live.finish()
        tab.wait("document.querySelector('.standing').textContent.includes('Finished')")
        tab.wait("document.querySelectorAll('.dot[data-alive=true]').length === 3")
        tab.wait("fdrl.federation.lines.names.includes('Palpation')")
        assert 'more round' in tab.run('document.body.innerText')
        assert tab.errors == []
