"""Networks that leave a run: sparse files, plain ones, ONNX, each with a card."""
