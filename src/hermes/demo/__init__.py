"""A temporary home with sample conversations, for trying the product.

Owns the samples. Imports foundations, and the store only when a home is created.
"""
