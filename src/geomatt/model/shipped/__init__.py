"""Model files that ship with the package, by collection: md17/aspirin.safetensors. See `model/zoo.py`."""
