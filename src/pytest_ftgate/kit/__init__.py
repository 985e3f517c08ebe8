"""The ground: text, numbers, files, processes, git, features by name. It knows nothing of what is measured."""
