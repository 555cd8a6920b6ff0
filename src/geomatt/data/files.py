"""Atomic file writing, for modules that do not import it from `geomatt.files` yet."""

from geomatt.files import atomic_output as atomic_output
