"""Channels as a whole: groups of coupled channels, their physical removal, and the methods that choose among them."""
