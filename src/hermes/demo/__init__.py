"""A temporary home with sample conversations, for trying the product.

This folder owns the samples. It imports foundations. It imports the store only when a home is created.
"""
