# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Means that the FedST paper states, by the names of our methods; real video, other sizes."""

from typing import Final

SITES: Final = {
    'dice': {
        'local': (76.86, 69.92, 79.51, 59.72, 71.50),
        'pooled': (85.99, 83.72, 89.63, 73.50, 83.21),
        'fedavg': (80.81, 81.44, 83.70, 74.01, 79.99),
        'fedrep': (81.15, 82.16, 87.11, 70.20, 80.66),
        'feddp': (78.91, 81.24, 85.62, 71.58, 79.34),
        'fedst': (84.73, 83.15, 89.13, 71.46, 82.62),
    },
    'iou': {
        'local': (63.55, 54.11, 66.82, 44.67, 57.29),
        'pooled': (75.94, 72.97, 81.53, 58.95, 72.35),
        'fedavg': (68.47, 69.49, 72.93, 59.56, 67.61),
        'fedrep': (67.01, 70.76, 77.33, 55.61, 67.68),
        'feddp': (66.45, 68.89, 74.74, 53.32, 65.85),
        'fedst': (74.38, 72.07, 80.71, 56.38, 71.47),
    },
    'hd95': {
        'local': (186.21, 291.52, 258.65, 596.08, 333.12),
        'pooled': (94.72, 119.04, 116.01, 434.84, 191.65),
        'fedavg': (140.44, 179.42, 216.03, 461.03, 249.73),
        'fedrep': (128.50, 125.30, 158.93, 465.18, 219.48),
        'feddp': (137.23, 130.16, 149.96, 477.46, 223.70),
        'fedst': (90.67, 124.90, 123.27, 404.12, 185.74),
    },
    'assd': {
        'local': (49.01, 88.63, 64.57, 168.41, 92.66),
        'pooled': (19.71, 32.78, 29.04, 137.54, 54.77),
        'fedavg': (29.51, 54.22, 52.20, 134.19, 67.53),
        'fedrep': (27.30, 36.51, 38.61, 142.29, 61.18),
        'feddp': (26.13, 35.28, 36.91, 151.18, 62.37),
        'fedst': (19.20, 34.28, 28.97, 122.20, 51.16),
    },
}
"""Table II: sites A to D and their mean; percent, or pixels of its own frames."""

UNSEEN: Final = {
    'local': (26.99, 16.97, 593.59, 231.97),
    'pooled': (27.56, 17.05, 517.38, 180.32),
    'fedavg': (28.73, 17.76, 635.64, 223.42),
    'fedrep': (28.76, 17.75, 453.75, 165.61),
    'feddp': (26.60, 16.69, 652.57, 251.26),
    'fedst': (77.97, 64.31, 310.91, 81.42),
}
"""Table III, site E: Dice, IoU, HD95, ASSD."""

ABLATIONS: Final = {
    'components': {
        'feddp': (75.49, 27.61),
        'ts': (80.74, 71.19),
        'ts_cs': (81.90, 72.21),
        'serq': (79.41, 28.23),
        'ts_serq': (82.04, 76.78),
        'fedst': (82.69, 76.99),
    },
    'places': {
        'nothing': (82.19, 76.42),
        'everything': (81.56, 10.25),
        'decoder_queries': (81.36, 56.23),
        'both_queries': (81.65, 54.37),
        'fedst': (82.69, 76.99),
    },
    'layers': {
        'norm': (81.99, 74.23),
        'keys': (81.85, 74.79),
        'values': (81.46, 74.52),
        'keys_values': (81.53, 73.89),
        'fedst': (82.62, 77.97),
    },
    'indicators': {
        'random': (80.83, 73.28),
        'gaussian': (81.14, 73.71),
        'one_hot': (81.32, 73.43),
        'fedst': (82.62, 77.97),
    },
}
"""Tables IV to VII: Dice, mean of sites A to D and site E; FedST's differs between them."""

COST: Final = {
    'local': (0.0, 33.01),
    'pooled': (0.0, 33.01),
    'fedavg': (19.71, 33.01),
    'fedrep': (13.01, 33.01),
    'feddp': (6.7, 33.01),
    'fedst': (12.69, 23.04),
}
"""Table IX: MB a round, frames a second."""
