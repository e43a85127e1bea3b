"""Watches what Python does in a run: which facts about the heap it read, and which effects it had."""
