"""Problems and solutions: what is asked, what was found, and their words and pictures."""
