"""agent-fix: label an issue, get a draft pull request with proof."""

__version__ = "0.1.0"
