# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Set up everything on a machine without ROS: environment, wheels, colcon build.

    python tools/setup_workspace.py [jazzy|kilted]

Each of the two steps leaves a stamp, the hash of all that it depends on, as its very last act.
A step whose stamp holds is skipped; one that was interrupted has none and is done again.
"""

import fcntl
import hashlib
from pathlib import Path
import shutil
import subprocess
import sys
import time

from commands import Failed, LOG, ROOT, run, step
import preflight
import wheel_paths

VENV = ROOT / '.venv'
DISTROS = ('jazzy', 'kilted')
"""Distributions of ROS 2 that there are wheels of; the first is the default."""

REQUIREMENTS = [ROOT / 'requirements' / name for name in ('learning.txt', 'test.txt')]
ROS = ROOT / 'requirements' / 'ros.txt'
ALONE = ROOT / 'requirements' / 'sepsis.txt'
CONSTRAINTS = ROOT / 'constraints.txt'
ENVIRONMENT = ROOT / 'tools' / 'environment.sh'
IMPORTS = (
    'cryptography, dp_accounting, gymnasium, hypothesis, matplotlib.pyplot, pybullet, pytest, '
    'rclpy.lifecycle, rich.progress, scipy.stats, sensor_msgs.msg, tenseal, yaml'
)
# What the build reads; of the rest only the names count, since the install is of links.
BUILD_FILES = (
    'CMakeLists.txt',
    'fdrl_ros/runtime/kernel_sources.py',
    'action/*',
    'msg/*',
    'native/*.[chp]*',
    'package.xml',
    'srv/*',
)
LINKED_FILES = ('fdrl_ros/**/*.py', 'launch/*', 'config/**/*', 'urdf/*', 'test/**/*.py')


def main():
    """Bring the environment and the build up to date; say what is done and how long it took."""
    started = time.monotonic()
    distro = chosen_distro()
    with open(__file__) as lock:  # a second `make` waits for the first
        fcntl.flock(lock, fcntl.LOCK_EX)
        environment = environment_stamp(distro)
        build = build_stamp(environment)
        install = read(VENV / 'stamp') != environment
        if install or read(ROOT / 'build' / 'stamp') != build:
            check_machine(install)
            LOG.parent.mkdir(exist_ok=True)
            if install:
                make_environment(distro)
                (VENV / 'stamp').write_text(environment)
            build_workspace(environment)
            (ROOT / 'build' / 'stamp').write_text(build)
    print(f'The workspace is built ({time.monotonic() - started:.1f} s).', flush=True)


def chosen_distro():
    """Return the distribution that was asked for; a name that is none ends the program."""
    name = sys.argv[1] if len(sys.argv) > 1 else DISTROS[0]
    if name not in DISTROS:
        sys.exit(f'DISTRO={name}: expected one of {", ".join(DISTROS)}')
    return name


def ros_wheels(distro):
    """Return the requirements of a distribution, and the file of their pins."""
    others = tuple(f'ros-{each}-' for each in DISTROS if each != distro)
    lines = ROS.read_text().replace('ros-DISTRO-', f'ros-{distro}-').splitlines()
    wheels = [each for each in lines if not each.startswith(others)]
    return wheels, ROOT / f'constraints-{distro}.txt'


def environment_stamp(distro):
    """Return the hash of all that .venv depends on, this folder's path included."""
    wheels, pins = ros_wheels(distro)
    files = [
        *REQUIREMENTS,
        ALONE,
        CONSTRAINTS,
        pins,
        ENVIRONMENT,
        Path(__file__),
        Path(wheel_paths.__file__),
    ]
    words = [str(ROOT), sys.version, *wheels]
    return digest(*words, *(path.read_text() for path in files))


def build_stamp(environment):
    """Return the hash of all that the build depends on."""
    read_files = [path for pattern in BUILD_FILES for path in sorted(ROOT.glob(pattern))]
    names = [
        str(path.relative_to(ROOT))
        for pattern in LINKED_FILES
        for path in sorted(ROOT.glob(pattern))
        if '__pycache__' not in path.parts
    ]
    return digest(environment, *names, *(f'{path.name} {path.read_text()}' for path in read_files))


