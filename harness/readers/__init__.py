"""Results that others measured: one module per format, each a class that gives our records (see :mod:`.base`)."""
