# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The packages for pip: they build from a clean export, and hold what a user needs."""

from email.message import Message
from email.parser import Parser
from pathlib import Path
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import fdrl_ros
from fdrl_ros.cli.commands import SECTIONS
from fdrl_ros.deployment.launch_files import described
from fdrl_ros.resources import package_version
import gymnasium
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
NOT_EXPORTED = shutil.ignore_patterns(
    *('.*', 'build', 'install', 'log', 'runs', 'site', '__pycache__', '_kernels.*', '*.egg-info'),
    *('images', 'results', 'test', 'benchmark'),
)
SHARED = ('config', 'msg', 'urdf')


@pytest.fixture(scope='module')
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build the sdist of a copy of this tree, and the wheel out of the sdist alone."""
    source, made = tmp_path_factory.mktemp('source') / 'fdrl_ros', tmp_path_factory.mktemp('dist')
    shutil.copytree(ROOT, source, ignore=NOT_EXPORTED)
    command = [sys.executable, '-m', 'build', '--no-isolation', '--outdir', str(made), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (sdist,), (wheel,) = made.glob('*.tar.gz'), made.glob('*.whl')
    return sdist, wheel


@pytest.fixture(scope='module')
def names(packages: tuple[Path, Path]) -> set[str]:
    with zipfile.ZipFile(packages[1]) as wheel:
        return set(wheel.namelist())


@pytest.fixture(scope='module')
def metadata(packages: tuple[Path, Path]) -> Message:
    with zipfile.ZipFile(packages[1]) as wheel:
        (name,) = (each for each in wheel.namelist() if each.endswith('dist-info/METADATA'))
        return Parser().parsestr(wheel.read(name).decode())


def test_the_wheel_holds_all_modules_shared_files_and_the_extension(names: set[str]) -> None:
    package = ROOT / 'fdrl_ros'
    wanted = {f'fdrl_ros/{each.relative_to(package)}' for each in package.rglob('*.py')}
    wanted |= {
        f'fdrl_ros/_share/{each.relative_to(ROOT)}'
        for folder in SHARED
        for each in (ROOT / folder).rglob('*')
        if each.is_file()
    }
    static = package / 'page' / 'static'
    wanted |= {
        f'fdrl_ros/{each.relative_to(package)}' for each in static.rglob('*') if each.is_file()
    }
    wanted |= {'fdrl_ros/py.typed', 'fdrl_ros/_kernels.abi3.so'}
    wanted.add('fdrl_ros/_share/docs/glossary.md')
    assert not wanted - names
    extra = {name for name in names - wanted if '.dist-info/' not in name}
    assert not extra


def test_the_sdist_holds_what_the_build_reads(packages: tuple[Path, Path]) -> None:
    with tarfile.open(packages[0]) as sdist:
        held = {each.partition('/')[2] for each in sdist.getnames()}
    for folder in ('native', 'requirements', *SHARED):
        assert {
            str(each.relative_to(ROOT))
            for each in (ROOT / folder).rglob('*')
            if each.is_file() and '__pycache__' not in each.parts
        } <= held
    assert {'LICENSE', 'README.md', 'package.xml', 'constraints.txt'} <= held


def test_the_wheel_suits_every_later_python_and_an_index_takes_its_tag(
    packages: tuple[Path, Path],
) -> None:
    tag = r'-cp311-abi3-manylinux_2_(\d+)_\w+\.whl$'
    found = re.search(tag, packages[1].name)
    assert found and 17 <= int(found[1]) <= 40, packages[1].name


def test_an_index_takes_the_metadata(packages: tuple[Path, Path], metadata: Message) -> None:
    twine = [sys.executable, '-m', 'twine', 'check', '--strict', *map(str, packages)]
    done = subprocess.run(twine, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert metadata['Version'] == package_version() == fdrl_ros.__version__
    assert metadata['Description-Content-Type'] == 'text/markdown'
    assert {'Typing :: Typed', 'Operating System :: POSIX :: Linux'} <= set(
        metadata.get_all('Classifier')
    )


def test_there_is_an_extra_for_each_set_of_optional_requirements(metadata: Message) -> None:
    whole = {path.stem for path in (ROOT / 'requirements').glob('*.txt')}
    # What comes with the package, what builds, tests and documents it, and what conflicts.
    assert set(metadata.get_all('Provides-Extra')) == whole - {
        *('learning', 'ros', 'docs', 'test', 'flower')
    }


def test_containers_run_commands_that_exist_on_volumes_that_are_declared() -> None:
    compose = yaml.safe_load((ROOT / 'compose.yaml').read_text('utf-8'))
    services = dict(compose['services'])
    founder = services.pop('founder')
    assert {'servers', 'hospital_1', 'hospital_2', 'hospital_3', 'robot', 'page'} == set(services)
    named = {name for names in SECTIONS.values() for name in names}
    for service in services.values():
        command, *words = service['command']
        assert command in named
        if command == 'launch':
            assert (ROOT / 'launch' / f'{words[0]}.launch.py').exists()
            known = described(words[0])
            assert all(f"'{word.partition(':=')[0]}':" in known for word in words[1:])
        (volume,) = service['volumes']  # nobody sees the folder of another host
        assert volume in founder['volumes'] and volume.partition(':')[0] in compose['volumes']
    recipe = (ROOT / 'Dockerfile').read_text('utf-8')
    assert 'USER fdrl' in recipe
    assert all('healthcheck' in services[name] for name in ('servers', 'page'))
    for place in re.findall(r':(/hosts/\w+)', str(founder['volumes'])):
        assert place in recipe


def test_an_env_is_made_by_a_name_that_imports_its_module() -> None:
    env = gymnasium.make('fdrl_ros.surgery.gym.surgery_env:fdrl_ros/Palpation-v0')
    assert env.spec is not None and env.spec.id == 'fdrl_ros/Palpation-v0'
    env.close()


def test_other_names_of_the_package_are_refused_as_ever() -> None:
    with pytest.raises(AttributeError, match="no attribute 'version'"):
        _ = fdrl_ros.version
