"""The envelope that ends interactions at the radius R:

    u(d) = (1 − x)³ (1 + 3x + 6x² + 10x³ + 15x⁴ + 21x⁵),   x = min(d / R, 1)

One near d = 0 and zero from R on, where its first and second derivatives vanish, too. It is flat for long
(0.86 at R/2), so that near pairs are hardly touched. Multiplied out it is 1 − 28x⁶ + 48x⁷ − 21x⁸; as a
product it is exactly zero at R in any precision.
"""

from __future__ import annotations

from torch import Tensor


def envelope(distances: Tensor, radius: float) -> Tensor:
    """u of distances."""
    x = (distances / radius).clamp(max=1.0)
    return (1.0 - x) ** 3 * (1.0 + x * (3.0 + x * (6.0 + x * (10.0 + x * (15.0 + x * 21.0)))))


def envelope_slope(distances: Tensor, radius: float) -> Tensor:
    """du/dd."""
    x = (distances / radius).clamp(max=1.0)
    return (-168.0 / radius) * x**5 * (1.0 - x) ** 2
