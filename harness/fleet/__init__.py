"""One sweep over the devices of a Ray cluster. Needs the extra ``ray`` on every host, and our packages of one version.

:mod:`harness.fleet.host` runs on the hosts, one actor a device; :mod:`harness.fleet.crew` hands out cases and takes
them back from hosts that are lost; :mod:`harness.fleet.sweep` writes bundles, :mod:`harness.fleet.pairs` compares.
"""

from __future__ import annotations

EXTRA = "ray"
