"""The HTTP proxy through which a set-up reaches allowed hosts."""
