# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Serve pip: the library without ROS, its compiled arithmetic, and the `fdrl` script.

The colcon build does not read this file (see CMakeLists.txt). The version is package.xml's.
"""

from pathlib import Path
from xml.etree import ElementTree

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
SHARED = ('config', 'msg', 'urdf')
EXTRAS = (
    'bags', 'benchmark', 'export', 'foxglove', 'metrics', 'onnx', 'page', 'sepsis', 'torch',
)  # fmt: skip


class BuildWithSharedFiles(build_py):
    """Copy urdf/, msg/ and config/ into the wheel, where `fdrl_ros.resources` looks for them."""

    def run(self):
        super().run()
        if self.editable_mode:  # the source folders are found as they are
            return
        for folder in SHARED:
            target = Path(self.build_lib) / 'fdrl_ros' / '_share' / folder
            self.copy_tree(str(ROOT / folder), str(target))
        # Reports explain their numbers by it.
        glossary = Path(self.build_lib) / 'fdrl_ros/_share/docs/glossary.md'
        self.mkpath(str(glossary.parent))
        self.copy_file(str(ROOT / 'docs/glossary.md'), str(glossary))


def requirements(name):
    found = []
    for line in (ROOT / 'requirements' / f'{name}.txt').read_text().splitlines():
        if line.startswith('-r '):
            found += requirements(line.removeprefix('-r ').removesuffix('.txt'))
        elif line and not line.startswith('#'):
            found.append(line)
    return found


manifest = ElementTree.parse(ROOT / 'package.xml').getroot()
setup(
    name='fdrl_ros',
    version=manifest.findtext('version'),
    description='Private federated reinforcement learning for surgical robots on ROS 2',
    author=manifest.findtext('author'),
    maintainer=manifest.findtext('maintainer'),
    maintainer_email=manifest.find('maintainer').get('email'),
    license='Apache-2.0',
    license_files=['LICENSE', 'fdrl_ros/page/static/vendor/*.LICENSE.txt'],
    packages=find_packages(include=['fdrl_ros', 'fdrl_ros.*']),
    package_data={'fdrl_ros.page': ['static/*', 'static/vendor/*']},
    python_requires='>=3.11,<3.13',
    cffi_modules=['native/build.py:ffibuilder'],
    install_requires=requirements('learning'),
    extras_require={
        name: requirements(name)
        for name in ('bags', 'benchmark', 'onnx', 'segmentation', 'sepsis', 'torch')
    },
    entry_points={'console_scripts': ['fdrl = fdrl_ros.cli:main']},
    cmdclass={'build_py': BuildWithSharedFiles},
)
