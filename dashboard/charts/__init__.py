"""Pure functions: rows in, Altair chart out. Values are in the units of the screen; every axis names its own."""
