"""Vibrational spectra of trajectories."""

from __future__ import annotations

import numpy as np

from geomatt.elements import ATOMIC_MASSES
from geomatt.errors import GeomAttError

SPEED_OF_LIGHT = 2.99792458e-5  # cm/fs


def velocity_spectrum(
    numbers: np.ndarray, velocities: np.ndarray, step_fs: float, *, width: float = 10.0, most: float = 4500.0
) -> tuple[np.ndarray, np.ndarray]:
    """The vibrational density of states from velocities (T, R, N, 3) of replicas, `step_fs` apart.

    The power spectrum of the mass-weighted velocities, broadened to `width` cm⁻¹ (standard deviation) and
    normalised to an area of one; at wavenumbers up to `most` in steps of 1 cm⁻¹.
    """
    frames = len(velocities)
    if frames < 16 or 0.5 / (step_fs * SPEED_OF_LIGHT) < most:
        raise GeomAttError(
            f"{frames} velocities {step_fs:g} fs apart are too few or too far apart for a spectrum up to "
            f"{most:g} cm⁻¹."
        )
    weighted = velocities * np.sqrt(ATOMIC_MASSES[numbers - 1])[:, None]
    window = np.hanning(frames)[:, None, None, None]
    power = (np.abs(np.fft.rfft((weighted - weighted.mean(0)) * window, axis=0)) ** 2).sum((1, 2, 3))
    measured = np.fft.rfftfreq(frames, step_fs) / SPEED_OF_LIGHT
    grid = np.arange(0.0, most + 1.0)
    kernel = np.exp(-0.5 * ((grid[:, None] - measured) / width) ** 2)
    spectrum = kernel @ power
    return grid, spectrum / spectrum.sum()
