"""The page of `scramjet serve`: runs seen live in a browser, over a folder of runs on this machine."""
