"""The arguments of each command, and what reads them: flags made from a dataclass, values of texts, the help.

A module of a command's name has `read(words)`, which returns what the function of the command is called with. Nothing
here loads torch: help and mistakes are answered at once.
"""
