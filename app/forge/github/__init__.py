"""GitHub as a forge, the public one and Enterprise Server alike; githubkit is known in this folder only.

connection ─► request, paced and classified ─► reads (facts for triggers and prompts)
                                            └► effects (looked for first, then made; never an approval, never a merge)
"""
