# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Worlds beside surgery: ICU-Sepsis, extracted MIMIC-III tables, the FDRL paper's own."""
