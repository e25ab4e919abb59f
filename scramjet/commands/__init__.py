"""One module for each subcommand of `scramjet`."""
