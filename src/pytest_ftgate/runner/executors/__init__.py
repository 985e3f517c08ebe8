"""The executors inside the measured process: each starts its workers, releases them together and joins them."""

__all__ = ["base", "factory"]
