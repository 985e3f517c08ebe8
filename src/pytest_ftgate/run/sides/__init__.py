"""The two sides of a comparison: what a reference is, and the worktrees that hold it."""
