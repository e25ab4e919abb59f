"""What all tests and their helpers share."""
