# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Differential privacy: noise, the Gaussian mechanism, the accountant and the ledger."""
