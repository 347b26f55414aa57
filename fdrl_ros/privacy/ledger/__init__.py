# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The ledger: a hospital's spent privacy, in a durable hash chain."""
