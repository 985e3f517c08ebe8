"""The ground: text, numbers, files, processes, git. It knows nothing of what is measured."""
