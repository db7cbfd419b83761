"""The folder that holds this file is the package ``kernels`` itself, so that it can be built on its own."""

from setuptools import find_packages, setup  # type: ignore[import-untyped]

setup(packages=["kernels", *(f"kernels.{p}" for p in find_packages("."))], package_dir={"kernels": "."})
