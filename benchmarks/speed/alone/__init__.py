"""Contestants that run in processes of their own, some of them in environments of their own."""
