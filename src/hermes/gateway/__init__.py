"""MANY PEOPLE: chat platforms, each chat a conversation of its own, none mixed up with anybody else's."""
