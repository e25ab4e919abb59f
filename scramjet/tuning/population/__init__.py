"""Population-based training: many runs that copy the better ones and change their settings as they train."""
