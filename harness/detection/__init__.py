"""Statistics across runs: arrays in, arrays out.

``changes.detect`` finds the change points of whole histories, ``suite.judge_suite`` judges the newest runs of a
suite, ``sequential.decide`` settles one suspect from interleaved pairs, ``ab.compare`` compares two sets of samples.
"""
