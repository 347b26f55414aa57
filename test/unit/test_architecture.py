# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The rules of the house, held by reading the source: who imports whom, and how a file begins."""

import ast
from collections.abc import Iterator
import functools
import graphlib
from pathlib import Path
import re
import subprocess
import sys

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / 'fdrl_ros'
MODULES = sorted(PACKAGE.rglob('*.py'))

# A room may import the rooms on later lines. Rooms on one line keep apart.
LAYERS = (
    {'__main__'},
    {'cli'},
    {'worlds'},
    {'experiments'},
    {'nodes'},
    {'deployment'},
    {'audit', 'selector'},
    {'federation', 'shield'},
    {'learner'},
    {'crypto', 'policy', 'privacy', 'surgery'},
    {'metrics'},
    {'runtime'},
    {'resources', 'settings'},
    {'__init__', '_kernels', 'errors'},
)
# The one room above itself that a module may name: the runner starts nodes as processes.
LAZY = {'deployment/runner.py': 'nodes'}
MOST_FILES = 20
ROS = re.compile(r'rclpy|fdrl_ros\.(msg|srv|action)|.*_msgs|builtin_interfaces|std_srvs|launch\w*')
HEADER = '# Copyright 2026 The fdrl_ros maintainers\n# SPDX-License-Identifier: Apache-2.0\n'
# What may be called of a module with a global generator; of torch, what may not.
SEEDED_NUMPY = {'BitGenerator', 'Generator', 'PCG64', 'Philox', 'SeedSequence', 'default_rng'}
GLOBAL_TORCH = {'manual_seed', 'normal', 'rand', 'randint', 'randn', 'randperm', 'seed'}


@functools.cache
def parse(path: Path) -> ast.Module:
    """Return a module's syntax tree."""
    return ast.parse(path.read_text(), str(path))


def imports(path: Path) -> Iterator[str]:
    """Yield the full name of each thing that a module imports, wherever in it."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f'{path}: imports are absolute'
            yield from (f'{node.module}.{each.name}' for each in node.names)


def with_parents(name: str) -> list[str]:
    """Return a.b.c, a.b and a of `a.b.c`: who imports the first runs the others too."""
    words = name.split('.')
    return ['.'.join(words[: i + 1]) for i in reversed(range(len(words)))]


def named_modules(path: Path) -> Iterator[str]:
    """Yield the modules of this package that strings name, as `import_module` takes them."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(r'fdrl_ros(\.\w+)+(:\w+)?', node.value):
                yield node.value.partition(':')[0]


def room_of(path: Path) -> str:
    """Return the first name below the package: the folder, or the module at the top."""
    return path.relative_to(PACKAGE).parts[0].removesuffix('.py')


def layer_of(room: str) -> int:
    """Return the line of a room."""
    found = [i for i, layer in enumerate(LAYERS) if room in layer]
    assert found, f'{room} is in no layer'
    return found[0]


def dotted(node: ast.AST) -> str:
    """Return `a.b.c` of an attribute, nothing for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f'{dotted(node.value)}.{node.attr}'
    return ''


def test_rooms_import_only_the_layers_below_them() -> None:
    for path in MODULES:
        room = room_of(path)
        named = {
            each: LAZY.get(path.relative_to(PACKAGE).as_posix()) for each in named_modules(path)
        }
        for name in (*imports(path), *named):
            words = name.split('.')
            if len(words) > 1 and words[1] == named.get(name):
                continue
            if words[0] != 'fdrl_ros' or len(words) == 1 or words[1] in (room, 'msg', 'srv'):
                continue
            assert layer_of(words[1]) > layer_of(room), f'{path}: {room} must not import {name}'


def test_every_layer_names_rooms_that_are_there() -> None:
    there = {room_of(path) for path in MODULES} | {'_kernels'}
    assert {room for layer in LAYERS for room in layer} == there


def test_no_folder_has_more_files_than_a_reader_overlooks() -> None:
    folders = [path for path in PACKAGE.rglob('*') if path.is_dir()]
    for folder in (PACKAGE, *folders):
        files = [path for path in folder.glob('*.py') if path.name != '__init__.py']
        assert len(files) <= MOST_FILES, folder


def test_modules_do_not_import_in_a_circle() -> None:
    names = {'.'.join(path.relative_to(ROOT).with_suffix('').parts): path for path in MODULES}
    names.update({name.removesuffix('.__init__'): path for name, path in names.items()})
    graph = {}
    for name, path in names.items():
        wanted = {name_of for each in imports(path) for name_of in with_parents(each)}
        graph[name] = (wanted & names.keys()) - set(with_parents(name))
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(' -> '.join(reversed(error.args[1])))


def test_metrics_needs_numpy_alone() -> None:
    allowed = {'numpy', *sys.stdlib_module_names}
    ours = ('fdrl_ros.errors.', 'fdrl_ros.settings.', 'fdrl_ros.metrics.')
    for path in (PACKAGE / 'metrics').rglob('*.py'):
        for name in imports(path):
            fine = name.split('.')[0] in allowed or name.startswith(ours)
            assert fine, f'{path} imports {name}'


def test_only_the_nodes_know_ros() -> None:
    for path in MODULES:
        if room_of(path) != 'nodes':
            for name in imports(path):
                assert not ROS.match(name), f'{path} imports {name}'


def test_nobody_uses_a_global_random_generator() -> None:
    for path in MODULES:
        for name in imports(path):
            assert not re.match(r'random\.|numpy\.random\.[a-z]', name), f'{path} imports {name}'
        for node in ast.walk(parse(path)):
            if not isinstance(node, ast.Call):
                continue
            module, _, function = dotted(node.func).rpartition('.')
            where = f'{path}:{node.lineno}: {module}.{function}'
            if module == 'random':
                assert function == 'SystemRandom', where
            elif module in ('np.random', 'numpy.random'):
                assert function in SEEDED_NUMPY, where
                assert function != 'default_rng' or node.args, f'{where} without a seed'
            elif module == 'torch' and function in GLOBAL_TORCH:
                assert 'generator' in {each.arg for each in node.keywords}, where


@pytest.mark.parametrize('folder', ['fdrl_ros', 'launch', 'native', 'test', 'tools'])
def test_every_file_begins_with_its_licence_and_a_sentence(folder: str) -> None:
    for path in (ROOT / folder).rglob('*.py'):
        text = path.read_text()
        if text:
            assert text.startswith(HEADER), path
            assert ast.get_docstring(parse(path)), f'{path}: say what it is'


def test_every_folder_of_modules_is_a_package() -> None:
    for path in MODULES:
        assert (path.parent / '__init__.py').is_file(), f'{path.parent} has no __init__.py'


def test_the_tree_has_no_generated_file() -> None:
    listed = subprocess.run(['git', 'ls-files'], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip('not a git checkout')
    for name in listed.stdout.splitlines():
        assert not name.startswith(('build/', 'install/', 'log/', '.venv/', 'runs/')), name
