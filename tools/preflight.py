# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Name what this machine lacks for the set-up, with the command that installs it."""

import importlib.util
import os
from pathlib import Path
import platform
import re
import shutil
import subprocess
import sys
import sysconfig

PYTHONS = ((3, 12), (3, 11))
CMAKE = (3, 20)
DISK_GB = 2.0


def use_supported_python():
    """Start this program again under Python 3.12 or 3.11 if the current one is another."""
    if sys.version_info[:2] in PYTHONS:
        return
    for version in PYTHONS:
        found = shutil.which('python{}.{}'.format(*version))
        works = found and subprocess.call(
            [found, '-c', ''], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        if works == 0:
            os.execv(found, [found] + sys.argv)
    found = '.'.join(map(str, sys.version_info[:2]))
    sys.exit(
        f'Python 3.11 or 3.12 is needed (tenseal and pybullet have no wheels for others); python3 '
        f'here is {found}.\nInstall one, on Ubuntu 24.04 or Debian 12 with:\n'
        f'  {_apt()} python3 python3-venv python3-dev\n'
        'or name one: make PYTHON=/path/to/python3.11'
    )


def problems(root: Path, *, install: bool):
    """
    Return a sentence for each thing that would stop the set-up, ending in what to do.

    :param root: the folder that is set up.
    :param install: whether the environment has to be installed too, which needs the disk.
    """
    found = []
    packages = []
    if platform.system() != 'Linux' or platform.machine() != 'x86_64':
        found.append(
            f'the ROS 2 wheels are for Linux on x86_64, this is {platform.system()} on '
            f'{platform.machine()}: build the package in a workspace with ROS 2 installed instead '
            '(see CONTRIBUTING.md)'
        )
    if re.search(r'[\s:;"\'$\\]', str(root)):
        found.append(f'colcon cannot build below {str(root)!r}: use a path of plain characters')
    version = '{}.{}'.format(*sys.version_info[:2])
    if not all(map(importlib.util.find_spec, ('venv', 'ensurepip'))):
        packages.append((f'python{version}-venv', 'Python cannot make virtual environments'))
    if not Path(sysconfig.get_path('include'), 'Python.h').is_file():
        packages.append((f'python{version}-dev', 'the C headers of Python are not here'))
    if not (shutil.which('c++') and shutil.which('cc') and shutil.which('make')):
        packages.append(('build-essential', 'no C++ compiler (cc, c++, make)'))
    if _cmake_version() < CMAKE:
        packages.append(('cmake', 'no CMake of at least {}.{}'.format(*CMAKE)))
    if packages:
        reasons = '; '.join(reason for _, reason in packages)
        names = ' '.join(name for name, _ in packages)
        found.append(f'{reasons}. Install with:\n    {_apt()} {names}')
    free = shutil.disk_usage(root).free / 1e9
    if install and free < DISK_GB:
        found.append(f'{free:.1f} GB are free on the disk of {root}, {DISK_GB:g} GB are needed')
    if not os.access(root, os.W_OK):
        found.append(f'no permission to write in {root}')
    return found


def _apt():
    sudo = '' if os.geteuid() == 0 else 'sudo '
    return f'{sudo}apt-get update && {sudo}apt-get install -y'


def _cmake_version():
    cmake = shutil.which('cmake')
    if not cmake:
        return (0, 0)
    text = subprocess.run([cmake, '--version'], stdout=subprocess.PIPE).stdout.decode()
    match = re.search(r'(\d+)\.(\d+)', text)
    return tuple(map(int, match.groups())) if match else (0, 0)
