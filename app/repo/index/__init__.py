"""The code index: which files an issue is about."""
