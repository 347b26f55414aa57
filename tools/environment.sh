# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
#
# The environment of the ROS 2 wheels in @VENV@. The set-up writes this file there, where
# install/setup.bash (and .sh, .zsh) source it: this is the one place for these variables.

# Put a folder in front of a list of paths, once.
_fdrl_prepend() {
  eval "_fdrl_list=\${$1:-}"
  case ":$_fdrl_list:" in
    *":$2:"*) ;;
    *) eval "export $1=\"\$2\${_fdrl_list:+:\$_fdrl_list}\"" ;;
  esac
}

export VIRTUAL_ENV="@VENV@"
_fdrl_prepend PATH "@VENV@/bin"
_fdrl_prepend AMENT_PREFIX_PATH "@VENV@"
_fdrl_prepend CMAKE_PREFIX_PATH "@VENV@"
_fdrl_prepend LD_LIBRARY_PATH "@VENV@/lib"
for _fdrl_libs in "@VENV@"/lib/python3.*/site-packages/ros_*.libs; do
  _fdrl_prepend LD_LIBRARY_PATH "$_fdrl_libs"
done
# Else the wheels' start-up hook starts every Python twice to set LD_LIBRARY_PATH.
export _ROS_WHEELS_BOOTSTRAP_COMPLETE=1

export ROS_DISTRO=@DISTRO@
export ROS_VERSION=2
export ROS_PYTHON_VERSION=3
export RMW_IMPLEMENTATION=rmw_fastrtps_cpp

# One process per party; these networks are too small for more threads to help.
export MKL_NUM_THREADS=1
export OMP_NUM_THREADS=1
export OPENBLAS_NUM_THREADS=1

unset _fdrl_list _fdrl_libs
unset -f _fdrl_prepend
