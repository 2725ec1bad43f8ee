"""`barnabas topic`, `produce`, `consume`, `group` as programs, against whatever broker is under test, beside other
clients: what one writes the other reads.
"""
