# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The private learner of PyTorch modules; it requires `pip install "fdrl_ros[torch]"`."""
