"""Looking at an episode: what happened, what blue saw of it, and what each move was worth; as a page or as text."""
