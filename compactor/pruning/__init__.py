"""What may be forgotten, and what holds it back?"""
