"""`make live`: the product on the real GitHub, in a scratch repository that its caller names. No test collects this."""
