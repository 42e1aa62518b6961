"""One iteration of PDPG."""
