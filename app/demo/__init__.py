"""A small project with a real bug and the issue that reports it, for `agent-fix demo`: data, never imported."""
