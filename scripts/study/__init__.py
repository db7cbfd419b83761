"""Helpers of ``bench_detection.py``: labelled data, scores, simulated nights, other people's detectors."""
