"""The tables of the pages, by what they show. docs/generate.py writes them."""
