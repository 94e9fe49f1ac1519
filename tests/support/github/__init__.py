"""A GitHub in memory: the answers have GitHub's own shapes, the git side is real repositories over real HTTP."""
