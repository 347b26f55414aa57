# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Serve pip: the library without ROS, its compiled arithmetic, and the `fdrl` script.

The colcon build does not read this file (see CMakeLists.txt). The version is package.xml's.
"""

from pathlib import Path
import re
from xml.etree import ElementTree

from setuptools import find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
SHARED = ('config', 'msg', 'urdf')
EXTRAS = (
    'bags', 'benchmark', 'export', 'foxglove', 'metrics', 'onnx', 'page', 'ray', 'segmentation',
    'sepsis', 'torch', 'zenoh',
)  # fmt: skip
CLASSIFIERS = """
Development Status :: 3 - Alpha
Environment :: Console
Intended Audience :: Healthcare Industry
Intended Audience :: Science/Research
Operating System :: POSIX :: Linux
Programming Language :: C
Programming Language :: Python :: 3 :: Only
Programming Language :: Python :: 3.11
Programming Language :: Python :: 3.12
Topic :: Scientific/Engineering :: Artificial Intelligence
Topic :: Security :: Cryptography
Typing :: Typed
"""
USUAL = {b'libc.so.6', b'libm.so.6', b'libpthread.so.0'}  # every Linux with glibc has them


class TaggedWheel(bdist_wheel):
    """
    Tag the wheel for the oldest glibc that its extension needs, as auditwheel does.

    So a package index takes it. An extension that links more than libc keeps the usual tag.
    """

    def get_tag(self):
        interpreter, abi, platform = super().get_tag()
        data = b''.join(path.read_bytes() for path in Path(self.bdist_dir).rglob('*.so'))
        needed = [int(each) for each in re.findall(rb'GLIBC_2\.(\d+)', data)]
        linked = set(re.findall(rb'\0(lib[\w.+-]+\.so[\w.]*)', data))
        if platform.startswith('linux_') and needed and linked <= USUAL:
            platform = f'manylinux_2_{max(17, *needed)}_{platform.removeprefix("linux_")}'
        return interpreter, abi, platform


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
    long_description=(ROOT / 'README.md').read_text('utf-8'),
    long_description_content_type='text/markdown',
    project_urls={'Paper': 'https://arxiv.org/abs/2505.12153'},
    classifiers=CLASSIFIERS.strip().splitlines(),
    keywords='ros2 federated-learning reinforcement-learning differential-privacy surgery',
    license='Apache-2.0',
    license_files=['LICENSE', 'fdrl_ros/page/static/vendor/*.LICENSE.txt'],
    packages=find_packages(include=['fdrl_ros', 'fdrl_ros.*']),
    package_data={'fdrl_ros': ['py.typed', 'page/static/**']},
    python_requires='>=3.11,<3.13',
    cffi_modules=['native/build.py:ffibuilder'],
    install_requires=requirements('learning'),
    extras_require={name: requirements(name) for name in EXTRAS},
    entry_points={'console_scripts': ['fdrl = fdrl_ros.cli:main']},
    cmdclass={'bdist_wheel': TaggedWheel, 'build_py': BuildWithSharedFiles},
    options={'bdist_wheel': {'py_limited_api': 'cp311'}},  # cffi makes an abi3 extension
)
