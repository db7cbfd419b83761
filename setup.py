"""Packages of the ruler. asv wants its benchmark type in a module named like the distribution; it lives in harness."""

from setuptools import find_packages, setup

PLUGIN = "asv_bench_attnwatch"
OURS = ("harness", "benchmarks", "db", "dashboard")

setup(
    packages=[
        *find_packages(".", include=[pattern for name in OURS for pattern in (name, f"{name}.*")]),
        *(PLUGIN, f"{PLUGIN}.benchmarks"),
    ],
    package_dir={PLUGIN: "harness/asv_plugin", "": "."},
    package_data={"db": ["migrations/*.mako", "migrations/versions/*.py"]},
)
