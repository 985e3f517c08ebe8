"""The subcommands of `ftgate`."""
