"""How hard a task is, without a model: shortcuts that fail, facts that count, calls that it takes.

A *shortcut* is a player too simple for a hard task. It plays one instance (a problem over rows) and is scored
by the reference semantics. Tools play no part: whatever they hide, a shortcut is told, so its pass rate is
what an agent gets that looks everything up and then thinks no further than this.

* ``first_row``: the first value of each slot, in listing order, that no other slot has.
* ``greedy``: slots with the fewest fitting values first; of those the value that costs bounded sums least.
* ``first_fit``: slots in order; the first value that keeps every rule about what is filled so far.
* ``recipe``: one way of choosing for each kind of slot ("the first with a rating of 32 or more"), fitted on
  other re-seeds; it reads no rule.
* ``at_bound``: what keeps some bound by least (the row at the bound, each slot's value at its bound).
* ``exact_sum``: rows or values that add up to the bound of a sum exactly; the rest as ``first_fit`` does it.
* ``local_search``: random changes that break no more than before; up to 1,000 answers, the best of 5 starts.

Of a question with one answer, ``first_row`` is the first row, ``greedy`` the answer without conditions,
``first_fit`` the first row that meets the conditions, or the number under the first of them alone. Of a
workflow, ``first_row`` makes the first call of ``first_fit``, ``greedy`` does all that is asked for whatever
the policy says, and ``first_fit`` goes row by row in listing order: it knows every rule but what ranks or
adds up rows of the tables that calls change, and makes no call that breaks the policy at that time.

Where a request must be escalated, no player of a workflow plays: others of the same task decide. What it
achieves to escalate every request with one and the same answer (``constant``) is counted over all re-seeds.
"""
