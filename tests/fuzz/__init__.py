"""Coverage-guided fuzzing of the readers: ``python -m tests.fuzz bundle tests/fuzz/seeds/bundle``."""
