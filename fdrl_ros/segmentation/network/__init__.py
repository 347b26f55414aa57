# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The segmenter of FedST: encoder, temporal attention, channel selection and head in PyTorch."""
