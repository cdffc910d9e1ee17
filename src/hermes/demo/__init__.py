"""A throw-away home full of sample conversations, so that anybody sees the product in a minute."""
