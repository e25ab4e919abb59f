"""Play and strength: matches, ratings, tournaments, perfect play as the judge, and a person at the board."""
