"""The commands: one file each, whose function has the file's name; and what several of them share.

Imports of the library stand inside the functions, so that `swamp --help` is fast.
"""
