"""Programs that run chosen tests inside a sandbox and report where the tested code cannot write."""
