"""What compiled GPU code holds, read without a GPU: registers, spills, shared memory, occupancy, instructions."""

from __future__ import annotations

from .diff import Finding, diff
from .records import StaticRecord, read_records, write_records

__all__ = ["Finding", "StaticRecord", "diff", "read_records", "write_records"]
