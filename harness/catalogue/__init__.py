"""The incident catalogue: replays of known faults, and models of mechanisms that are no kernels."""
