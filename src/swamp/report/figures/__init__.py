"""Figures for papers, made from what runs found; gallery.py names them all."""
