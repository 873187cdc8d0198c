"""Reads from a model's graph (`torch.export`) the program that a `.swamp` file of format 2 holds.

A program computes a network without torch. It is a table of inputs, nodes and outputs; `export/reader.py` describes it. The graph is read
node by node (`graph_reader.py`): `operators.py` names what each operation becomes, `layouts.py` follows views and permutations, and
`probing.py` finds out what integers are. What cannot be written as a program is refused with one sentence that names the operation and its
place.
"""

from swamp.export.program.graph_reader import NetworkProgram, read_program
from swamp.export.program.layouts import NoProgram

__all__ = ["NetworkProgram", "NoProgram", "read_program"]
