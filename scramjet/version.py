"""The version of scramjet, in a module that imports nothing: any part of the package may ask for it."""

__version__ = "0.1.0"
