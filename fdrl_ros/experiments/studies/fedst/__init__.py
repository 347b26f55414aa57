# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""FedST's experiments (its section IV) on made-up surgical video."""
