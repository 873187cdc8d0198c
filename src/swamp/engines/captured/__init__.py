"""What the engine `graphed` trains with: steps captured as CUDA graphs, the particles that replay them, and BatchNorm statistics."""
