"""Publishing: the outbox, the rules before a push, and all text that is posted."""