def check_machine(install):
    """Stop with every reason at once, before anything is changed."""
    reasons = preflight.problems(ROOT, install=install)
    if reasons:
        sys.exit('This machine is not ready:\n' + ''.join(f'- {each}\n' for each in reasons))


def make_environment(distro):
    """Make .venv anew, with the pinned wheels, their paths repaired, and our environment."""
    step(f'Making {VENV.name} with Python {sys.version.split()[0]} and ROS 2 {distro.title()}')
    shutil.rmtree(VENV, ignore_errors=True)
    base = getattr(sys, '_base_executable', sys.executable)  # not the .venv just removed
    run([base, '-m', 'venv', VENV])
    python = VENV / 'bin' / 'python'
    wheels, pins = ros_wheels(distro)
    pip = [python, '-m', 'pip', '--disable-pip-version-check', 'install']
    pip += ['-c', CONSTRAINTS, '-c', pins]
    total = sum('==' in line for path in (CONSTRAINTS, pins) for line in open(path))
    step(f'Installing about {total} pinned wheels, about 1 GB')
    wanted = VENV / 'ros.txt'
    wanted.write_text('\n'.join(wheels))
    files = [word for path in (*REQUIREMENTS, wanted) for word in ('-r', path)]
    run([*pip, '--no-compile', *files], count='Collecting ')
    run([*pip, '--no-compile', '--no-deps', '-r', ALONE])  # of which only the data are read
    include, numpy_include = subprocess.check_output(
        [
            python,
            '-I',
            '-c',
            'import numpy, sysconfig; print(sysconfig.get_path("include"), numpy.get_include())',
        ],
        text=True,
    ).split()
    changed = wheel_paths.repair(VENV, include, numpy_include)
    step(f'Repaired the include paths of {changed} CMake files')
    text = ENVIRONMENT.read_text().replace('@VENV@', str(VENV)).replace('@DISTRO@', distro)
    for name in ('local_setup.sh', 'local_setup.bash', 'local_setup.zsh'):
        (VENV / name).write_text(text)  # where colcon's setup files look for it
    step('Checking that everything imports')  # and compiling it, which pip was told not to do
    run(['sh', '-c', f'. {VENV}/local_setup.sh && exec python -c "import {IMPORTS}"'])


def build_workspace(environment):
    """Run colcon; from an empty folder if the environment is another or the build fails."""
    if read(ROOT / 'build' / 'environment') != environment:
        clean_build()
    (ROOT / 'build').mkdir(exist_ok=True)
    (ROOT / 'build' / 'environment').write_text(environment)
    drop_dead_links()
    step('Building the workspace with colcon')
    try:
        colcon_build()
    except Failed:
        step('That failed; once more from an empty build folder')
        clean_build()
        colcon_build()
        (ROOT / 'build' / 'environment').write_text(environment)


def colcon_build():
    """Build the package into build/ and install/, the Python files as links."""
    command = (
        f'. {VENV}/local_setup.sh && exec colcon --log-base log build --symlink-install '
        f'--cmake-args -DPython3_EXECUTABLE={VENV}/bin/python3 -DCPP_MESSAGES=OFF'
    )
    run(['sh', '-c', command])


def clean_build():
    """Remove what colcon made."""
    for name in ('build', 'install'):
        shutil.rmtree(ROOT / name, ignore_errors=True)


def drop_dead_links():
    """Remove links in the install to files that the source no longer has."""
    for path in (ROOT / 'install').rglob('*'):
        if path.is_symlink() and not path.exists():
            path.unlink()


def digest(*words):
    """Return the hash of some words."""
    return hashlib.sha256('\0'.join(words).encode()).hexdigest()


def read(path):
    """Return a file's text, nothing if it does not exist."""
    return path.read_text() if path.is_file() else ''


if __name__ == '__main__':
    preflight.use_supported_python()
    try:
        main()
    except Failed as failed:
        sys.exit(f'{failed}\nRun the same command again after mending it.')
    except KeyboardInterrupt:
        sys.exit('\nInterrupted. The same command goes on from here.')
