"""Measuring, judging and explaining attention kernels."""
