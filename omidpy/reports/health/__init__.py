"""What `omidpy doctor` finds: is a store, its oracle and what lies around them as it should be?"""
