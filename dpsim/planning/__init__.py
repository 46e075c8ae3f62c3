"""Planning: many predictions at once, and questions about them.

`grid` says which changes to a scenario are asked for, `sweep` plays them, `workers` and `cluster`
say where, and `log` keeps what has been played.  `plan` and `choose` answer inverse questions with
`bench`, `knobs`, `wanted` and `search`.

`compare` says which of several candidates is best, and how surely: `candidates` plays them,
`causes` is what they share of what is not known, `measure_next` what measuring it would save.
"""
