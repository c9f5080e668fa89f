"""The command `affect-xp`: a module for each command, of which `add` tells the parser about it."""
