"""A store as a whole: is it set up, well, alive, copied, right?"""
