"""What commands print and write, apart from the commands that it belongs to."""
