"""The benchmark type that asv loads. Installed as the module ``asv_bench_attnwatch``.

asv finds benchmark types in distributions whose name starts with ``asv_bench`` and equals a module with a
``benchmarks`` subpackage.
"""
