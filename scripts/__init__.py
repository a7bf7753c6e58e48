"""Thin absl programs; each is also a console command (`moejax-NAME`)."""
