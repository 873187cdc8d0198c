"""How images of prepared shards become batches: which part of each is shown, how it is read ahead, and how it is scaled."""
