"""A project of which the pages of docs/ speak."""
