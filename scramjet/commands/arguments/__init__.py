"""The parts of reading a command line: flags made from a dataclass, the values of their texts, and the help."""
