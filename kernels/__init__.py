"""The things measured: one folder per operation. Importing this package imports no torch."""

__version__ = "0.1.0"
