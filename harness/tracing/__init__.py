"""Looking inside a model: where it went non-finite, and what each node of its graph holds. Runs in a child process."""
