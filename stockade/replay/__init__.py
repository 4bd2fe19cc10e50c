"""Looking at an episode, and playing one: what happened, what blue saw of it, and what each move was worth."""
