"""Helpers of the benchmarks: grids, predicates, noise, labelled series, rivals."""
