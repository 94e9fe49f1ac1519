"""Analysis of what a patch changes in the sources, without executing anything."""
