"""Cases: one point of a scenario, compiled, and its variants.

A case is a story, a module for each chapter:

    site → work → batches → programs → costs → plays

Every chapter is a frozen value made of the ones before it.  What it tells is worked out when it is
first asked for, so that what is refused first is what is asked for first.  A `Case` holds them; a
`Variant` is a case with something changed.
"""
