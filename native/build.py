# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Compile the kernels into the extension module ``fdrl_ros._kernels``.

    python native/build.py [FOLDER]

CMake and setup.py call it; by hand it builds into this very checkout, or into a folder. Private
training needs the module; everything else works without it, in NumPy, more slowly.
"""

import pathlib
import runpy
import shutil
import sys
import tempfile

import cffi

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = (
    'clipping.c',
    'contact.c',
    'endoscope.c',
    'network.c',
    'noise.c',
    'shadow.c',
    'shapes.c',
    'values.c',
)
FLAGS = ['-O3', '-std=gnu11', '-fno-math-errno', '-fno-trapping-math', '-Wno-psabi']

ffibuilder = cffi.FFI()
_header = (HERE / 'kernels.h').read_text()
_sources = HERE.parent / 'fdrl_ros' / 'runtime' / 'kernel_sources.py'
_digest = runpy.run_path(str(_sources))['sources_digest']
ffibuilder.cdef(_header.partition('// calls begin\n')[2].partition('// calls end')[0])
ffibuilder.cdef('static char *const FDRL_SOURCES;')
ffibuilder.set_source(
    'fdrl_ros._kernels',
    f'#include "kernels.h"\n#define FDRL_SOURCES "{_digest(HERE)}"',
    sources=[str(HERE / name) for name in SOURCES],
    include_dirs=[str(HERE)],
    extra_compile_args=FLAGS,
    libraries=['m'],
)


def build(folder: pathlib.Path) -> pathlib.Path:
    """Compile, and put the module into a folder; return its path."""
    with tempfile.TemporaryDirectory() as scratch:
        made = pathlib.Path(ffibuilder.compile(tmpdir=scratch))
        folder.mkdir(parents=True, exist_ok=True)
        return pathlib.Path(shutil.copy(made, folder / made.name))


if __name__ == '__main__':
    print(build(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / 'fdrl_ros'))
