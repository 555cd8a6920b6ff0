"""Readers and writers of structure files, with units converted at the border."""
