"""``python -m harness.cli`` is ``attnwatch``."""

from . import main

main()
