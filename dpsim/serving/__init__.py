"""Serving: requests that replicas of a language model answer, and how long they wait for it.

A `Service` is read (`described`), its requests are drawn (`workload`), the model becomes the shapes
that a step multiplies (`decoder`) and a step its seconds (`pace`, with the collectives of
`exchanges`).  `scheduler` chooses what a rank's next step computes, `balancer` which rank a request
goes to, and `fleet` plays all ranks on a clock.  `answer` says what came out of it.
"""
