"""Problem and sweep files (TOML): read without running anything in them."""
