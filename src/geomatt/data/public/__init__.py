"""Public data sets: the catalogue, downloads, and the data shipped with the package."""
