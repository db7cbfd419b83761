"""What monitoring asks: figures for Prometheus and traces for OpenTelemetry, both read from the store.

Nothing here runs while something is measured: a scrape and an export read what was stored. Needs the extra
``observability``.
"""

from __future__ import annotations

from .figures import Figure, figures

__all__ = ["Figure", "figures"]
