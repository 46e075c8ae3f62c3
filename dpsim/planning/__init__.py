"""Planning: many predictions at once, and questions about them.

`grid` says which changes to a scenario are asked for and `unswept` plays one of them; `sweep` is
what determines a sweep, `swept` plays it, `workers` and `cluster` say where, and `log` keeps what
has been played.

`require`, `largest`, `choose` and `tune` answer inverse questions, each with a `finding`: they
play on a `bench`, vary `knobs` or whole `settings`, keep their `trials` and `search` for what is
`wanted`.

`compare` says which of several candidates is best, and how surely: `candidates` plays them,
`equal_work` is what all of them are to do, `causes` what they share of what is not known,
`compared` the answer, and `measure_next` what measuring a cause would save.
"""
