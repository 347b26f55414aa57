# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The rules of the package, read out of its sources: who imports whom, and how a file begins.

The diagram of docs/architecture.md is the law of imports; there is no second list of layers.
"""

from collections.abc import Iterator
import functools
import graphlib
from pathlib import Path
import re
import sys

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / 'fdrl_ros'
PAGE = (ROOT / 'docs' / 'architecture.md').read_text('utf-8')
SOURCES = {path: path.read_text('utf-8') for path in sorted(PACKAGE.rglob('*.py'))}

# Modules and rooms that every room may import; each of them only those before it.
COMMON = ('errors', 'settings', 'resources', 'runtime')
# The one room above itself that a module may name: the runner starts nodes as processes.
LAZY = 'fdrl_ros/deployment/runner.py', 'nodes'
MOST_FILES = 20
ROS = re.compile(r'rclpy|fdrl_ros\.(msg|srv|action)|.*_msgs|builtin_interfaces|std_srvs|launch\w*')
HEADER = '# Copyright 2026 The fdrl_ros maintainers\n# SPDX-License-Identifier: Apache-2.0\n'

IMPORT = re.compile(r'^ *(?:from (\S+) )?import (\([^)]*\)|.*)$', re.MULTILINE)
NAMED = re.compile(r"'(fdrl_ros(?:\.\w+)+)(?::\w+)?'")
# Calls of a module with a global generator, and those that are fine.
RANDOM_CALL = re.compile(r'(?<![\w.])(random|np\.random|numpy\.random|torch)\.(\w+)\(([^()]*)')
SEEDED = {
    'random': r'SystemRandom',
    'np.random': r'BitGenerator|Generator|PCG64|Philox|SeedSequence|default_rng',
    'torch': r'(?!(manual_seed|normal|rand|randint|randn|randperm|seed)$).*',
}


def imports(path: Path) -> Iterator[str]:
    """Yield the full name of each thing that a module imports, wherever in it."""
    for module, what in IMPORT.findall(SOURCES[path]):
        assert not module.startswith('.'), f'{path}: imports are absolute'
        for name in re.sub(r'#.*| as \w+|[()]', '', what).split(','):
            if name.strip():
                yield f'{module}.{name.strip()}' if module else name.strip()


def room_of(path: Path) -> str:
    """Return the first name below the package: the folder, or the module at the top."""
    return path.relative_to(PACKAGE).parts[0].removesuffix('.py')


ROOMS = sorted({room_of(path) for path in SOURCES if path.parent != PACKAGE})


@functools.cache
def rooms_used() -> dict[str, dict[str, Path]]:
    """Return which rooms each room imports, also by name in a string, and a module that does."""
    found: dict[str, dict[str, Path]] = {room_of(path): {} for path in SOURCES}
    for path, text in SOURCES.items():
        room = room_of(path)
        for name in (*imports(path), *NAMED.findall(text)):
            words = name.split('.')
            if words[0] != 'fdrl_ros' or len(words) == 1 or words[1] not in found:
                continue
            if (path.relative_to(ROOT).as_posix(), words[1]) != LAZY:
                found[room].setdefault(words[1], path)
        found[room].pop(room, None)
    return found


def test_rooms_import_what_the_diagram_shows() -> None:
    arrows = re.findall(r'^  (\w+) --> (\w+)$', PAGE, re.MULTILINE)
    used = rooms_used()
    for before, after in arrows:
        assert after in used[before], f'no import: {before} --> {after}'
    behind = {room: {after for before, after in arrows if before == room} for room in ROOMS}
    for room in graphlib.TopologicalSorter(behind).static_order():  # refuses circles
        behind[room] = behind[room].union(*(behind[each] for each in behind[room]))
    behind |= {room: set(COMMON[:i]) for i, room in enumerate(COMMON)}
    for room in (*ROOMS, *COMMON):
        for extra in used[room].keys() - behind[room] - {*(() if room in COMMON else COMMON)}:
            pytest.fail(f'{used[room][extra]}: the diagram does not let {room} import {extra}')


def test_the_page_has_a_row_for_every_room() -> None:
    assert sorted(re.findall(r'^\| `(\w+)` \|', PAGE, re.MULTILINE)) == ROOMS


def test_few_modules_lie_beside_the_rooms() -> None:
    alone = {room_of(path) for path in SOURCES} - {*ROOMS}
    assert alone == {'__init__', '__main__', 'errors', 'resources', 'settings'}


def test_folders_are_packages_and_no_fuller_than_a_reader_overlooks() -> None:
    for folder in {
        parent for path in SOURCES for parent in path.parents if PACKAGE in parent.parents
    }:
        assert folder / '__init__.py' in SOURCES, folder  # setuptools finds no others
        assert len(list(folder.glob('*.py'))) - 1 <= MOST_FILES, folder


def test_modules_do_not_import_in_a_circle() -> None:
    names = {'.'.join(path.relative_to(ROOT).with_suffix('').parts): path for path in SOURCES}
    names |= {name.removesuffix('.__init__'): path for name, path in names.items()}

    def with_parents(name: str) -> set[str]:  # who imports a.b runs a too
        words = name.split('.')
        return {'.'.join(words[:end]) for end in range(1, len(words) + 1)}

    graph = {
        name: set().union(*map(with_parents, imports(path))) & names.keys() - with_parents(name)
        for name, path in names.items()
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(' -> '.join(reversed(error.args[1])))


def test_metrics_needs_numpy_alone_and_only_nodes_know_ros() -> None:
    fine = {'numpy', *sys.stdlib_module_names}
    ours = ('fdrl_ros.errors.', 'fdrl_ros.settings.', 'fdrl_ros.metrics.')
    for path in SOURCES:
        for name in imports(path):
            assert room_of(path) == 'nodes' or not ROS.match(name), f'{path} imports {name}'
            if room_of(path) == 'metrics':
                assert name.split('.')[0] in fine or name.startswith(ours), f'{path}: {name}'


def test_nobody_uses_a_global_random_generator() -> None:
    for path, text in SOURCES.items():
        for name in imports(path):
            assert not re.match(r'random\.|numpy\.random\.[a-z]', name), f'{path} imports {name}'
        for module, function, arguments in RANDOM_CALL.findall(text):
            where = f'{path}: {module}.{function}'
            seeded = re.fullmatch(SEEDED[module.replace('numpy', 'np')], function)
            assert seeded or 'generator=' in arguments, where
            assert function != 'default_rng' or arguments, f'{where} without a seed'


@pytest.mark.parametrize('folder', ['fdrl_ros', 'launch', 'native', 'test', 'tools'])
def test_every_file_begins_with_its_licence_and_a_sentence(folder: str) -> None:
    for path in (ROOT / folder).rglob('*.py'):
        text = path.read_text('utf-8')
        assert not text or text.startswith(f'{HEADER}"""'), path
