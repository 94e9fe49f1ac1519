"""Language models: calls, budgets, prices and recordings."""
