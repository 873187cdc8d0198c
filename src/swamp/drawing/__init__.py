"""How anything is shown: numbers, tables, charts and markup. Nothing here knows what a run is."""
