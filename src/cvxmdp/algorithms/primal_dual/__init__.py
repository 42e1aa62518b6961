"""One iteration of PDPG, and how it gets past kinks."""
