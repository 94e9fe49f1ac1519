"""Programs that execute chosen tests inside a sandbox and report on them where the tested code cannot write."""
