"""How the processes of one launch (torchrun) find each other, talk, and notice that one of them is gone, for the engine `distributed`."""
