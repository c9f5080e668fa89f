"""The commands of `affect-xp`, a module each: `add` tells the parser about it, and what it runs."""
