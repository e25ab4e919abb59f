"""What a study tells: its results as data, a table, plots on one page, and the winner as a preset file."""
