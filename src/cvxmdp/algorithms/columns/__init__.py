"""Column generation: a pool of occupancies, masters that mix them, an oracle that adds to them."""
