"""Engines: where jobs are trained. They differ in speed, never in what they compute."""
