"""One HTML file to share: the rules and the network of a run as JavaScript, and a page around them to play and watch.

`program` translates a world's rules from their Python source, `network` describes its policy, `page` puts both into one
file together with the scripts of `runtime/` and a recorded game, which the file checks itself against.
"""
