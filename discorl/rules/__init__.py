"""Update rules: discovered and written by hand, under one interface."""
