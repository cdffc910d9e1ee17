"""A temporary home with sample conversations, to try the product.

Owns the samples. Imports foundations, and the store when a home is made.
"""
