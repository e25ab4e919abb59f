"""What the page tells of runs: the list, one run, its curves and forks, and what is new of them."""
