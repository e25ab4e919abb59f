"""The page: runs in a browser, live, to look at, to watch and to play against."""
