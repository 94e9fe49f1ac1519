"""Events become job requests: the `/agent` grammar, the rules, and the handlers."""
