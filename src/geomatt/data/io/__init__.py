"""Readers and writers of structure files; units are converted to eV and Å on reading."""
