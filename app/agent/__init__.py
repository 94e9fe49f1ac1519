"""The coding agent: its loop, its tools, and other agents that can take its place."""
