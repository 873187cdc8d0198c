"""Recipes: one TOML file a setting."""
