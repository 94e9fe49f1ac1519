"""The default sandbox on Linux: bubblewrap."""
