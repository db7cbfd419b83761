"""Benchmark types for asv."""
