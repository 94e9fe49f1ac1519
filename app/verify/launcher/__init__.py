"""Programs that execute chosen tests inside a sandbox and report where the tested code cannot write."""
