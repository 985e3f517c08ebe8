"""Stored baselines: schema, file format, folder, update. Start at `schema.py`."""
