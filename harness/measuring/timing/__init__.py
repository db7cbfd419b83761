"""Timing one call: clocks per device, and the rule that says when there are samples enough."""
